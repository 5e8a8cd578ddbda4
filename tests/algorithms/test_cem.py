import math

import numpy as np
import pytest
from evotorch_oracle import CEM, Oracle
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import esbench
from esbench.algorithms.cem import elite_weights, fit
from esbench.algorithms.noise import GaussianNoise
from esbench.algorithms.population import SampledPopulation
from esbench.environments.functions import FUNCTIONS
from esbench.errors import UsageError

P, SIZE = 7, 20
START = np.linspace(0.5, -0.9, P)
TARGET = np.linspace(-0.5, 0.8, P)
SIGMA = np.linspace(0.5, 2.0, P)

few = hypothesis_settings(max_examples=25, deadline=None)


def quadratic(members):
    return -np.sum((members - TARGET) ** 2 * np.arange(1, P + 1), axis=1)


def make(sigma=None, **given):
    given = {"population_size": SIZE, "center_init": START, "num_params": P, "seed": 3, **given}
    if sigma is not None:
        given["sigma"] = np.asarray(sigma).tolist()
    return esbench.make_algorithm("cem", **given)


def deviations(algorithm):
    return algorithm.state_dict()["sigma"]


def climb(algorithm, function, updates):
    for _ in range(updates):
        population = algorithm.ask()
        algorithm.tell(population, function(population.members()))
    return algorithm.center


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        # With few elites the deviations would collapse within 30 updates, until members tie.
        ({"elite_ratio": 0.1, "sigma_min": 1e-3}, {"parenthood_ratio": 0.1, "stdev_min": 1e-3}),
        ({"elite_ratio": 0.5, "sigma_min": 1e-3}, {"parenthood_ratio": 0.5, "stdev_min": 1e-3}),
        ({"elite_ratio": 0.99}, {"parenthood_ratio": 0.99}),
        ({"sigma_min": 0.2, "sigma_max": 0.7}, {"stdev_min": 0.2, "stdev_max": 0.7}),
        ({"sigma_max_change": 0.1}, {"stdev_max_change": 0.1}),
    ],
)
def test_it_is_evotorchs(ours, theirs):
    """Without extra variance, which evotorch does not have."""
    oracle = Oracle(CEM, START, SIGMA, size=SIZE, **{"parenthood_ratio": 0.25, **theirs})
    algorithm = make(SIGMA, extra_sigma_ratio=0.0, **ours)
    assert oracle.follow(algorithm, quadratic, 1) < 1e-13
    assert oracle.follow(algorithm, quadratic, 99) < 1e-6
    assert np.abs(algorithm.center - START).max() > 0.1


def test_a_population_that_has_grown_is_evotorchs():
    oracle = Oracle(CEM, START, 1.0, size=SIZE, parenthood_ratio=0.25)
    algorithm = make(1.0, extra_sigma_ratio=0.0)
    assert oracle.follow(algorithm, quadratic, 10, growth=3) < 1e-9


def test_it_is_the_papers():
    """Szita & Lorincz 2006 with sigma_0^2 = 100 and Z_t = max(5 - t/10, 0), but for ddof = 1."""
    algorithm = make(10.0, extra_sigma_ratio=math.sqrt(5) / 10, extra_sigma_generations=50)
    mu, variance = START, np.full(P, 100.0)
    for t in range(60):
        population = algorithm.ask()
        noise = np.array([population.noise.row(i) for i in range(SIZE)])
        samples = mu + np.sqrt(variance) * noise
        returns = quadratic(samples)
        algorithm.tell(population, returns)
        elite = samples[np.argsort(returns)[-SIZE // 4 :]]
        mu = elite.mean(axis=0)
        variance = elite.var(axis=0, ddof=1) + max(5 - (t + 1) / 10, 0)
        np.testing.assert_allclose(algorithm.center, mu, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(deviations(algorithm), np.sqrt(variance), rtol=1e-7)


def test_the_extra_variance_is_in_units_of_each_deviation_and_ends():
    given = {"extra_sigma_ratio": 0.5, "extra_sigma_generations": 4}
    noisy, plain = make(SIGMA, **given), make(SIGMA, extra_sigma_ratio=0.0)
    for left in (0.75, 0.5, 0.25, 0.0, 0.0):
        plain.load_state_dict(noisy.state_dict())
        for algorithm in (noisy, plain):
            climb(algorithm, quadratic, 1)
        np.testing.assert_array_equal(noisy.center, plain.center)
        extra = deviations(noisy) ** 2 - deviations(plain) ** 2
        np.testing.assert_allclose(extra, left * (0.5 * SIGMA) ** 2, rtol=1e-9, atol=1e-12)


def test_the_extra_variance_keeps_within_the_bounds():
    algorithm = make(1.0, extra_sigma_ratio=3.0, sigma_max=1.2)
    climb(algorithm, quadratic, 3)
    np.testing.assert_array_equal(deviations(algorithm), 1.2)


def test_the_elites_are_the_best():
    np.testing.assert_array_equal(elite_weights(np.array([3.0, 1.0, 4.0, 2.0]), 2), [1, 0, 1, 0])
    np.testing.assert_array_equal(elite_weights(np.array([3.0, 1.0, 4.0, 2.0]), 3), [1, 0, 1, 1])


def test_ties_share_the_last_places():
    returns = np.array([2.0, 5.0, 2.0, 1.0, 2.0])
    np.testing.assert_allclose(elite_weights(returns, 3), [2 / 3, 1, 2 / 3, 0, 2 / 3])
    np.testing.assert_array_equal(elite_weights(returns, 4), [1, 1, 1, 0, 1])
    np.testing.assert_array_equal(elite_weights(np.array([7.0, 7.0, 0.0]), 2), [1, 1, 0])


def test_a_return_that_is_not_finite_is_the_worst():
    returns = np.array([-1e300, math.nan, math.inf, 0.0, -math.inf])
    np.testing.assert_array_equal(elite_weights(returns, 2), [1, 0, 0, 1, 0])
    np.testing.assert_allclose(elite_weights(returns, 3), [1, 1 / 3, 1 / 3, 1, 1 / 3])


returns_lists = st.lists(st.integers(-3, 3).map(float), min_size=SIZE, max_size=SIZE)


@few
@given(returns_lists, st.integers(2, SIZE - 1), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(returns, elites, random):
    returns = np.array(returns)
    order = list(range(SIZE))
    random.shuffle(order)
    weights = elite_weights(returns, elites)
    np.testing.assert_array_equal(elite_weights(returns[order], elites), weights[order])
    assert weights.sum() == pytest.approx(elites)
    assert weights.min() >= 0
    assert weights.max() <= 1
    best = np.argsort(returns, kind="stable")[-elites:]
    assert weights @ returns == pytest.approx(returns[best].sum())


def normals(size=SIZE):
    return SampledPopulation(
        center=START, sigma=1.0, noise=GaussianNoise(7, P), size=size, antithetic=False
    )


@few
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=SIZE - 3, max_size=SIZE - 3))
def test_mean_and_variance_of_weighted_members(weights):
    weights = np.array([1.0, 1.0, 0.25, *weights])
    noise = np.array([normals().noise.row(i) for i in range(SIZE)])
    mean, variance = fit(normals(), weights)
    expected = weights @ noise / weights.sum()
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-13)
    squares = weights @ (noise - expected) ** 2
    np.testing.assert_allclose(variance, squares / (weights.sum() - 1), rtol=1e-11)
    assert weights.sum() > 2


def test_the_variance_of_two_close_members_does_not_cancel():
    """The textbook sum of squares less the square of the sum would keep no digit of it."""
    population = normals(2)

    class Close:
        num_params = P
        row = population.row

        class noise:  # noqa: N801
            @staticmethod
            def blocks(row):
                yield slice(0, P), 3.0 + 2.0**-30 * np.full(P, float(row))

    mean, variance = fit(Close, np.ones(2))
    np.testing.assert_allclose(mean, 3.0 + 2.0**-31, rtol=1e-15)
    np.testing.assert_allclose(variance, 2.0**-61, rtol=1e-6)


def told(returns, **given):
    algorithm = make(SIGMA, **given)
    algorithm.tell(algorithm.ask(), returns)
    return algorithm.center, deviations(algorithm)


@few
@given(st.lists(st.integers(-1000, 1000).map(float), min_size=SIZE, max_size=SIZE))
def test_only_ranks_matter(returns):
    returns = np.array(returns)
    expected = told(returns)
    for transform in (lambda r: r + 1e6, lambda r: r**3, lambda r: np.exp(r / 100)):
        np.testing.assert_array_equal(told(transform(returns)), expected)


@few
@given(st.lists(st.integers(-8, 8), min_size=P, max_size=P), st.integers(0, 100))
def test_the_scale_of_a_coordinate_does_not_matter(exponents, seed):
    """Powers of two, so that both runs round alike."""
    scale = 2.0 ** np.array(exponents)
    plain = make(SIGMA, seed=seed)
    scaled = make(SIGMA * scale, center_init=START * scale, seed=seed)
    climb(plain, quadratic, 10)
    climb(scaled, lambda members: quadratic(members / scale), 10)
    np.testing.assert_array_equal(scaled.center, plain.center * scale)
    np.testing.assert_array_equal(deviations(scaled), deviations(plain) * scale)


def best(function, num_params, evaluations, seed, **given):
    algorithm = esbench.make_algorithm(
        "cem", num_params=num_params, seed=seed, center_init=1.0, sigma=1.0, **given
    )
    value = math.inf
    for _ in range(evaluations // algorithm.population_size):
        population = algorithm.ask()
        algorithm.tell(population, -function(population.members()))
        value = min(value, float(function(algorithm.center)))
    return value


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_minimum(seed):
    assert best(FUNCTIONS["sphere"], 10, 4000, seed) < 1e-4


def test_without_extra_variance_it_may_converge_too_early():
    """On two seeds of five; the reason for the default."""
    reached = [best(FUNCTIONS["sphere"], 10, 5000, seed, extra_sigma_ratio=0.0) for seed in (2, 4)]
    assert min(reached) > 1e-3


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_equal_returns_move_nothing_at_all(ratio):
    algorithm = make(SIGMA, extra_sigma_ratio=ratio)
    algorithm.tell(algorithm.ask(), np.full(SIZE, -21.3))
    np.testing.assert_array_equal(algorithm.center, START)
    np.testing.assert_array_equal(deviations(algorithm), SIGMA)
    assert algorithm.generation == 1


def test_a_failed_member_counts_as_the_worst():
    failed, worst = np.arange(float(SIZE)), np.arange(float(SIZE))
    failed[-1], worst[-1] = math.nan, -1e9
    np.testing.assert_array_equal(told(failed), told(worst))


def test_the_smallest_cases():
    four = make(population_size=4, elite_ratio=0.5)
    climb(four, quadratic, 20)
    assert np.isfinite(four.center).all()
    assert not np.array_equal(four.center, START)
    assert make(population_size=3, elite_ratio=0.7).settings.num_elites(3) == 2
    assert best(FUNCTIONS["sphere"], 1, 2000, 0) < 1e-8


@pytest.mark.parametrize(
    ("ratio", "size", "elites"), [(0.25, 20, 5), (0.25, 11, 2), (0.29, 100, 29), (0.07, 100, 7)]
)
def test_the_number_of_elites_is_rounded_down_from_what_a_person_computes(ratio, size, elites):
    assert make(population_size=size, elite_ratio=ratio).settings.num_elites(size) == elites


def test_defaults():
    algorithm = make()
    assert algorithm.settings.elite_ratio == 0.25
    assert algorithm.settings.extra_sigma_ratio == 0.1
    assert algorithm.sigma == pytest.approx(0.1)
    assert make(population_size=None, elite_ratio=0.5).population_size == 9
    assert make(radius=2.0).sigma == pytest.approx(2.0 / math.sqrt(P))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"population_size": 7},
            "elite_ratio = 0.25 of population_size = 7 is 1: expected at least 2 elites",
        ),
        ({"population_size": None, "num_params": 1, "center_init": 0.0}, "at least 2 elites"),
        ({"elite_ratio": 0.0}, "elite_ratio = 0"),
        ({"elite_ratio": 1.0}, "elite_ratio = 1"),
        ({"parenthood_ratio": 0.5}, "unknown key parenthood_ratio"),
        ({"extra_sigma_ratio": -0.1}, "extra_sigma_ratio = -0.1"),
        ({"extra_sigma_generations": 0}, "extra_sigma_generations = 0"),
        ({"sigma": [0.1, 0.2]}, "sigma has 2 numbers: expected one, or 7"),
        ({"sigma_min": 2.0, "sigma_max": 1.0}, "sigma_min = 2"),
        ({"sigma_learning_rate": 0.1}, "unknown key sigma_learning_rate"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        make(**given)
