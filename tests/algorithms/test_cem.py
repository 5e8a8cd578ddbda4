import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from searches import SIZE, START, P, climb, deviations, maker, quadratic

from esbench.algorithms.cem import elite_weights, fit
from esbench.core.noise import GaussianNoise
from esbench.core.population import SampledPopulation

SIGMA = np.linspace(0.5, 2.0, P)

make = maker("cem")
few = hypothesis_settings(max_examples=25, deadline=None)


def test_updates_equal_the_papers():
    """Szita & Lorincz 2006 with sigma_0^2 = 100 and Z_t = max(5 - t/10, 0), but for ddof = 1."""
    algorithm = make(sigma=10.0, extra_sigma_ratio=math.sqrt(5) / 10, extra_sigma_generations=50)
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
    noisy, plain = make(sigma=SIGMA, **given), make(sigma=SIGMA, extra_sigma_ratio=0.0)
    for left in (0.75, 0.5, 0.25, 0.0, 0.0):
        plain.load_state_dict(noisy.state_dict())
        for algorithm in (noisy, plain):
            climb(algorithm, 1)
        np.testing.assert_array_equal(noisy.center, plain.center)
        extra = deviations(noisy) ** 2 - deviations(plain) ** 2
        np.testing.assert_allclose(extra, left * (0.5 * SIGMA) ** 2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("returns", "elites", "weights"),
    [
        ([3, 1, 4, 2], 3, [1, 0, 1, 1]),
        ([2, 5, 2, 1, 2], 3, [2 / 3, 1, 2 / 3, 0, 2 / 3]),  # ties share the last places
        ([2, 5, 2, 1, 2], 4, [1, 1, 1, 0, 1]),
        ([-1e300, math.nan, math.inf, 0, -math.inf], 2, [1, 0, 0, 1, 0]),
        ([-1e300, math.nan, math.inf, 0, -math.inf], 3, [1, 1 / 3, 1 / 3, 1, 1 / 3]),
    ],
)
def test_the_elites_are_the_best(returns, elites, weights):
    np.testing.assert_allclose(elite_weights(np.array(returns, float), elites), weights)


NORMALS = SampledPopulation(
    center=START, sigma=1.0, noise=GaussianNoise(7, P), size=SIZE, antithetic=False
)


@few
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=SIZE - 3, max_size=SIZE - 3))
def test_mean_and_variance_of_weighted_members(weights):
    weights = np.array([1.0, 1.0, 0.25, *weights])
    noise = np.array([NORMALS.noise.row(i) for i in range(SIZE)])
    mean, variance = fit(NORMALS, weights)
    expected = weights @ noise / weights.sum()
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-13)
    squares = weights @ (noise - expected) ** 2
    divisor = weights.sum() - (weights**2).sum() / weights.sum()
    np.testing.assert_allclose(variance, squares / divisor, rtol=1e-11)


def test_ties_do_not_change_sigma_on_average():
    """One member fails and all others tie, so that selection says nothing about sigma."""
    returns = np.ones(SIZE)
    growth = []
    for seed in range(200):
        algorithm = maker("cem", seed=seed)(sigma=1.0, extra_sigma_ratio=0.0)
        algorithm.tell(algorithm.ask(), returns - np.eye(SIZE)[seed % SIZE])
        growth.append(np.mean(deviations(algorithm) ** 2))
    error = np.std(growth) / np.sqrt(len(growth))
    assert abs(np.mean(growth) - 1.0) < 4 * error


@pytest.mark.parametrize(
    ("ratio", "size", "elites"), [(0.25, 11, 2), (0.7, 3, 2), (0.29, 100, 29), (0.07, 100, 7)]
)
def test_the_number_of_elites_is_rounded_down_without_float_error(ratio, size, elites):
    assert make(population_size=size, elite_ratio=ratio).settings.num_elites(size) == elites
