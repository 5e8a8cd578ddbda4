"""What an adapter of another library promises beyond the contract of every algorithm."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from algorithm_contract import SIZE, START, AlgorithmContract, Make, P, run, sphere
from searches import assert_same

import esbench
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord

__all__ = ["SIZE", "START", "AdapterContract", "Make", "P", "maker_of", "resumed", "run"]


def maker_of(library: str, setting: str, cases: dict[str, dict[str, Any]]) -> Make:
    """Return a maker of a library's searches by name, with the arguments of their cases."""

    def make(name: str, **settings: Any) -> Any:
        own = {setting: name, "population_size": SIZE, "arguments": cases.get(name, {})}
        return esbench.make_algorithm(
            library, **{"num_params": P, "center_init": START, **own, **settings}
        )

    return make


def resumed(spec: TrialSpec, pool: WorkerPool) -> Sequence[GenerationRecord]:
    """Check that a resumed trial has the digests of an uninterrupted one; returns its history."""
    whole, half, rest = (SearchTrainer(spec, pool) for _ in range(3))
    whole.train(env_steps=900)
    half.train(env_steps=400)
    rest.load_state_dict(copy.deepcopy(half.state_dict()), half.history)
    rest.train(env_steps=900)
    assert len(half.history) < len(whole.history)
    assert [r.digest for r in rest.history] == [r.digest for r in whole.history]
    assert all(np.isfinite(record.sigma) for record in whole.history)
    return whole.history


class AdapterContract(AlgorithmContract):
    """The tests; a subclass has a fixture ``make`` of algorithms with P parameters from START."""

    def test_members_cannot_be_written_to(self, make: Make) -> None:
        population = make().ask()
        with pytest.raises(ValueError, match="read-only"):
            population.stored[0] = 0.0
        assert 0.0 < np.abs(population.members() - START).max() < 2.0

    def test_a_failed_member_counts_as_the_worst_finite_one(self, make: Make) -> None:
        failing, worst = make(), make()
        failures = np.random.default_rng(0)
        for _ in range(8):
            population = failing.ask()
            returns = sphere(population.members())
            failed = failures.permutation(len(returns))[: failures.integers(1, len(returns) - 1)]
            replaced = returns.copy()
            replaced[failed] = np.delete(returns, failed).min()
            returns[failed] = failures.choice([math.nan, math.inf, -math.inf], len(failed))
            failing.tell(population, returns)
            worst.tell(worst.ask(), replaced)
        assert_same(failing.state_dict(), worst.state_dict())

    @pytest.mark.parametrize("before", [0, 3])
    def test_equal_returns_move_nothing_but_draw_again(self, make: Make, before: int) -> None:
        algorithm = make()
        run(algorithm, before)
        center, sigma = algorithm.center.copy(), algorithm.sigma
        seen = [algorithm.ask().members()]
        for value in (-1e6, 1e6, -2e6):
            population = algorithm.ask()
            algorithm.tell(population, np.full(len(population), value))
            np.testing.assert_array_equal(algorithm.center, center)
            assert 0.2 * sigma < algorithm.sigma < 5 * sigma
            members = algorithm.ask().members()
            assert not any(np.array_equal(members, other) for other in seen)
            seen.append(members)
        assert algorithm.generation == before + 3
        restored = make(center_init=-3.0)
        restored.load_state_dict(algorithm.state_dict())
        np.testing.assert_array_equal(restored.ask().members(), algorithm.ask().members())
        np.testing.assert_array_equal(run(restored, 4), run(algorithm, 4))

    def test_failures_may_leave_nothing_to_learn(self, make: Make) -> None:
        algorithm = make()
        run(algorithm, 2)
        center = algorithm.center.copy()
        returns = np.full(len(algorithm.ask()), math.nan)
        returns[3] = 1.0
        algorithm.tell(algorithm.ask(), returns)
        np.testing.assert_array_equal(algorithm.center, center)

    def test_higher_is_better(self, make: Make) -> None:
        algorithm = make()
        assert sphere(run(algorithm, 25)).max() > 0.5 * sphere(START[None])[0]
