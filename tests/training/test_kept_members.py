"""A center that was a member keeps the observation statistics that it has played with."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trainers import results, train, train_interrupted

from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.search_trainer import SearchTrainer

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


@pytest.mark.parametrize("warm", [False, True])
def test_a_checkpoint_without_the_centers_statistics_uses_those_of_the_members(
    repeats: Callable[..., TrialSpec], pool: WorkerPool, warm: bool
) -> None:
    state: dict[str, Any] = train(repeats(), pool).state_dict()
    assert state["statistics"].keys() == {"0", "1"}
    last = state["statistics"]["0"]
    old: dict[str, Any] = {**state, "statistics": {"0": last}}
    if warm:  # with those that the search began with
        empty = {name: np.zeros_like(value) for name, value in last.items()}
        old["statistics"]["-1"] = empty
    given = {**state, "statistics": {"0": last, "1": last}}
    scores = []
    for each in (old, given):
        with SearchTrainer(repeats(), pool) as trainer:
            trainer.load_state_dict(each)
            scores.append(trainer.evaluate(3).returns)
    np.testing.assert_array_equal(*scores)


def test_workers_and_interruptions_change_no_bit(
    repeats: Callable[..., TrialSpec], pool: WorkerPool, single: WorkerPool
) -> None:
    whole = results(train(repeats(), single))
    assert results(train(repeats(), pool, 1, 2, 5)) == whole
    for play in (1, 2, 3, 4, 9):
        assert results(train_interrupted(repeats(), pool, play)) == whole
