"""OpenAI-ES compared with baselines: as it is now with that of the grid ``ci``, and broken ones.

Only a part of the grid, to be quick: ``esbench run ci --out out`` and ``esbench check out
--baseline results/baselines/ci.json`` are all of it. On the baseline's versions and processor every
digest must be the same; elsewhere no score may have dropped.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from checkout import ROOT
from watchers import Watcher

from esbench.algorithms.openai_es import OpenAIES
from esbench.engine.jobs import Episodes, Job, Task
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trials import Trial, open_grid
from esbench.publish.gate.check import CheckReport, check
from esbench.publish.gate.match_baseline import CellReport, DigestResult
from esbench.publish.gate.render_check import sentence
from esbench.results.baselines import Baseline, freeze, read_baseline
from esbench.results.statistics.judgment import GateRules, Verdict

BASELINE = ROOT / "results" / "baselines" / "ci.json"
Broken: TypeAlias = Callable[..., tuple[CheckReport, CellReport]]


def train(root: Path, pool: WorkerPool, **grid: Any) -> list[Trial]:
    _, trials = open_grid("ci", out=root, **grid)
    assert run_grid(trials, pool, Watcher()).count("done") == len(trials)
    return trials


@pytest.mark.parametrize(("environment", "seeds"), [("CartPole-v1", "0-7"), ("Acrobot-v1", "0-1")])
def test_openai_es_has_not_got_worse(
    tmp_path: Path, wide_pool: WorkerPool, environment: str, seeds: str
) -> None:
    trials = train(tmp_path, wide_pool, environments=[environment], seeds=seeds)
    whole = read_baseline(BASELINE)
    (frozen,) = (cell for cell in whole.cells if cell.environment == environment)
    part = frozen.model_copy(update={"trials": frozen.trials[: len(trials)]})
    report = check(tmp_path, whole.model_copy(update={"cells": (part,)}), GateRules())
    (cell,) = report.cells
    said = f"{sentence(cell)}; digests: {cell.digests_detail}"
    assert cell.digests is not DigestResult.CHANGED, said
    assert cell.verdict in (Verdict.NO_WORSE, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE), said


def test_the_baseline_is_of_the_grid() -> None:
    _, trials = open_grid("ci", out=Path("nowhere"))
    baseline = read_baseline(BASELINE)
    wanted = [trial.spec for trial in trials]
    frozen = [
        cell.to_cell(()).trial_spec(trial.seed)
        for environment in dict.fromkeys(spec.environment.id for spec in wanted)
        for cell in baseline.cells
        if cell.environment == environment
        for trial in cell.trials
    ]
    assert frozen == wanted


SMALL = {"environments": ["CartPole-v1"], "seeds": "0-4", "env_steps": 15_000}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory, wide_pool: WorkerPool) -> Baseline:
    root = tmp_path_factory.mktemp("real")
    train(root, wide_pool, **SMALL)
    return freeze(root, "")


@pytest.fixture
def broken(tmp_path: Path, wide_pool: WorkerPool, baseline: Baseline) -> Broken:
    """A function that trains the present OpenAI-ES and compares it with the baseline."""

    def held(exact: bool = False) -> tuple[CheckReport, CellReport]:
        folder = tmp_path / "out"
        if not folder.exists():
            train(folder, wide_pool, **SMALL)
        report = check(folder, baseline, GateRules(), exact)
        return report, report.cells[0]

    return held


def test_a_flipped_sign_is_a_regression(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = OpenAIES._tell
    monkeypatch.setattr(OpenAIES, "_tell", lambda self, p, returns, b: tell(self, p, -returns, b))
    report, cell = broken()
    assert (report.exit_code, cell.verdict) == (1, Verdict.REGRESSION)
    assert cell.looks[0].change < -0.5
    assert cell.digests is DigestResult.CHANGED
    assert "seed 0 differs from generation 1 " in cell.digests_detail


def test_a_dropped_last_reward_is_a_change_even_if_scores_hold(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = WorkerPool.play

    def short(self: WorkerPool, job: Job, tasks: Sequence[Task]) -> Episodes:
        played = play(self, job, tasks)  # every reward of CartPole is 1
        return dataclasses.replace(
            played, returns=played.returns - 1, center_returns=played.center_returns - 1
        )

    monkeypatch.setattr(WorkerPool, "play", short)
    report, cell = broken()
    assert cell.looks[0].change == pytest.approx(-1 / (500 - 22.63))
    assert cell.verdict is not Verdict.REGRESSION
    assert "seed 0 differs from generation 1 " in cell.digests_detail
    assert broken(exact=True)[0].exit_code == 1
    assert report.exit_code in (0, 4)
