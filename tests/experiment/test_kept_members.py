"""A center that was a member keeps the observation statistics that it has played with."""

from collections.abc import Callable

import numpy as np
import pytest
from trainers import results, train, train_interrupted

from esbench.engine.worker_pool import WorkerPool
from esbench.grids.trial_spec import TrialSpec

GENERATIONS = 8


@pytest.fixture
def repeats(make_spec: Callable[..., TrialSpec]) -> Callable[..., TrialSpec]:
    def make(normalized: bool = True) -> TrialSpec:
        return make_spec(
            environments=["doubles:Repeats-v0"],
            algorithms={"random_search": {"population_size": 6, "sigma": 1.0}},
            policy={"normalize_observations": normalized},
            budget={"generations": GENERATIONS, "env_steps": 10**6},
        )

    return make


@pytest.mark.parametrize("normalized", [True, False])
def test_the_center_returns_what_the_best_member_has_returned(
    repeats: Callable[..., TrialSpec], pool: WorkerPool, normalized: bool
) -> None:
    trainer = train(repeats(normalized), pool)
    best = np.maximum.accumulate([record.population_return_max for record in trainer.history])
    assert len(np.unique(best)) > 2  # several members have become the center
    centers = [record.center_return for record in trainer.history]
    np.testing.assert_array_equal(centers[1:], best[:-1])
    for record in trainer.history[1:]:
        # Equal members each count for half.
        assert (record.center_rank == 1.0) == (record.population_return_max < record.center_return)
    np.testing.assert_array_equal(trainer.evaluate(3).returns, best[-1])


def test_workers_and_interruptions_change_no_bit(
    repeats: Callable[..., TrialSpec], pool: WorkerPool, single: WorkerPool
) -> None:
    whole = results(train(repeats(), single))
    assert results(train(repeats(), pool, 1, 2, 5)) == whole
    for play in (1, 2, 3, 4, 9):
        assert results(train_interrupted(repeats(), pool, play)) == whole
