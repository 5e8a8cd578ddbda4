import math

import numpy as np
import pytest
from evotorch_oracle import SNES, Oracle
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from searches import SIZE, START, TARGET, P, best, climb, deviations, maker, quadratic, signed_noise

import esbench
from esbench.algorithms.shaping import SHAPINGS
from esbench.algorithms.snes import utilities_of
from esbench.environments.functions import FUNCTIONS

SIGMA = np.linspace(0.1, 0.4, P)
RATE = (3 + math.log(P)) / (5 * math.sqrt(P))

make = maker("snes")


# What evotorch has too. Its linear and raw utilities have a sum other than 0, ours do not.
SAME = [
    ({}, {}),
    ({"sigma_learning_rate": 0.1}, {"stdev_learning_rate": 0.1}),
    ({"learning_rate": 0.5}, {"center_learning_rate": 0.5}),
    ({"shaping": "centered"}, {"ranking_method": "centered"}),
    ({"shaping": "normalized"}, {"ranking_method": "normalized"}),
    ({"sigma_min": 0.05, "sigma_max": 0.3}, {"stdev_min": 0.05, "stdev_max": 0.3}),
    ({"sigma_max_change": 0.02}, {"stdev_max_change": 0.02}),
    (
        {"optimizer": "clipup", "learning_rate": 0.1},
        {"optimizer": "clipup", "center_learning_rate": 0.1},
    ),
    (
        {"optimizer": "adam", "learning_rate": 0.1},
        {"optimizer": "adam", "center_learning_rate": 0.1},
    ),
    (
        {"optimizer_settings": {"momentum": 0.5}},
        {
            "optimizer": "sgd",
            "center_learning_rate": 1.0,
            "optimizer_config": {"momentum": 0.5},
        },
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME)
def test_it_is_evotorchs(ours, theirs):
    rate = {"scale_learning_rate": False} if "stdev_learning_rate" in theirs else {}
    oracle = Oracle(SNES, START, SIGMA, size=SIZE, **theirs, **rate)
    algorithm = make(sigma=SIGMA, **ours)
    assert oracle.follow(algorithm, quadratic, 1) < 1e-13
    assert oracle.follow(algorithm, quadratic, 99) < 1e-7
    assert np.abs(algorithm.center - START).max() > 0.01
    assert np.abs(deviations(algorithm) / SIGMA - 1).max() > 0.01


def test_a_population_that_has_grown_is_evotorchs():
    oracle = Oracle(SNES, START, 0.2, size=SIZE)
    assert oracle.follow(make(sigma=0.2), quadratic, 30, growth=3) < 1e-7


@pytest.mark.parametrize("antithetic", [True, False])
def test_it_is_the_papers(antithetic):
    """Wierstra et al. 2014, algorithm 6, with the utilities of section 3.1."""
    algorithm = make(sigma=SIGMA, antithetic=antithetic)
    mu, sigma = START, SIGMA
    u = np.maximum(0, math.log(SIZE / 2 + 1) - np.log(np.arange(1, SIZE + 1)))
    u = u / u.sum() - 1 / SIZE
    for _ in range(100):
        population = algorithm.ask()
        s = signed_noise(population)
        returns = quadratic(mu + sigma * s)
        algorithm.tell(population, returns)
        s = s[np.argsort(-returns)]
        mu = mu + sigma * (u @ s)
        sigma = sigma * np.exp(RATE / 2 * (u @ (s**2 - 1)))
        np.testing.assert_allclose(algorithm.center, mu, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(deviations(algorithm), sigma, rtol=1e-9)
    np.testing.assert_allclose(mu, TARGET, atol=1e-3)


def test_defaults_are_the_papers():
    algorithm = esbench.make_algorithm("snes", num_params=1000)
    assert len(algorithm.ask()) == algorithm.population_size == 4 + 20
    assert esbench.make_algorithm("snes", num_params=2000).population_size == 4 + 22
    assert esbench.make_algorithm("snes", num_params=1).population_size == 4
    pairs = esbench.make_algorithm("snes", num_params=P, antithetic=True)
    assert pairs.population_size == 10  # and not 4 + 5
    assert not algorithm.settings.antithetic
    assert algorithm.sigma == pytest.approx(0.1, rel=1e-12)


def test_the_radius_is_the_distance_of_a_member():
    np.testing.assert_allclose(deviations(make(radius=2.0)), 2.0 / math.sqrt(P))


def test_the_given_rate_of_the_deviation_is_the_rate():
    """It replaces the default, where evotorch multiplies the default by it."""
    twice = make(sigma_learning_rate=2 * RATE)
    default = make()
    for algorithm in (twice, default):
        climb(algorithm, 1)
    np.testing.assert_allclose(deviations(twice) * 0.1, deviations(default) ** 2, rtol=1e-12)
    still = make(sigma_learning_rate=0.0)
    climb(still, 5)
    np.testing.assert_array_equal(deviations(still), 0.1)


def test_the_rate_of_the_deviation_decays():
    algorithm, decayed = make(), make(sigma_learning_rate=RATE, sigma_learning_rate_decay=0.5)
    for generation in range(3):
        population, before = decayed.ask(), deviations(decayed)
        algorithm.load_state_dict({**decayed.state_dict()})
        returns = quadratic(population.members())
        algorithm.tell(population, returns)
        decayed.tell(population, returns)
        steps = [np.log(deviations(a) / before) for a in (decayed, algorithm)]
        np.testing.assert_allclose(steps[0], 0.5**generation * steps[1], rtol=1e-9)


def test_weight_decay_shrinks_the_centre():
    plain, decayed = make(), make(weight_decay=0.25)
    for algorithm in (plain, decayed):
        climb(algorithm, 1)
    np.testing.assert_allclose(decayed.center, plain.center - 0.25 * START, rtol=1e-12)


@pytest.mark.parametrize("shaping", sorted(set(SHAPINGS) - {"nes"}))
def test_utilities_sum_to_0_and_their_magnitudes_to_1(shaping):
    returns = np.random.default_rng(0).standard_normal(SIZE) + 100.0
    utilities = utilities_of(returns, shaping)
    assert utilities.sum() == pytest.approx(0.0, abs=1e-12)
    assert np.abs(utilities).sum() == pytest.approx(1.0)
    assert np.argmax(utilities) == np.argmax(returns)


def test_utilities_of_known_returns():
    np.testing.assert_allclose(utilities_of(np.array([1.0, 4.0, 1.0]), "raw"), [-0.25, 0.5, -0.25])
    np.testing.assert_allclose(utilities_of(np.array([0.0, 2.0]), "linear"), [-0.5, 0.5])
    np.testing.assert_array_equal(
        utilities_of(np.array([1.0, 2.0, 3.0, 9.0]), "nes"), SHAPINGS["nes"](np.arange(4.0))
    )
    nan = np.array([5.0, math.nan])
    np.testing.assert_array_equal(utilities_of(nan, "raw"), 0.0)  # the worst finite one, both
    np.testing.assert_allclose(utilities_of(nan, "centered"), [0.5, -0.5])


returns_lists = st.lists(
    st.integers(-1000, 1000).map(float), min_size=SIZE, max_size=SIZE
)  # with ties; integers, so that sums are exact


@hypothesis_settings(max_examples=15, deadline=None)
@given(returns_lists, st.randoms(use_true_random=False))
def test_members_that_tie_are_interchangeable(returns, random):
    """Two members swap their returns, which are equal: so nothing may change, to the last bit."""
    returns = np.array(returns)
    utilities = utilities_of(returns, "nes")
    order = list(range(SIZE))
    random.shuffle(order)
    np.testing.assert_array_equal(utilities_of(returns[order], "nes"), utilities[order])


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_minima(seed):
    assert best("snes", FUNCTIONS["sphere"], 10, 2000, seed) < 1e-6
    # Condition 1e6 along the axes, which is what a deviation for each parameter is for.
    assert best("snes", FUNCTIONS["ellipsoid"], 5, 2000, seed) < 1e-6


def test_the_smallest_cases():
    pair = make(population_size=2)
    climb(pair, 20)
    assert np.isfinite(pair.center).all()
    assert not np.array_equal(pair.center, START)

    one = make(population_size=1)
    climb(one, 3)
    np.testing.assert_array_equal(one.center, START)

    assert best("snes", FUNCTIONS["sphere"], 1, 400, 0, sigma=1.0) < 1e-6
