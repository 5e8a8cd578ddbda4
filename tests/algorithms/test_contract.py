"""What every registered algorithm promises; a new file under esbench/algorithms joins by itself."""

import copy
import math
import pickle
import random
import re

import numpy as np
import pytest
import torch

import esbench
from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.algorithms.settings import GrowingSettings
from esbench.errors import TrainingError, UsageError

P = 6
SIZE = 12  # members a generation

# The adapters to other libraries have tests of their own, below tests/integrations.
BUILTIN = [
    name for name in esbench.list_algorithms()
    if ALGORITHMS.get(name).__module__.startswith("esbench.algorithms.")
]  # fmt: skip

GENETIC = {"num_parents": 5, "elite_candidates": 2, "elite_episodes": 0}
NOVELTY = {
    "sigma": 0.1,
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "meta_population_size": 2,
    "center_spread": 1.0,
}

CASES = [pytest.param(name, {}, id=name) for name in BUILTIN] + [
    pytest.param("openai_es", {"optimizer": "clipup"}, id="openai_es-clipup"),
    pytest.param(
        "openai_es",
        {"optimizer": "sgd", "optimizer_settings": {"momentum": 0.9}, "antithetic": False},
        id="openai_es-momentum",
    ),
    pytest.param("random_search", {"distribution": "uniform"}, id="random_search-uniform"),
    pytest.param("pgpe", {"antithetic": False}, id="pgpe-plain"),
    pytest.param("ars", {"num_best": 4}, id="ars-truncated"),
    pytest.param("genetic", GENETIC, id="genetic-without-probes"),
    pytest.param("nsr_es", {"meta_population_size": 1}, id="nsr_es-single"),
]

# Settings, evaluations and the value that the best-so-far centre reaches on -|x|^2 from x = 1 in 10
# dimensions (-10), for each of three seeds.
SPHERE = {
    "openai_es": ({"sigma": 0.1, "learning_rate": 0.1, "weight_decay": 0.0}, 2000, -0.05),
    "random_search": ({"sigma": 1.0}, 2000, -6.0),
    "ars": ({"num_best": 4}, 2000, -0.005),
    "pgpe": ({"sigma": 0.2, "learning_rate": 0.05}, 2000, -0.05),
    "pepg": ({"sigma": 0.3, "learning_rate": 0.1}, 2000, -0.01),
    "snes": ({"sigma": 0.5}, 2000, -1e-4),
    "xnes": ({"sigma": 0.5}, 2000, -0.02),
    "cem": ({"sigma": 0.5}, 2000, -1e-4),
    "cma_es": ({"sigma": 0.5}, 2000, -1e-4),
    "sep_cma_es": ({"sigma": 0.5}, 2000, -1e-4),
    "eggroll": ({"sigma": 0.1, "learning_rate": 0.1, "weight_decay": 0.0}, 2000, -0.05),
    "genetic": (GENETIC | {"sigma": 0.1, "sigma_init": 0.5}, 2000, -0.1),
    "nsr_es": (NOVELTY, 2000, -3.0),
    "nsra_es": (NOVELTY, 2000, -0.1),
}
IGNORES_RETURNS = {"ns_es"}  # a maze shows what it is for: test_novelty_maze.py

every_algorithm = pytest.mark.parametrize(("name", "settings"), CASES)


def make(name, settings, *, seed=0, num_params=P, center_init=1.0):
    settings = {"population_size": SIZE, **settings}
    return esbench.make_algorithm(
        name, num_params=num_params, seed=seed, center_init=center_init, **settings
    )


def sphere(population):
    return -np.sum(population.members() ** 2, axis=1)


def behaviors(population):
    """Return what novelty search compares members by: here, where they are."""
    return population.members()[:, :2]


def answer(algorithm):
    """Answer what the algorithm asks between generations; return the generation's population."""
    while (population := algorithm.ask()).probe:
        algorithm.tell(population, sphere(population), behaviors(population))
    return population


def tell(algorithm, population, returns):
    algorithm.tell(population, returns, behaviors(population))


def run(algorithm, generations, objective=sphere):
    """Return the centres [generations, P] of a run, on the sphere by default."""
    centers = []
    for _ in range(generations):
        population = answer(algorithm)
        tell(algorithm, population, objective(population))
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
        first, second = answer(algorithm), algorithm.ask()
        assert len(first) == len(second) == SIZE
        assert first.members().shape == (SIZE, P)
        np.testing.assert_array_equal(first.members(), second.members())
        tell(algorithm, first, sphere(first))
        assert not np.array_equal(answer(algorithm).members(), first.members())


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
    population, before = answer(algorithm), copy.deepcopy(algorithm.state_dict())
    with pytest.raises(ValueError, match=rf"expected \({SIZE},\)"):
        tell(algorithm, population, np.zeros(shape))
    assert_same(algorithm.state_dict(), before)


@every_algorithm
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_generation_without_any_finite_return_is_an_error(name, settings, value):
    algorithm = make(name, settings)
    run(algorithm, 2)
    population, before = answer(algorithm), copy.deepcopy(algorithm.state_dict())
    with pytest.raises(TrainingError, match=f"generation 2: none of the {SIZE} returns is finite"):
        tell(algorithm, population, np.full(SIZE, value))
    assert_same(algorithm.state_dict(), before)


@every_algorithm
def test_some_returns_may_fail(name, settings):
    algorithm = make(name, settings)
    failures = np.random.default_rng(0)
    for _ in range(10):
        population = answer(algorithm)
        returns = sphere(population)
        failed = failures.permutation(SIZE)[: failures.integers(1, SIZE)]
        returns[failed] = failures.choice([math.nan, math.inf, -math.inf], len(failed))
        tell(algorithm, population, returns)
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
        population = answer(algorithm)
        members, returns = population.members(), sphere(population)
        returns[3] = math.nan
        before = returns.copy()
        tell(algorithm, population, returns)
        np.testing.assert_array_equal(returns, before)
        np.testing.assert_array_equal(population.members(), members)


@every_algorithm
def test_returns_may_be_a_list(name, settings):
    algorithm, other = make(name, settings), make(name, settings)
    population = answer(algorithm)
    returns = sphere(population).tolist()
    kept = list(returns)
    tell(algorithm, population, returns)
    tell(other, answer(other), np.array(returns))
    assert returns == kept
    np.testing.assert_array_equal(algorithm.center, other.center)


@every_algorithm
def test_equal_returns_move_nothing(name, settings):
    algorithm = make(name, settings)
    run(algorithm, 3)
    answer(algorithm)
    center = algorithm.center.copy()
    for value in (-1e6, -1e6, -2e6):  # worse than anything seen: no best of all times either
        while (population := algorithm.ask()).probe:
            algorithm.tell(
                population, np.full(len(population), value), np.zeros((len(population), 2))
            )
        algorithm.tell(population, np.full(SIZE, value), np.zeros((SIZE, 2)))
        np.testing.assert_array_equal(algorithm.center, center)
    assert algorithm.generation == 6


@every_algorithm
def test_an_extended_population_can_be_told(name, settings):
    algorithm = make(name, settings)
    if not isinstance(algorithm.settings, GrowingSettings):
        return  # its population is fixed, so it has no settings to make it grow
    for generation in range(3):
        population = answer(algorithm)
        longer = population.extended(SIZE * (generation + 1))
        np.testing.assert_array_equal(longer.members(range(SIZE)), population.members())
        tell(algorithm, longer, sphere(longer))
    assert algorithm.generation == 3
    assert np.isfinite(algorithm.center).all()


@every_algorithm
def test_any_members_are_rebuilt_elsewhere_with_the_same_bits(name, settings):
    algorithm = make(name, settings)
    run(algorithm, 4)
    population = answer(algorithm)
    everyone = population.members()
    travelled = pickle.loads(pickle.dumps(population))  # noqa: S301
    for chosen in ([3], [7, 2], range(SIZE - 1, -1, -1)):
        np.testing.assert_array_equal(travelled.members(chosen), everyone[list(chosen)])
    assert {population.row(member) for member in range(SIZE)} <= set(range(SIZE))


@every_algorithm
def test_a_constant_on_all_returns_changes_nothing(name, settings):
    def rounded(population):  # to binary fractions, so that the sums below are exact
        return np.round(sphere(population) * 2**20) / 2**20

    plain = run(make(name, settings), 8, rounded)
    shifted = run(make(name, settings), 8, lambda population: rounded(population) + 4096)
    np.testing.assert_allclose(shifted, plain, rtol=1e-10, atol=1e-12)


@every_algorithm
@pytest.mark.parametrize("size", [2, 4])
def test_the_smallest_populations_work_or_are_refused_in_a_sentence(name, settings, size):
    try:
        algorithm = make(name, settings | {"population_size": size})
    except UsageError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert np.isfinite(run(algorithm, 5)).all()
    assert not refusal or re.search("population_size|num_parents|elite_ratio|num_best", refusal)


@every_algorithm
def test_a_single_parameter_works_or_is_refused_in_a_sentence(name, settings):
    if name == "sep_cma_es":  # the library asks for two
        with pytest.raises(UsageError, match="at least 2"):
            make(name, settings, num_params=1)
        return
    algorithm = make(name, settings, num_params=1)
    for _ in range(5):
        while (population := algorithm.ask()).probe:
            algorithm.tell(population, sphere(population), population.members())
        algorithm.tell(population, sphere(population), population.members())
    assert np.isfinite(algorithm.center).all()


def best_centers(name, settings, seed, evaluations):
    algorithm = make(name, {"population_size": 20, **settings}, seed=seed, num_params=10)
    start = -float(np.sum(algorithm.center**2))
    centers = run(algorithm, evaluations // 20)
    return start, -np.sum(centers**2, axis=1).min()


def test_every_algorithm_states_what_it_reaches():
    assert set(BUILTIN) == set(SPHERE) | IGNORES_RETURNS


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
