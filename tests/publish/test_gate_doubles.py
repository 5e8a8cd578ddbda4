"""Deliberately broken OpenAI-ES, compared with a baseline of the real one."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from watchers import Watcher

from esbench.algorithms.openai_es import OpenAIES
from esbench.engine.jobs import Episodes, Job, Task
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trials import open_grid
from esbench.publish.gate.check import CheckReport, check
from esbench.publish.gate.match_baseline import CellReport, DigestResult
from esbench.results.baselines import Baseline, freeze
from esbench.results.statistics.judgment import GateRules, Verdict

Broken: TypeAlias = Callable[..., tuple[CheckReport, CellReport]]


def train(root: Path, pool: WorkerPool) -> Path:
    _, trials = open_grid(
        "ci", environments=["CartPole-v1"], seeds="0-4", env_steps=15_000, out=root
    )
    assert run_grid(trials, pool, Watcher()).count("done") == len(trials)
    return root


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory, wide_pool: WorkerPool) -> Baseline:
    return freeze(train(tmp_path_factory.mktemp("real"), wide_pool), "")


@pytest.fixture
def broken(tmp_path: Path, wide_pool: WorkerPool, baseline: Baseline) -> Broken:
    """A function that trains the present OpenAI-ES and compares it with the baseline."""

    def held(exact: bool = False) -> tuple[CheckReport, CellReport]:
        folder = tmp_path / "out"
        if not folder.exists():
            train(folder, wide_pool)
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
