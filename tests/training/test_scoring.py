from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from watchers import run

from esbench.errors import DamagedTrialError, UsageError
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.scoring import evaluate_trial
from esbench.training.trials import Trial

Make = Callable[..., Trial]


def test_a_stored_policy_scores_what_was_recorded(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial()
    run(pool, trial)
    stored = evaluate_trial(trial.folder.path, pool)
    assert stored.recorded == stored.score.mean
    assert stored.generation == trial.folder.result()["generations"]
    more = evaluate_trial(trial.folder.path, pool, 6)
    assert more.recorded is None
    assert list(more.score.returns[:4]) == list(stored.score.returns)


def test_a_score_that_was_not_finite_is_not_compared(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial("doubles:BadReward-v0")
    run(pool, trial)
    assert evaluate_trial(trial.folder.path, pool).recorded is None


def test_a_damaged_or_missing_trial_is_one_sentence(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trial = make_trial()
    run(pool, trial)
    (tensors,) = trial.folder.path.rglob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:100])
    with pytest.raises(DamagedTrialError, match=f"{tensors.name} is damaged"):
        evaluate_trial(trial.folder.path, pool)
    (tensors.parent / "state.json").unlink()
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        evaluate_trial(trial.folder.path, pool)
    with pytest.raises(UsageError, match="no file .*nowhere"):
        evaluate_trial(tmp_path / "nowhere", pool)
    with pytest.raises(UsageError, match="episodes = 0: expected at least 1"):
        evaluate_trial(trial.folder.path, pool, 0)
