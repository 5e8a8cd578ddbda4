"""Settings that several algorithms share: defaults, sizes, the first deviation, weight decay."""

from typing import Any

import numpy as np
import pytest
from searches import START, P, climb, maker, quadratic, tell

import esbench
from esbench.algorithms.base import ALGORITHMS
from esbench.algorithms.search_settings import AlgorithmSettings
from esbench.core.errors import UsageError

DEVIATING = [
    name for name in ALGORITHMS.builtin_names()
    if issubclass(ALGORITHMS.get(name).Settings, AlgorithmSettings)
]  # fmt: skip
ONE_NUMBER = {"cma_es", "csa_es", "sep_cma_es", "eggroll"}  # their sigma cannot be a list

# Those of the papers, or of the package or library that the file names.
DEFAULTS: dict[str, dict[str, Any]] = {
    "openai_es": {
        "sigma": 0.02, "learning_rate": 0.01, "weight_decay": 0.005, "optimizer": "adam",
        "antithetic": True,
    },
    "nsra_es": {
        "meta_population_size": 5, "archive_size_max": 1000, "weight_patience": 50,
        "weight_decay": 0.005,
    },
    "ars": {
        "population_size": 64, "num_best": None, "version": "V2-t", "sigma": 0.03,
        "learning_rate": 0.02, "reward_shift": 0.0,
    },
    "pgpe": {
        "learning_rate": 0.05, "optimizer": "clipup", "optimizer_settings": {}, "sigma": 0.1,
        "sigma_learning_rate": 0.1, "sigma_max_change": 0.2, "shaping": "centered",
        "antithetic": True, "weight_decay": 0.0,
    },
    "pepg": {
        "sigma": 2.0, "learning_rate": 0.3, "sigma_learning_rate": 0.2, "weight_decay": 0.0,
        "optimizer": "adam", "shaping": "centered", "sigma_max_change": None, "sigma_min": None,
        "sigma_max": None,
    },
    "snes": {"learning_rate": 1.0, "sigma": 0.1, "antithetic": False},
    "xnes": {"learning_rate": 1.0, "sigma": 0.1, "antithetic": False},
    "cem": {"sigma": 0.5, "elite_ratio": 0.25, "extra_sigma_ratio": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_papers(name):
    given = esbench.make_algorithm(name, num_params=P).settings.model_dump()
    assert {key: given[key] for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("name", ["snes", "xnes", "cma_es", "sep_cma_es"])
def test_the_default_population_is_that_of_cma_es(name):
    sizes = {2: 6, 10: 10, 100: 17}
    for num_params, size in sizes.items():
        algorithm = esbench.make_algorithm(name, num_params=num_params)
        assert algorithm.population_size == size
    assert len(algorithm.ask()) == size


@pytest.mark.parametrize("name", DEVIATING)
def test_a_radius_is_the_expected_distance_of_a_member(name):
    assert maker(name)(radius=2.0).sigma == pytest.approx(2.0 / np.sqrt(P))
    if name not in ONE_NUMBER:
        sigma = np.linspace(0.1, 0.7, P)
        assert maker(name)(sigma=sigma).sigma == pytest.approx(np.sqrt(np.mean(sigma**2)))


@pytest.mark.parametrize("name", ["snes", "xnes", "pgpe"])
def test_weight_decay_shrinks_the_center(name):
    make = maker(name, optimizer="sgd", learning_rate=0.5)
    plain, decayed = make(), make(weight_decay=0.04)
    for algorithm in (plain, decayed):
        climb(algorithm, 1)
    np.testing.assert_allclose(decayed.center, plain.center - 0.5 * 0.04 * START, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "state"), [("pgpe", "sigma"), ("snes", "sigma"), ("xnes", "factor")]
)
def test_a_rate_of_0_keeps_the_deviations(name, state):
    algorithm = maker(name)(sigma_learning_rate=0.0)
    before = algorithm.state_dict()[state]
    climb(algorithm, 5)
    np.testing.assert_array_equal(algorithm.state_dict()[state], before)


@pytest.mark.parametrize("name", ALGORITHMS.builtin_names())
def test_an_average_of_centers_changes_no_center(name):
    plain, averaged = maker(name)(), maker(name)(center_average=4)
    centers = climb(plain, 6)
    np.testing.assert_array_equal(climb(averaged, 6), centers)
    np.testing.assert_array_equal(plain.averaged_center, plain.center)
    # Rates 1, 1/2, 2/5, 2/5, 2/5, 2/5 (a span of 4 has 2/5).
    weights = np.array([0.5 * 0.6**4, 0.5 * 0.6**4, *(0.4 * 0.6 ** np.arange(3, -1, -1))])
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(averaged.averaged_center, weights @ centers, rtol=1e-12)


def test_an_average_is_restored():
    algorithm, other = maker("csa_es")(center_average=3), maker("csa_es")(center_average=3)
    climb(algorithm, 4)
    other.load_state_dict(algorithm.state_dict())
    climb(algorithm, 2)
    climb(other, 2)
    np.testing.assert_array_equal(other.averaged_center, algorithm.averaged_center)
    state = algorithm.state_dict()
    del state["average"]
    with pytest.raises(UsageError):
        other.load_state_dict(state)
    np.testing.assert_array_equal(other.averaged_center, algorithm.averaged_center)


def test_the_default_average_is_no_part_of_a_specification():
    settings = maker("csa_es")().settings
    assert "center_average" not in settings.model_dump(mode="json")
    assert maker("csa_es")(center_average=2).settings.model_dump()["center_average"] == 2


DECAYING = [
    name for name in esbench.list_algorithms()
    if "sigma_decay" in ALGORITHMS.get(name).Settings.model_fields
]  # fmt: skip
LOW, HIGH = np.linspace(0.05, 0.18, P), np.linspace(0.21, 0.3, P)


def make(name: str, **settings: Any) -> Any:
    return maker(name, population_size=8)(**settings)


def step(algorithm: Any) -> None:
    population = algorithm.ask()
    tell(algorithm, population, quadratic(population.members()))


@pytest.mark.parametrize("name", DECAYING)
def test_a_generation_is_that_of_a_search_with_this_sigma(name: str) -> None:
    decaying = make(name, sigma=0.5, sigma_decay=0.5, sigma_min=0.1)
    seen = []
    while decaying.generation < 5:
        now = max(0.5 * 0.5**decaying.generation, 0.1)
        constant = make(name, sigma=now)
        constant.load_state_dict(decaying.state_dict())
        assert decaying.sigma == pytest.approx(now, rel=1e-12)
        ours, theirs = decaying.ask(), constant.ask()
        every = range(len(ours))
        np.testing.assert_array_equal(ours.members(every), theirs.members(every))
        step(decaying)
        step(constant)
        np.testing.assert_array_equal(decaying.center, constant.center)
        seen.append(now)
    assert sorted(set(seen)) == [0.1, 0.125, 0.25, 0.5]


@pytest.mark.parametrize("name", ["pgpe", "pepg", "snes", "cem"])
def test_every_deviation_stays_within_its_own_bounds(name: str) -> None:
    faster = {} if name == "cem" else {"sigma_learning_rate": 5.0}
    make = maker(name, sigma=0.2, **faster)
    searches = [
        make(sigma_min=LOW.tolist(), sigma_max=HIGH.tolist()),
        make(sigma_min=[0.15] * P, sigma_max=[0.25] * P),
        make(sigma_min=0.15, sigma_max=0.25),
    ]
    for algorithm in searches:
        climb(algorithm, 30)
    own, equal, one = (algorithm.state_dict()["sigma"] for algorithm in searches)
    assert ((own >= LOW) & (own <= HIGH)).all()
    assert ((own == LOW) | (own == HIGH)).any()
    np.testing.assert_array_equal(equal, one)
    capped = make(sigma_max=LOW.tolist())
    climb(capped, 1)
    assert (capped.state_dict()["sigma"] <= LOW).all()


@pytest.mark.parametrize("name", ["openai_es", "ars", "ns_es"])
def test_a_decay_stops_at_each_parameters_own_minimum(name: str) -> None:
    algorithm = maker(name, sigma=0.4)(sigma_decay=0.5, sigma_min=LOW.tolist())
    climb(algorithm, 2)
    expected = np.sqrt(np.mean(np.maximum(0.1, LOW) ** 2))
    assert algorithm.sigma == pytest.approx(expected, rel=1e-12)
    assert algorithm.ask().members().shape[1] == P
