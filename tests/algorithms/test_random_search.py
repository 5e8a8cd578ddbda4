import math

import numpy as np
import pytest

import esbench

P, SIZE = 5, 8
START = np.linspace(1.0, 2.0, P)


def make(**settings):
    settings = {"population_size": SIZE, "sigma": 0.5, **settings}
    return esbench.make_algorithm("random_search", num_params=P, center_init=START, **settings)


def test_a_worse_or_equal_generation_changes_nothing():
    algorithm = make()
    first = algorithm.ask()
    algorithm.tell(first, [0, 1, 9, 3, 9, 0, 0, 0])
    np.testing.assert_array_equal(algorithm.center, first.member(2))  # the first of equals
    for best in (8.9, 9.0):
        algorithm.tell(algorithm.ask(), [0, best, 0, 0, 0, 0, 0, best])
        np.testing.assert_array_equal(algorithm.center, first.member(2))
    last = algorithm.ask()
    algorithm.tell(last, [0, 0, 0, 0, 0, 0, 0, 9.1])
    np.testing.assert_array_equal(algorithm.center, last.member(7))


@pytest.mark.parametrize("failure", [math.nan, math.inf])
def test_a_failed_member_is_never_the_best(failure):
    algorithm = make()
    population = algorithm.ask()
    algorithm.tell(population, [failure, -5, failure, -4, -6, -7, failure, -8])
    np.testing.assert_array_equal(algorithm.center, population.member(3))
    algorithm.tell(algorithm.ask(), [failure] * 7 + [-4.5])
    np.testing.assert_array_equal(algorithm.center, population.member(3))


@pytest.mark.parametrize("distribution", ["gaussian", "uniform"])
def test_every_population_lies_around_the_start(distribution):
    algorithm = make(distribution=distribution, population_size=200)
    everyone = []
    for _ in range(20):
        population = algorithm.ask()
        everyone.append(population.members())
        algorithm.tell(population, population.members().sum(axis=1))
    samples = (np.concatenate(everyone) - START) / 0.5
    assert np.unique(np.abs(samples).round(12), axis=0).shape == (4000, P)  # none is mirrored
    deviation = 1.0 if distribution == "gaussian" else 1 / math.sqrt(3)
    np.testing.assert_allclose(samples.mean(axis=0), 0.0, atol=0.06)
    np.testing.assert_allclose(samples.std(axis=0), deviation, atol=0.05)
    if distribution == "uniform":
        assert np.abs(samples).max() <= 1.0 + 1e-12
    assert algorithm.center.sum() > START.sum() + 1.0
