"""What an adapter of another library promises, as every algorithm of ours does."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from esbench.algorithms.base import Algorithm
from esbench.errors import TrainingError
from esbench.files import with_arrays, without_arrays

P, SIZE = 6, 12
START = np.linspace(-1.0, 1.5, P)

Make = Callable[..., Algorithm[Any]]


def sphere(population: Any) -> Any:
    return -np.sum(population.members() ** 2, axis=1)


def run(algorithm: Algorithm[Any], generations: int) -> Any:
    """Return the centres [generations, P] of a run on the sphere."""
    centers = []
    for _ in range(generations):
        population = algorithm.ask()
        algorithm.tell(population, sphere(population))
        centers.append(algorithm.center.copy())
    return np.array(centers)


def arrays_in(state: dict[str, Any]) -> Iterator[Any]:
    for value in state.values():
        if isinstance(value, dict):
            yield from arrays_in(value)
        elif isinstance(value, np.ndarray):
            yield value


def written(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint."""
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(state, arrays)))
    read: dict[str, Any] = with_arrays(
        plain, safetensors.numpy.load(safetensors.numpy.save(arrays))
    )
    return read


def assert_same(one: Any, two: Any) -> None:
    """Compare two states, NaN and types included."""
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    else:
        np.testing.assert_array_equal(one, two)
        assert np.asarray(one).dtype == np.asarray(two).dtype


class AdapterContract:
    """The tests; a subclass has a fixture ``make`` of algorithms with P parameters from START."""

    def test_asking_twice_gives_the_same_population(self, make: Make) -> None:
        algorithm = make()
        for _ in range(3):
            first, second = algorithm.ask(), algorithm.ask()
            members = first.members()
            np.testing.assert_array_equal(members, second.members())
            algorithm.tell(first, sphere(first))
            np.testing.assert_array_equal(first.members(), members)
            assert not np.array_equal(algorithm.ask().members(), members)

    def test_members_cannot_be_written_to(self, make: Make) -> None:
        population = make().ask()
        assert len(population) >= SIZE
        assert population.members().shape == (len(population), P)
        with pytest.raises(ValueError, match="read-only"):
            population.stored[0] = 0.0

    def test_a_fresh_search_is_at_its_starting_point(self, make: Make) -> None:
        start = START.copy()
        algorithm = make(center_init=start)
        start[:] = 9.0
        np.testing.assert_array_equal(algorithm.center, START)
        assert algorithm.center.dtype == np.float64
        assert algorithm.generation == 0
        assert algorithm.sigma > 0
        assert algorithm.population_size == SIZE
        spread = np.abs(algorithm.ask().members() - START).max()
        assert 0.0 < spread < 2.0

    def test_returns_of_another_shape_are_refused(self, make: Make) -> None:
        algorithm = make()
        population, before = algorithm.ask(), copy.deepcopy(algorithm.state_dict())
        for shape in [(SIZE - 1,), (SIZE + 1,), (SIZE, 1), (1, SIZE), ()]:
            with pytest.raises(ValueError, match=rf"expected \({SIZE},\)"):
                algorithm.tell(population, np.zeros(shape))
        assert_same(algorithm.state_dict(), before)

    def test_a_generation_without_any_finite_return_is_an_error(self, make: Make) -> None:
        algorithm = make()
        run(algorithm, 2)
        population, before = algorithm.ask(), copy.deepcopy(algorithm.state_dict())
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(TrainingError, match="generation 2: none of the"):
                algorithm.tell(population, np.full(len(population), value))
        assert_same(algorithm.state_dict(), before)

    def test_a_failed_member_counts_as_the_worst(self, make: Make) -> None:
        failing, worst = make(), make()
        failures = np.random.default_rng(0)
        for _ in range(8):
            population = failing.ask()
            returns = sphere(population)
            failed = failures.permutation(len(returns))[: failures.integers(1, len(returns) - 1)]
            finite = np.delete(returns, failed)
            bad, replaced = returns.copy(), returns.copy()
            bad[failed] = failures.choice([math.nan, math.inf, -math.inf], len(failed))
            replaced[failed] = finite.min()
            told = bad.copy()
            failing.tell(population, told)
            np.testing.assert_array_equal(told, bad)
            worst.tell(worst.ask(), replaced)
            assert np.isfinite(failing.center).all()
        assert_same(failing.state_dict(), worst.state_dict())

    @pytest.mark.parametrize("before", [0, 1, 4])
    def test_a_restored_search_continues_bit_for_bit(self, make: Make, before: int) -> None:
        algorithm = make()
        run(algorithm, before)
        state = algorithm.state_dict()
        restored = make(center_init=-3.0)
        restored.load_state_dict(written(state))
        assert restored.generation == before
        np.testing.assert_array_equal(restored.center, algorithm.center)
        np.testing.assert_array_equal(restored.ask().members(), algorithm.ask().members())
        assert restored.sigma == algorithm.sigma
        expected = run(algorithm, 6)
        np.testing.assert_array_equal(run(restored, 6), expected)
        assert_same(restored.state_dict(), algorithm.state_dict())
        algorithm.load_state_dict(state)  # back in time
        np.testing.assert_array_equal(run(algorithm, 6), expected)

    def test_the_state_dict_is_a_copy(self, make: Make) -> None:
        algorithm = make()
        run(algorithm, 3)
        state = algorithm.state_dict()
        before = copy.deepcopy(state)
        expected = run(algorithm, 4)
        assert_same(state, before)  # going on wrote nothing into it
        restored = make()
        restored.load_state_dict(state)
        for array in [*arrays_in(state), *arrays_in(restored.state_dict())]:
            array.fill(7)
        assert_same(restored.state_dict(), before)
        np.testing.assert_array_equal(run(restored, 4), expected)

    def test_the_state_is_of_arrays_numbers_and_tables(self, make: Make) -> None:
        def check(value: Any) -> None:
            if isinstance(value, dict):
                assert all(isinstance(key, str) for key in value)
                for inner in value.values():
                    check(inner)
            else:
                assert isinstance(value, np.ndarray | int | float | str)
                assert not isinstance(value, np.ndarray) or value.dtype.kind in "fiu"

        algorithm = make()
        check(algorithm.state_dict())
        run(algorithm, 3)
        check(algorithm.state_dict())

    def test_a_state_of_another_size_is_refused(self, make: Make) -> None:
        state = {**make().state_dict(), "center": np.zeros(P + 1)}
        with pytest.raises(ValueError, match=f"state of {P + 1} parameters: expected {P}"):
            make().load_state_dict(state)

    def test_a_run_is_its_seed(self, make: Make) -> None:
        one, again, other = (run(make(seed=seed), 4) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, again)
        assert not np.array_equal(one, other)

    def test_no_global_generator_is_drawn_from(self, make: Make) -> None:
        states = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
        centers = run(make(), 3)
        assert random.getstate() == states[0]
        assert torch.equal(torch.get_rng_state(), states[1])
        np.testing.assert_equal(np.random.get_state(), states[2])  # noqa: NPY002
        torch.rand(3)
        np.testing.assert_array_equal(run(make(), 3), centers)  # nor does one have a say

    def test_returns_may_be_a_list(self, make: Make) -> None:
        algorithm, other = make(), make()
        returns = sphere(algorithm.ask()).tolist()
        kept = list(returns)
        algorithm.tell(algorithm.ask(), returns)
        other.tell(other.ask(), np.array(returns))
        assert returns == kept
        np.testing.assert_array_equal(algorithm.center, other.center)

    @pytest.mark.parametrize("before", [0, 1, 3])
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
        start = np.sum(algorithm.center**2)
        assert min(np.sum(run(algorithm, 25) ** 2, axis=1)) < 0.5 * start
