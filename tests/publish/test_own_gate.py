"""This project's own gate: OpenAI-ES as it is now, compared with the baseline of the grid ``ci``.

A part of the grid, to be quick: ``esbench run ci --out out`` and ``esbench check out --baseline
results/baselines/ci.json`` are all of it. On the baseline's versions and processor every digest
must be the same; elsewhere no score may have dropped.
"""

from pathlib import Path

import pytest
from watchers import Watcher

from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import run_grid
from esbench.experiment.trials import open_grid
from esbench.publish.gate import render_check as verdicts
from esbench.publish.gate.check import check
from esbench.publish.gate.match_baseline import DigestResult
from esbench.results.baselines import read_baseline
from esbench.results.statistics.judgment import GateRules, Verdict

BASELINE = Path(__file__).parents[2] / "results" / "baselines" / "ci.json"


@pytest.mark.parametrize(("environment", "seeds"), [("CartPole-v1", "0-7"), ("Acrobot-v1", "0-1")])
def test_openai_es_has_not_got_worse(tmp_path: Path, environment: str, seeds: str) -> None:
    _, trials = open_grid("ci", environments=[environment], seeds=seeds, out=tmp_path)
    with WorkerPool(2) as pool:
        assert run_grid(trials, pool, Watcher(), at_once=None).count("done") == len(trials)
    whole = read_baseline(BASELINE)
    (frozen,) = (cell for cell in whole.cells if cell.environment == environment)
    part = frozen.model_copy(update={"trials": frozen.trials[: len(trials)]})
    report = check(tmp_path, whole.model_copy(update={"cells": (part,)}), GateRules())
    (cell,) = report.cells
    said = f"{verdicts.sentence(cell)}; digests: {cell.digests_detail}"
    assert cell.digests is not DigestResult.CHANGED, said
    assert cell.verdict in (Verdict.NO_WORSE, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE), said


def test_the_baseline_is_of_the_grid() -> None:
    _, trials = open_grid("ci", out=Path("nowhere"))
    baseline = read_baseline(BASELINE)
    wanted = [trial.spec for trial in trials]
    frozen = [
        cell.trial_spec(trial.seed)
        for environment in dict.fromkeys(spec.environment.id for spec in wanted)
        for cell in baseline.cells
        if cell.environment == environment
        for trial in cell.trials
    ]
    assert frozen == wanted
