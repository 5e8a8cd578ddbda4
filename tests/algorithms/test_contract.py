"""What every registered algorithm promises; a new file under esbench/algorithms joins by itself."""

import copy
import math
import random

import numpy as np
import pytest
import torch

import esbench
from esbench.algorithms.base import Algorithm
from esbench.errors import TrainingError

P = 6
SIZE = 12  # members a generation

CASES = [pytest.param(name, {}, id=name) for name in esbench.list_algorithms()] + [
    pytest.param("openai_es", {"optimizer": "clipup"}, id="openai_es-clipup"),
    pytest.param(
        "openai_es",
        {"optimizer": "sgd", "optimizer_settings": {"momentum": 0.9}, "antithetic": False},
        id="openai_es-momentum",
    ),
    pytest.param("random_search", {"distribution": "uniform"}, id="random_search-uniform"),
]

# Settings, evaluations and the value that the best-so-far centre reaches on -|x|^2 from x = 1 in 10
# dimensions (-10), for each of three seeds.
SPHERE = {
    "openai_es": ({"sigma": 0.1, "learning_rate": 0.1, "weight_decay": 0.0}, 2000, -0.05),
    "random_search": ({"sigma": 1.0}, 2000, -6.0),
}

every_algorithm = pytest.mark.parametrize(("name", "settings"), CASES)


def make(name, settings, *, seed=0, num_params=P, center_init=1.0):
    settings = {"population_size": SIZE, **settings}
    return esbench.make_algorithm(
        name, num_params=num_params, seed=seed, center_init=center_init, **settings
    )


def sphere(population):
    return -np.sum(population.members() ** 2, axis=1)


def run(algorithm, generations):
    """Return the centres [generations, P] of a run on the sphere."""
    centers = []
    for _ in range(generations):
        population = algorithm.ask()
        algorithm.tell(population, sphere(population))
        centers.append(algorithm.center.copy())
    return np.array(centers)


def arrays_in(state):
    for value in state.values():
        if isinstance(value, dict):
            yield from arrays_in(value)
        elif isinstance(value, np.ndarray):
            yield value


def assert_same(one, two):
    """Compare two states, NaN and types included."""
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    else:
        np.testing.assert_array_equal(one, two)


@every_algorithm
def test_asking_twice_gives_the_same_population(name, settings):
    algorithm = make(name, settings)
    for _ in range(3):
        first, second = algorithm.ask(), algorithm.ask()
        assert len(first) == len(second) == SIZE
        assert first.members().shape == (SIZE, P)
        np.testing.assert_array_equal(first.members(), second.members())
        algorithm.tell(first, sphere(first))
        assert not np.array_equal(algorithm.ask().members(), first.members())


@every_algorithm
def test_a_fresh_search_is_at_its_starting_point(name, settings):
    start = np.linspace(-1.0, 1.0, P)
    algorithm = make(name, settings, center_init=start)
    np.testing.assert_array_equal(algorithm.center, start)
    assert algorithm.center.dtype == np.float64
    assert algorithm.generation == 0
    assert algorithm.sigma > 0
    start[:] = 9.0
    assert algorithm.center.max() == 1.0


@every_algorithm
@pytest.mark.parametrize("shape", [(SIZE - 1,), (SIZE + 1,), (SIZE, 1), (1, SIZE), ()])
def test_returns_of_another_shape_are_refused(name, settings, shape):
    algorithm = make(name, settings)
    population, before = algorithm.ask(), copy.deepcopy(algorithm.state_dict())
    with pytest.raises(ValueError, match=rf"expected \({SIZE},\)"):
        algorithm.tell(population, np.zeros(shape))
    assert_same(algorithm.state_dict(), before)


@every_algorithm
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_generation_without_any_finite_return_is_an_error(name, settings, value):
    algorithm = make(name, settings)
    run(algorithm, 2)
    population, before = algorithm.ask(), copy.deepcopy(algorithm.state_dict())
    with pytest.raises(TrainingError, match=f"generation 2: none of the {SIZE} returns is finite"):
        algorithm.tell(population, np.full(SIZE, value))
    assert_same(algorithm.state_dict(), before)


@every_algorithm
def test_some_returns_may_fail(name, settings):
    algorithm = make(name, settings)
    failures = np.random.default_rng(0)
    for _ in range(10):
        population = algorithm.ask()
        returns = sphere(population)
        failed = failures.permutation(SIZE)[: failures.integers(1, SIZE)]
        returns[failed] = failures.choice([math.nan, math.inf, -math.inf], len(failed))
        algorithm.tell(population, returns)
        assert np.isfinite(algorithm.center).all()
        assert np.isfinite(algorithm.ask().members()).all()


@every_algorithm
@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_restored_search_continues_bit_for_bit(name, settings, before):
    algorithm = make(name, settings)
    run(algorithm, before)
    state = algorithm.state_dict()
    restored = make(name, settings, center_init=-3.0)
    restored.load_state_dict(state)
    assert restored.generation == before
    np.testing.assert_array_equal(restored.ask().members(), algorithm.ask().members())
    expected = run(algorithm, 10)
    np.testing.assert_array_equal(run(restored, 10), expected)
    assert_same(restored.state_dict(), algorithm.state_dict())
    algorithm.load_state_dict(state)  # back in time
    np.testing.assert_array_equal(run(algorithm, 10), expected)


@every_algorithm
def test_the_state_dict_is_a_copy(name, settings):
    algorithm = make(name, settings)
    run(algorithm, 5)
    state = algorithm.state_dict()
    before = copy.deepcopy(state)
    expected = run(algorithm, 5)
    assert_same(state, before)  # going on wrote nothing into it

    restored = make(name, settings)
    restored.load_state_dict(state)
    for array in [*arrays_in(state), *arrays_in(restored.state_dict())]:
        array.fill(1e3)
    np.testing.assert_array_equal(run(restored, 5), expected)


@every_algorithm
def test_the_state_is_of_arrays_numbers_and_tables(name, settings):
    def check(value):
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            for inner in value.values():
                check(inner)
        else:
            assert isinstance(value, np.ndarray | int | float | str)
            assert not isinstance(value, np.ndarray) or value.dtype != object

    algorithm = make(name, settings)
    check(algorithm.state_dict())
    run(algorithm, 3)
    check(algorithm.state_dict())


@every_algorithm
def test_a_state_of_another_size_is_refused(name, settings):
    state = make(name, settings, num_params=P + 1).state_dict()
    with pytest.raises(ValueError, match=f"state of {P + 1} parameters: expected {P}"):
        make(name, settings).load_state_dict(state)


@every_algorithm
def test_a_run_is_its_seed(name, settings):
    one, again, other = (run(make(name, settings, seed=seed), 5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@every_algorithm
def test_no_global_generator_is_drawn_from(name, settings):
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    run(make(name, settings), 3)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    np.testing.assert_equal(np.random.get_state(), states[2])  # noqa: NPY002


@every_algorithm
def test_tell_changes_neither_the_returns_nor_the_population(name, settings):
    algorithm = make(name, settings)
    for _ in range(3):
        population = algorithm.ask()
        members, returns = population.members(), sphere(population)
        returns[3] = math.nan
        before = returns.copy()
        algorithm.tell(population, returns)
        np.testing.assert_array_equal(returns, before)
        np.testing.assert_array_equal(population.members(), members)


@every_algorithm
def test_returns_may_be_a_list(name, settings):
    algorithm, other = make(name, settings), make(name, settings)
    population = algorithm.ask()
    returns = sphere(population).tolist()
    kept = list(returns)
    algorithm.tell(population, returns)
    other.tell(other.ask(), np.array(returns))
    assert returns == kept
    np.testing.assert_array_equal(algorithm.center, other.center)


@every_algorithm
def test_equal_returns_move_nothing(name, settings):
    algorithm = make(name, settings)
    run(algorithm, 3)
    center = algorithm.center.copy()
    for value in (-1e6, -1e6, -2e6):  # worse than anything seen: no best of all times either
        population = algorithm.ask()
        algorithm.tell(population, np.full(SIZE, value))
        np.testing.assert_array_equal(algorithm.center, center)
    assert algorithm.generation == 6


@every_algorithm
def test_an_extended_population_can_be_told(name, settings):
    algorithm = make(name, settings)
    for generation in range(3):
        population = algorithm.ask().extended(SIZE * (generation + 1))
        algorithm.tell(population, sphere(population))
    assert algorithm.generation == 3
    assert np.isfinite(algorithm.center).all()


def best_centers(name, settings, seed, evaluations):
    algorithm = make(name, {"population_size": 20, **settings}, seed=seed, num_params=10)
    start = -float(np.sum(algorithm.center**2))
    centers = run(algorithm, evaluations // 20)
    return start, -np.sum(centers**2, axis=1).min()


def test_every_algorithm_states_what_it_reaches():
    assert set(esbench.list_algorithms()) <= set(SPHERE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SPHERE)
def test_higher_is_better(name, seed):
    settings, evaluations, threshold = SPHERE[name]
    start, reached = best_centers(name, settings, seed, evaluations)
    assert start == -10.0
    assert reached > threshold


@pytest.mark.parametrize("name", sorted(set(SPHERE) - {"random_search"}))
def test_every_algorithm_beats_random_search(name):
    settings, evaluations, _ = SPHERE[name]
    for seed in range(3):
        _, reached = best_centers(name, settings, seed, evaluations)
        _, baseline = best_centers("random_search", {}, seed, evaluations)
        assert reached > baseline


class BrokenDescent(Algorithm):
    """A double that walks the wrong way, to show that the sphere can fail."""

    Settings = esbench.make_algorithm("openai_es", num_params=1).Settings

    @property
    def sigma(self):
        return 0.1

    def _ask(self):
        return make("openai_es", {"sigma": 0.1}, num_params=P, center_init=self._center).ask()

    def _tell(self, population, returns, behaviors):
        self._center = population.member(int(np.argmin(returns)))

    def _state_dict(self):
        return {}

    def _load_state_dict(self, state):
        pass


def test_a_search_that_descends_would_be_seen():
    algorithm = BrokenDescent(BrokenDescent.Settings(), np.ones(P), 0)
    centers = run(algorithm, 20)
    assert -np.sum(centers[-1] ** 2) < -P
