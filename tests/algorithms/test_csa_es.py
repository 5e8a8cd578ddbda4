from functools import partial

import cmaes
import numpy as np
import pytest
from searches import climb

import esbench
from esbench.environments.functions import sphere


@pytest.mark.parametrize("size", [2, 5, 12, 101])
@pytest.mark.parametrize("num_params", [1, 3, 40])
def test_it_is_cma_es_without_the_covariance_update(num_params, size):
    start = np.linspace(-2.0, 1.0, num_params)
    algorithm = esbench.make_algorithm(
        "csa_es", num_params=num_params, seed=3, center_init=start, sigma=0.3, population_size=size
    )
    with np.errstate(divide="ignore"):  # 2 members
        library = cmaes.CMA(mean=start.copy(), sigma=0.3, population_size=size)
    library._c1 = library._cmu = 0.0
    for _ in range(60):
        population = algorithm.ask()
        points = population.members()
        values = sphere(points) if num_params > 1 else points[:, 0] ** 2
        algorithm.tell(population, -values)
        library.tell(list(zip(points, values.tolist(), strict=True)))
        np.testing.assert_allclose(algorithm.center, library.mean, rtol=1e-8, atol=1e-12)
        assert algorithm.sigma == pytest.approx(library._sigma, rel=1e-8)


def test_tied_members_share_their_weights():
    centers = []
    for returns in ([1.0, 1.0, 0.0, 0.0], [1.0, 1.0, -1.0, -5.0]):
        algorithm = esbench.make_algorithm("csa_es", num_params=3, population_size=4)
        population = algorithm.ask()
        algorithm.tell(population, returns)
        centers.append(algorithm.center)
    np.testing.assert_allclose(centers[0], population.members([0, 1]).mean(axis=0))
    np.testing.assert_array_equal(*centers)


def random_returns(stream, levels, points):
    return stream.integers(levels, size=len(points))


@pytest.mark.parametrize("levels", [2, 5, 10**9])
def test_the_step_size_is_unbiased_if_the_returns_are_random(levels):
    # Hansen 2016, section 4: ln(sigma) has no drift under random selection, tied or not.
    growth = []
    for seed in range(12):
        settings = {"num_params": 20, "population_size": 64, "sigma": 1.0, "seed": seed}
        algorithm = esbench.make_algorithm("csa_es", **settings)
        draw = partial(random_returns, np.random.default_rng(seed), levels)
        climb(algorithm, 100, draw)
        growth.append(np.log(algorithm.sigma))
    assert abs(np.mean(growth)) < 1.0  # the standard error is 0.2


def test_the_step_size_stays_in_the_range_of_numbers():
    algorithm = esbench.make_algorithm("csa_es", num_params=2, center_init=0.0, sigma=1e30)
    climb(algorithm, 400, lambda points: points[:, 0])
    assert algorithm.sigma == 1e32
    assert np.isfinite(algorithm.center).all()
