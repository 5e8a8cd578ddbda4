"""What every registered algorithm promises; a new file under esbench/algorithms joins by itself.

The tests that the adapters of other libraries must pass too are in algorithm_contract.py.
"""

import pickle
import re

import numpy as np
import pytest
from algorithm_contract import SIZE, START, AlgorithmContract, P, ask, run, sphere
from searches import climb, tell

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.algorithms.search_settings import DeviationSettings
from esbench.core.errors import UsageError

BUILTIN = [
    name for name in esbench.list_algorithms()
    if ALGORITHMS.get(name).__module__.startswith("esbench.algorithms.")
]  # fmt: skip

GENETIC = {"num_parents": 5, "elite_candidates": 2, "elite_episodes": 0}

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


every_algorithm = pytest.mark.parametrize(("name", "settings"), CASES)


def make(name, settings, *, seed=0, num_params=P, center_init=1.0):
    settings = {"population_size": SIZE, **settings}
    return esbench.make_algorithm(
        name, num_params=num_params, seed=seed, center_init=center_init, **settings
    )


@every_algorithm
class TestContract(AlgorithmContract):
    @pytest.fixture
    def make(self, name, settings):
        return lambda **given: make(name, settings, **{"center_init": START, **given})


@every_algorithm
def test_an_extended_population_can_be_told(name, settings):
    algorithm = make(name, settings)
    if not isinstance(algorithm.settings, DeviationSettings):
        return  # its population is fixed, so it has no settings to make it grow
    for generation in range(3):
        population = ask(algorithm)
        longer = population.extended(SIZE * (generation + 1))
        np.testing.assert_array_equal(longer.members(range(SIZE)), population.members())
        tell(algorithm, longer, sphere(longer.members()))
    assert algorithm.generation == 3
    assert np.isfinite(algorithm.center).all()


@every_algorithm
def test_any_members_are_rebuilt_elsewhere_with_the_same_bits(name, settings):
    algorithm = make(name, settings)
    run(algorithm, 4)
    population = ask(algorithm)
    everyone = population.members()
    traveled = pickle.loads(pickle.dumps(population))  # noqa: S301
    for chosen in ([3], [7, 2], range(SIZE - 1, -1, -1)):
        np.testing.assert_array_equal(traveled.members(chosen), everyone[list(chosen)])
    assert {population.row(member) for member in range(SIZE)} <= set(range(SIZE))


@every_algorithm
def test_a_constant_on_all_returns_changes_nothing(name, settings):
    def rounded(members):  # to binary fractions, so that the sums below are exact
        return np.round(sphere(members) * 2**20) / 2**20

    plain = climb(make(name, settings), 8, rounded)
    shifted = climb(make(name, settings), 8, lambda members: rounded(members) + 4096)
    np.testing.assert_allclose(shifted, plain, rtol=1e-10, atol=1e-12)


@every_algorithm
@pytest.mark.parametrize("size", [2, 4])
def test_the_smallest_populations_work_or_are_refused(name, settings, size):
    refusal = ""
    try:
        assert np.isfinite(run(make(name, settings | {"population_size": size}), 5)).all()
    except UsageError as error:
        refusal = str(error)
    assert not refusal or re.search("population_size|num_parents|elite_ratio|num_best", refusal)


@every_algorithm
def test_a_single_parameter_works_or_is_refused(name, settings):
    if name == "sep_cma_es":  # the library asks for two
        with pytest.raises(UsageError, match="at least 2"):
            make(name, settings, num_params=1)
        return
    assert np.isfinite(run(make(name, settings, num_params=1), 5)).all()


def test_the_return_of_a_single_member_is_told(monkeypatch):
    told = []
    algorithm = make("openai_es", {"population_size": 1, "antithetic": False, "min_episodes": 1})

    def keep(self, members, returns, behaviors):
        told.append(returns)

    monkeypatch.setattr(type(algorithm), "_tell", keep)
    for value in (1.0, 2.0):
        algorithm.tell(algorithm.ask(), np.array([value]))
    assert [float(returns[0]) for returns in told] == [1.0, 2.0]
