import math

import numpy as np
import pytest
from evotorch_oracle import SNES, Oracle
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import esbench
from esbench.algorithms.shaping import SHAPINGS
from esbench.algorithms.snes import utilities_of
from esbench.environments.functions import FUNCTIONS
from esbench.errors import UsageError

P, SIZE = 7, 20
START = np.linspace(0.5, -0.9, P)
TARGET = np.linspace(-0.5, 0.8, P)
SIGMA = np.linspace(0.1, 0.4, P)
RATE = (3 + math.log(P)) / (5 * math.sqrt(P))

few = hypothesis_settings(max_examples=15, deadline=None)


def quadratic(members):
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def make(sigma=None, **given):
    given = {"population_size": SIZE, "center_init": START, "num_params": P, "seed": 3, **given}
    if sigma is not None:
        given["sigma"] = np.asarray(sigma).tolist()
    return esbench.make_algorithm("snes", **given)


def deviations(algorithm):
    return algorithm.state_dict()["sigma"]


def signed_noise(population):
    rows = [population.noise.row(population.row(i)) for i in range(len(population))]
    return np.array([population.sign(i) * row for i, row in enumerate(rows)])


def climb(algorithm, function, updates):
    for _ in range(updates):
        population = algorithm.ask()
        algorithm.tell(population, function(population.members()))
    return algorithm.center


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
        climb(algorithm, quadratic, 1)
    np.testing.assert_allclose(deviations(twice) * 0.1, deviations(default) ** 2, rtol=1e-12)
    still = make(sigma_learning_rate=0.0)
    climb(still, quadratic, 5)
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
        climb(algorithm, quadratic, 1)
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
)  # ties and signs included, and exact in what is done to them


def told(returns, **given):
    algorithm = make(sigma=SIGMA, **given)
    algorithm.tell(algorithm.ask(), returns)
    return algorithm.center, deviations(algorithm)


@few
@given(returns_lists, st.sampled_from(["nes", "centered", "linear"]))
def test_only_ranks_matter(returns, shaping):
    returns = np.array(returns)
    expected = told(returns, shaping=shaping)
    for transform in (lambda r: r**3, lambda r: np.exp(r / 100), lambda r: 1e6 * r - 1e9):
        np.testing.assert_array_equal(told(transform(returns), shaping=shaping), expected)


@few
@given(returns_lists, st.sampled_from(sorted(SHAPINGS)), st.integers(-(10**6), 10**6))
def test_a_constant_added_to_all_returns_changes_nothing(returns, shaping, constant):
    returns = np.array(returns)
    expected = told(returns, shaping=shaping)
    reached = told(returns + constant, shaping=shaping)
    np.testing.assert_allclose(reached, expected, rtol=1e-9, atol=1e-9)


@few
@given(returns_lists, st.randoms(use_true_random=False))
def test_members_that_tie_are_interchangeable(returns, random):
    """Two members swap their returns, which are equal: so nothing may change, to the last bit."""
    returns = np.array(returns)
    utilities = utilities_of(returns, "nes")
    order = list(range(SIZE))
    random.shuffle(order)
    np.testing.assert_array_equal(utilities_of(returns[order], "nes"), utilities[order])


@few
@given(st.lists(st.integers(-8, 8), min_size=P, max_size=P), st.integers(0, 100))
def test_the_scale_of_a_coordinate_does_not_matter(exponents, seed):
    """Powers of two, so that both runs round alike."""
    scale = 2.0 ** np.array(exponents)
    plain = make(sigma=SIGMA, seed=seed)
    scaled = make(sigma=SIGMA * scale, center_init=START * scale, seed=seed)
    climb(plain, quadratic, 10)
    climb(scaled, lambda members: quadratic(members / scale), 10)
    np.testing.assert_array_equal(scaled.center, plain.center * scale)
    np.testing.assert_array_equal(deviations(scaled), deviations(plain) * scale)


@few
@given(st.lists(st.floats(-10, 10), min_size=P, max_size=P), st.integers(0, 100))
def test_the_origin_does_not_matter(offset, seed):
    offset = np.array(offset)
    plain, moved = make(seed=seed), make(center_init=START + offset, seed=seed)
    climb(plain, quadratic, 5)
    climb(moved, lambda members: quadratic(members - offset), 5)
    np.testing.assert_allclose(moved.center, plain.center + offset, atol=1e-9)
    np.testing.assert_allclose(deviations(moved), deviations(plain), rtol=1e-9)


def best(function, num_params, evaluations, seed, **given):
    algorithm = esbench.make_algorithm(
        "snes", num_params=num_params, seed=seed, center_init=1.0, **given
    )
    value = math.inf
    for _ in range(evaluations // algorithm.population_size):
        population = algorithm.ask()
        algorithm.tell(population, -function(population.members()))
        value = min(value, float(function(algorithm.center)))
    return value


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_minima(seed):
    assert best(FUNCTIONS["sphere"], 10, 2000, seed) < 1e-6
    # Condition 1e6 along the axes, which is what a deviation for each parameter is for.
    assert best(FUNCTIONS["ellipsoid"], 5, 2000, seed) < 1e-6


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_equal_returns_move_nothing_at_all(shaping):
    algorithm = make(sigma=SIGMA, shaping=shaping, weight_decay=0.1, optimizer="adam")
    algorithm.tell(algorithm.ask(), np.full(SIZE, -21.3))
    np.testing.assert_array_equal(algorithm.center, START)
    np.testing.assert_array_equal(deviations(algorithm), SIGMA)
    assert algorithm.state_dict()["optimizer"] == {}
    assert algorithm.generation == 1


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_a_failed_member_counts_as_the_worst(shaping):
    returns = np.arange(float(SIZE))
    as_worst = {"raw": returns[0], "normalized": returns[0]}.get(shaping, -1e9)
    failed, worst = returns.copy(), returns.copy()
    failed[4], worst[4] = math.nan, as_worst
    np.testing.assert_array_equal(told(failed, shaping=shaping), told(worst, shaping=shaping))


def test_the_smallest_cases():
    pair = make(population_size=2)
    climb(pair, quadratic, 20)
    assert np.isfinite(pair.center).all()
    assert not np.array_equal(pair.center, START)

    one = make(population_size=1)  # nobody to be better than
    climb(one, quadratic, 3)
    np.testing.assert_array_equal(one.center, START)

    assert best(FUNCTIONS["sphere"], 1, 400, 0, sigma=1.0) < 1e-6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sigma": 0.0}, "sigma = 0"),
        ({"sigma": [0.1, 0.2]}, "sigma has 2 numbers: expected one, or 7"),
        ({"sigma": 0.1, "radius": 1.0}, "expected exactly one of them"),
        ({"sigma_learning_rate": -0.1}, "sigma_learning_rate = -0.1"),
        ({"sigma_min": 2.0, "sigma_max": 1.0}, "sigma_min = 2"),
        ({"population_size": 7, "antithetic": True}, "population_size = 7: expected an even"),
        ({"shaping": "ness"}, "did you mean 'nes'"),
        ({"scale_learning_rate": True}, "unknown key scale_learning_rate"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        make(**given)
