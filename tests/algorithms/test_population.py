import pickle

import numpy as np
import pytest
from searches import dense_noise

from esbench.core.noise import BLOCK, NOISES
from esbench.core.population import SampledPopulation, drawing_threads

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
P = 11


def make(size=8, **changes):
    center = changes.pop("center", np.linspace(-2.0, 3.0, P))
    noise = NOISES[changes.pop("distribution", "gaussian")](changes.pop("key", KEY), center.size)
    recipe = {"center": center, "sigma": 0.3, "noise": noise, "size": size}
    return SampledPopulation(**(recipe | changes))


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("sigma", [0.3, np.linspace(0.1, 2.0, P)], ids=["scalar", "vector"])
def test_members_are_center_plus_sigma_times_noise(antithetic, sigma):
    population = make(antithetic=antithetic, sigma=sigma)
    expected = population.center + sigma * dense_noise(
        KEY, len(population), P, population.antithetic
    )
    np.testing.assert_array_equal(population.members(), expected)


@pytest.mark.parametrize(
    ("antithetic", "size", "rows", "signs"),
    [(True, 6, [0, 0, 1, 1, 2, 2], [1, -1] * 3), (False, 7, list(range(7)), [1] * 7)],
)
def test_pairs_share_a_row_of_the_noise(antithetic, size, rows, signs):
    population = make(size, antithetic=antithetic)
    assert population.num_rows == rows[-1] + 1
    assert [population.row(member) for member in range(size)] == rows
    assert [population.sign(member) for member in range(size)] == signs


@pytest.mark.parametrize("antithetic", [True, False])
def test_weighted_noise_is_the_dense_product(antithetic):
    population = make(size=40, antithetic=antithetic, sigma=np.full(P, 7.0))
    weights = np.random.default_rng(1).standard_normal(40)
    weights[[3, 8, 9]] = 0.0
    expected = dense_noise(KEY, len(population), P, population.antithetic).T @ weights
    np.testing.assert_allclose(population.weighted_noise(weights), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("antithetic", [True, False])
def test_sums_do_not_depend_on_the_threads(antithetic):
    weights = np.random.default_rng(0).normal(size=14)
    weights[4:6] = 0.0
    center = np.zeros(3 * BLOCK + 1)
    population = make(14, center=center, antithetic=antithetic)
    sums = []
    for threads in (1, 2, 4):
        with drawing_threads(threads):
            sums.append(population.weighted_moments(weights))
    np.testing.assert_array_equal(sums[1], sums[0])
    np.testing.assert_array_equal(sums[2], sums[0])


def test_a_pickle_is_the_recipe_and_not_the_members():
    small, large = (pickle.dumps(make(size=size)) for size in (2, 10_000_000))
    assert abs(len(large) - len(small)) < 16
    assert len(large) < 8 * P + 1000
    copy = pickle.loads(pickle.dumps(make()))  # noqa: S301
    np.testing.assert_array_equal(copy.members(), make().members())


@pytest.mark.parametrize(
    ("size", "antithetic", "expected"),
    [(7, True, "even"), (0, True, "even"), (0, False, "size"), (-1, False, "size")],
)
def test_a_population_has_members_or_whole_pairs(size, antithetic, expected):
    for refused in (
        lambda: make(size=size, antithetic=antithetic),
        lambda: make(antithetic=antithetic).extended(size),
    ):
        with pytest.raises(ValueError, match=f"population size {size}: expected a .*{expected}"):
            refused()
