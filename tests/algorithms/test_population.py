import pickle

import numpy as np
import pytest
from scipy import stats

from esbench.algorithms.noise import BLOCK, NOISES
from esbench.algorithms.population import SampledPopulation, drawing_threads

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
P = 11


def make(size=8, **changes):
    center = changes.pop("center", np.linspace(-2.0, 3.0, P))
    noise = NOISES[changes.pop("distribution", "gaussian")](changes.pop("key", KEY), center.size)
    recipe = {"center": center, "sigma": 0.3, "noise": noise, "size": size}
    return SampledPopulation(**(recipe | changes))


def philox(row, key=KEY):
    """Return the generator 2**128 * row draws into the key's stream."""
    return np.random.Generator(np.random.Philox(key=key).jumped(row))


def dense_noise(population):
    """Return the signed noise of every member, [N, P]."""
    rows = np.stack([philox(row).standard_normal(P) for row in range(population.size)])
    if not population.antithetic:
        return rows
    return np.stack([sign * row for row in rows[: population.size // 2] for sign in (1.0, -1.0)])


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("sigma", [0.3, np.linspace(0.1, 2.0, P)], ids=["scalar", "vector"])
def test_members_are_center_plus_sigma_times_noise(antithetic, sigma):
    population = make(antithetic=antithetic, sigma=sigma)
    expected = population.center + sigma * dense_noise(population)
    np.testing.assert_array_equal(population.members(), expected)


def test_rows_are_whole_streams_apart_and_gaussian_or_uniform():
    population = make()
    uniform = make(distribution="uniform")
    for row in range(4):
        np.testing.assert_array_equal(population.noise.row(row), philox(row).standard_normal(P))
        np.testing.assert_array_equal(uniform.noise.row(row), philox(row).uniform(-1, 1, P))


def test_pairs_are_mirrored_about_the_center():
    population = make()
    assert population.num_rows == 4
    for pair in range(4):
        plus, minus = population.member(2 * pair), population.member(2 * pair + 1)
        np.testing.assert_allclose(plus + minus, 2 * population.center, rtol=0, atol=1e-15)
        assert (population.row(2 * pair), population.row(2 * pair + 1)) == (pair, pair)
        assert (population.sign(2 * pair), population.sign(2 * pair + 1)) == (1, -1)
        assert not np.array_equal(plus, minus)


def test_without_pairs_every_member_has_its_own_noise():
    population = make(size=7, antithetic=False)
    assert population.num_rows == len(population) == 7
    assert [population.row(i) for i in range(7)] == list(range(7))
    assert {population.sign(i) for i in range(7)} == {1}
    assert np.unique(population.members(), axis=0).shape == (7, P)


@pytest.mark.parametrize("antithetic", [True, False])
def test_any_members_in_any_order_have_the_same_bits(antithetic):
    population = make(size=10, antithetic=antithetic)
    everyone = population.members()
    assert everyone.shape == (10, P)
    order = np.random.default_rng(0)
    for _ in range(20):
        chosen = order.permutation(10)[: order.integers(1, 11)].tolist()
        np.testing.assert_array_equal(population.members(chosen), everyone[chosen])
    np.testing.assert_array_equal(population.members([3, 3]), everyone[[3, 3]])


def test_a_member_is_nobody_elses():
    population = make()
    expected = make().members()
    for index in (2, 2, 3, 4, 3):
        member = population.member(index)
        np.testing.assert_array_equal(member, expected[index])
        member[:] = np.nan


@pytest.mark.parametrize("antithetic", [True, False])
def test_extending_keeps_the_members_there_are(antithetic):
    population = make(size=6, antithetic=antithetic)
    longer = population.extended(14)
    assert len(longer) == 14
    assert len(population) == 6
    np.testing.assert_array_equal(longer.members(range(6)), population.members())
    assert np.unique(longer.members(), axis=0).shape == (14, P)


@pytest.mark.parametrize("antithetic", [True, False])
def test_weighted_noise_is_the_dense_product(antithetic):
    population = make(size=40, antithetic=antithetic)
    weights = np.random.default_rng(1).standard_normal(40)
    weights[[3, 8, 9]] = 0.0
    expected = dense_noise(population).T @ weights
    np.testing.assert_allclose(population.weighted_noise(weights), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("antithetic", [True, False])
def test_sums_do_not_depend_on_the_threads(antithetic):
    weights, squared = np.random.default_rng(0).normal(size=(2, 14))
    weights[4:6] = squared[4:6] = 0.0
    center = np.zeros(3 * BLOCK + 1)
    population = make(14, center=center, antithetic=antithetic)
    sums = []
    for threads in (1, 2, 4):
        with drawing_threads(threads):
            sums.append(population.weighted_moments(weights, squared))
    np.testing.assert_array_equal(sums[1], sums[0])
    np.testing.assert_array_equal(sums[2], sums[0])


def test_weighted_noise_is_in_units_of_sigma():
    weights = np.linspace(0.0, 1.0, 8)
    np.testing.assert_array_equal(
        make(sigma=0.3).weighted_noise(weights), make(sigma=np.full(P, 7.0)).weighted_noise(weights)
    )


def test_weighted_noise_of_weights_that_cancel_is_zero():
    np.testing.assert_array_equal(make().weighted_noise(np.repeat([1.0, -2.0, 0.5, 0.0], 2)), 0.0)


def test_members_without_weight_add_no_bits():
    weights = np.random.default_rng(2).standard_normal(6)
    np.testing.assert_array_equal(
        make(size=12).weighted_noise(np.append(weights, np.zeros(6))),
        make(size=6).weighted_noise(weights),
    )


@pytest.mark.parametrize("shape", [(7,), (9,), (8, 1), ()])
def test_weights_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"expected \(8,\)"):
        make().weighted_noise(np.zeros(shape))


def test_a_pickle_is_the_recipe_and_not_the_members():
    small, large = (pickle.dumps(make(size=size)) for size in (2, 10_000_000))
    assert abs(len(large) - len(small)) < 16
    assert len(large) < 8 * P + 1000
    copy = pickle.loads(pickle.dumps(make()))  # noqa: S301
    np.testing.assert_array_equal(copy.members(), make().members())


def test_the_last_member_of_a_huge_population_costs_nothing():
    population = make(size=2**40)
    noise = philox(2**39 - 1).standard_normal(P)
    np.testing.assert_array_equal(
        population.member(2**40 - 1), population.center - population.sigma * noise
    )


def test_gaussian_noise_is_standard_normal():
    population = make(center=np.zeros(500), antithetic=False)
    noise = np.stack([population.noise.row(row) for row in range(40)])
    assert stats.kstest(noise.reshape(-1), "norm").pvalue > 0.01
    assert stats.kstest(noise[:, 0], "norm").pvalue > 0.01  # the first draw of every row


def test_uniform_noise_is_uniform_from_minus_one_to_one():
    population = make(center=np.zeros(500), antithetic=False, distribution="uniform")
    noise = np.stack([population.noise.row(row) for row in range(40)])
    assert stats.kstest(noise.reshape(-1), "uniform", args=(-1, 2)).pvalue > 0.01
    assert noise.min() >= -1.0
    assert noise.max() < 1.0


def test_rows_and_generations_are_uncorrelated():
    populations = [make(center=np.zeros(10_000), key=KEY + i) for i in range(3)]
    noise = np.stack([p.noise.row(row) for p in populations for row in range(10)])
    correlations = np.corrcoef(noise) - np.eye(len(noise))
    assert np.abs(correlations).max() < 0.05  # 5 standard errors of 1/sqrt(10000)


@pytest.mark.parametrize("size", [7, 1, 0, -2])
def test_an_antithetic_population_is_of_whole_pairs(size):
    with pytest.raises(ValueError, match=f"population size {size}: expected a positive even"):
        make(size=size)


def test_extending_to_half_a_pair_is_refused():
    with pytest.raises(ValueError, match="population size 9"):
        make().extended(9)


@pytest.mark.parametrize("size", [0, -1])
def test_a_population_has_members(size):
    with pytest.raises(ValueError, match=f"population size {size}: expected a positive size"):
        make(size=size, antithetic=False)
