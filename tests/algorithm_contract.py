"""What every algorithm promises, those of other libraries included."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from searches import answer, arrays_in, assert_same, climb, tell, written

from esbench.core.errors import TrainingError

P, SIZE = 6, 12
START = np.linspace(-1.0, 1.5, P)

Make = Callable[..., Any]


def sphere(members: Any) -> Any:
    return -np.sum(members**2, axis=1)


def run(algorithm: Any, generations: int) -> Any:
    """Return the centers [generations, P] of a run on the sphere."""
    return climb(algorithm, generations, sphere)


def ask(algorithm: Any) -> Any:
    return answer(algorithm, sphere)


class AlgorithmContract:
    """The tests; a subclass has a fixture ``make`` of algorithms with P parameters from START."""

    def test_asking_twice_gives_the_same_population(self, make: Make) -> None:
        algorithm = make()
        for _ in range(3):
            first, second = ask(algorithm), algorithm.ask()
            members = first.members()
            assert members.shape == (len(first), P)
            np.testing.assert_array_equal(members, second.members())
            tell(algorithm, first, sphere(members))
            assert not np.array_equal(ask(algorithm).members(), members)

    def test_a_fresh_search_is_at_its_starting_point(self, make: Make) -> None:
        start = START.copy()
        algorithm = make(center_init=start)
        start[:] = 9.0
        np.testing.assert_array_equal(algorithm.center, START)
        assert algorithm.center.dtype == np.float64
        assert algorithm.generation == 0
        assert algorithm.sigma > 0
        assert algorithm.population_size == len(ask(algorithm)) == SIZE

    def test_returns_of_another_shape_are_refused(self, make: Make) -> None:
        algorithm = make()
        population, before = ask(algorithm), copy.deepcopy(algorithm.state_dict())
        for shape in [(SIZE - 1,), (SIZE + 1,), (SIZE, 1), (1, SIZE), ()]:
            with pytest.raises(ValueError, match=rf"expected \({SIZE},\)"):
                tell(algorithm, population, np.zeros(shape))
        assert_same(algorithm.state_dict(), before)

    def test_a_generation_without_any_finite_return_is_an_error(self, make: Make) -> None:
        algorithm = make()
        run(algorithm, 2)
        population, before = ask(algorithm), copy.deepcopy(algorithm.state_dict())
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(TrainingError, match=f"generation 3.* {len(population)} returns"):
                tell(algorithm, population, np.full(len(population), value))
        assert_same(algorithm.state_dict(), before)

    def test_some_returns_may_fail(self, make: Make) -> None:
        algorithm, failures = make(), np.random.default_rng(0)
        for _ in range(10):
            population = ask(algorithm)
            returns = sphere(population.members())
            failed = failures.permutation(len(returns))[: failures.integers(1, len(returns))]
            returns[failed] = failures.choice([math.nan, math.inf, -math.inf], len(failed))
            tell(algorithm, population, returns)
            assert np.isfinite(algorithm.center).all()
            assert np.isfinite(algorithm.ask().members()).all()

    def test_tell_changes_neither_the_returns_nor_the_population(self, make: Make) -> None:
        algorithm = make()
        for _ in range(3):
            population = ask(algorithm)
            members = population.members()
            returns = sphere(members)
            returns[3] = math.nan
            before = returns.copy()
            tell(algorithm, population, returns)
            np.testing.assert_array_equal(returns, before)
            np.testing.assert_array_equal(population.members(), members)

    def test_returns_may_be_a_list(self, make: Make) -> None:
        algorithm, other = make(), make()
        returns = sphere(ask(algorithm).members()).tolist()
        kept = list(returns)
        tell(algorithm, algorithm.ask(), returns)
        tell(other, ask(other), np.array(returns))
        assert returns == kept
        np.testing.assert_array_equal(algorithm.center, other.center)

    @pytest.mark.parametrize("before", [0, 5])
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
        expected = run(algorithm, 8)
        np.testing.assert_array_equal(run(restored, 8), expected)
        assert_same(restored.state_dict(), algorithm.state_dict())
        algorithm.load_state_dict(state)  # back in time
        np.testing.assert_array_equal(run(algorithm, 8), expected)

    def test_a_state_dict_stays_what_it_was(self, make: Make) -> None:
        algorithm = make()
        run(algorithm, 4)
        state = algorithm.state_dict()
        before = copy.deepcopy(state)
        expected = run(algorithm, 4)
        assert_same(state, before)
        restored = make()
        restored.load_state_dict(state)
        for array in [*arrays_in(state), *arrays_in(restored.state_dict())]:
            if array.flags.writeable:
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
        with pytest.raises(ValueError, match=f"{P + 1} parameters: expected {P}"):
            make().load_state_dict(state)

    def test_the_seed_determines_a_run(self, make: Make) -> None:
        one, again, other = (run(make(seed=seed), 5) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, again)
        assert not np.array_equal(one, other)

    def test_no_global_generator_matters(self, make: Make) -> None:
        states = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
        centers = run(make(), 3)
        assert random.getstate() == states[0]
        assert torch.equal(torch.get_rng_state(), states[1])
        np.testing.assert_equal(np.random.get_state(), states[2])  # noqa: NPY002
        torch.rand(3)
        np.testing.assert_array_equal(run(make(), 3), centers)
