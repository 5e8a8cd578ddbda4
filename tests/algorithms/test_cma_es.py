"""CMA-ES and sep-CMA-ES are those of the library; CSA-ES is it without the covariance."""

import math
from functools import partial

import cmaes
import numpy as np
import pytest
from searches import assert_same, climb, written
from threadpoolctl import threadpool_info, threadpool_limits

import esbench
from esbench.core.seeding import noise_key
from esbench.environments.functions import ellipsoid, rotated_ellipsoid, sphere

P = 10
LIBRARY = {"cma_es": cmaes.CMA, "sep_cma_es": cmaes.SepCMA}

both = pytest.mark.parametrize("name", LIBRARY)


def run(algorithm, generations, function=sphere):
    """Return the centers [generations, P] of a run that minimizes a function."""
    return climb(algorithm, generations, lambda points: -function(points))


def make(name, *, num_params=P, seed=7, **changes):
    return esbench.make_algorithm(
        name, num_params=num_params, seed=seed, **({"center_init": 1.0} | changes)
    )


@both
@pytest.mark.parametrize("function", [sphere, rotated_ellipsoid])
@pytest.mark.parametrize("size", [None, 20])
def test_updates_equal_the_library(name, function, size):
    algorithm = make(name, population_size=size, sigma=0.3)
    library = LIBRARY[name](mean=np.ones(P), sigma=0.3, population_size=size)
    for generation in range(100):
        library.reseed_rng(noise_key(7, generation) & 0xFFFFFFFF)
        points = np.array([library.ask() for _ in range(library.population_size)])
        population = algorithm.ask()
        np.testing.assert_array_equal(population.members(), points)
        values = function(points)
        library.tell(list(zip(points, values.tolist(), strict=True)))
        algorithm.tell(population, -values)
        np.testing.assert_array_equal(algorithm.center, library.mean)
    assert function(algorithm.center) < function(np.ones(P)) / 5


@both
@pytest.mark.parametrize("sampled", [False, True], ids=["after-tell", "after-ask"])
def test_a_state_that_went_through_files_continues_bit_for_bit(name, sampled):
    algorithm = make(name)
    run(algorithm, 7, rotated_ellipsoid)
    if sampled:
        algorithm.ask()  # decomposes C, and replaces it by what the factors multiply to
    assert ("_D" in algorithm.state_dict()["library"]) == sampled  # None before it is needed
    restored = make(name, center_init=-3.0, sigma=9.0)
    run(restored, 2)
    restored.ask()  # so that what the state has as None is an array
    restored.load_state_dict(written(algorithm.state_dict()))
    assert_same(restored.state_dict()["library"], algorithm.state_dict()["library"])
    expected = run(algorithm, 60, rotated_ellipsoid)
    np.testing.assert_array_equal(run(restored, 60, rotated_ellipsoid), expected)
    assert_same(restored.state_dict()["library"], algorithm.state_dict()["library"])


@both
def test_a_checkpoint_has_no_uninitialized_numbers(name):
    for filling in (1.0, math.nan):  # memory that the library might get for its uninitialized array
        dirt = [np.full(64, filling) for _ in range(1000)]
        del dirt
        library = make(name).state_dict()["library"]
        for value in library.values():
            assert np.isfinite(value).all()
        np.testing.assert_array_equal(library["_funhist_values"], 0.0)


@both
def test_a_linear_function_raises_no_error(name):
    algorithm = make(name, num_params=3, sigma=1e20)
    run(algorithm, 300, lambda points: points.sum(axis=1))
    assert -1e33 < algorithm.center.min() < -1e28
    assert np.isfinite(algorithm.center).all()
    assert np.isfinite(algorithm.ask().members()).all()
    assert 0.0 < algorithm.sigma < math.inf


@both
@pytest.mark.parametrize(
    ("attribute", "value"), [("_sigma", 0.0), ("_sigma", math.nan), ("_C", np.full(P, math.inf))]
)
def test_an_update_that_is_not_finite_is_not_made(name, attribute, value, monkeypatch):
    algorithm = make(name)
    run(algorithm, 3)
    algorithm.ask()
    before, members = algorithm.state_dict(), algorithm.ask().members()
    tell = LIBRARY[name].tell

    def broken(library, solutions):
        tell(library, solutions)
        setattr(library, attribute, value)

    with monkeypatch.context() as patch:
        patch.setattr(LIBRARY[name], "tell", broken)
        run(algorithm, 1)
    assert_same(algorithm.state_dict()["library"], before["library"])
    np.testing.assert_array_equal(algorithm.center, before["center"])
    assert not np.array_equal(algorithm.ask().members(), members)  # other noise
    run(algorithm, 30)
    assert sphere(algorithm.center) < sphere(before["center"])


def test_sigma_is_of_the_parameters_and_not_of_the_step_size_alone():
    algorithm = make("cma_es", num_params=4)
    run(algorithm, 30, ellipsoid)
    drawn = []
    for _ in range(300):
        population = algorithm.ask()
        drawn += list(population.members() - algorithm.center)
        algorithm.tell(population, np.zeros(len(population)))
    assert algorithm.sigma == pytest.approx(np.sqrt(np.mean(np.square(drawn))), rel=0.1)


@both
def test_the_library_computes_with_one_thread(name, monkeypatch):
    """With several, the last bits of a decomposition differ on some processors."""
    ask, tell, threads = LIBRARY[name].ask, LIBRARY[name].tell, set()

    def watched(method):
        def call(*given):
            libraries = threadpool_info()
            threads.update(each["num_threads"] for each in libraries if each["user_api"] == "blas")
            return method(*given)

        return call

    monkeypatch.setattr(LIBRARY[name], "ask", watched(ask))
    monkeypatch.setattr(LIBRARY[name], "tell", watched(tell))
    with threadpool_limits(2):
        run(make(name), 2)
    assert threads == {1}


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


@pytest.mark.parametrize("levels", [2, 10**9])
def test_the_step_size_is_unbiased_if_the_returns_are_random(levels):
    # Hansen 2016, section 4: ln(sigma) has no drift under random selection, tied or not.
    growth = []
    for seed in range(6):
        settings = {"num_params": 20, "population_size": 64, "sigma": 1.0, "seed": seed}
        algorithm = esbench.make_algorithm("csa_es", **settings)
        draw = partial(random_returns, np.random.default_rng(seed), levels)
        climb(algorithm, 100, draw)
        growth.append(np.log(algorithm.sigma))
    assert abs(np.mean(growth)) < 1.0  # the standard error is 0.3


def test_the_step_size_stays_in_the_range_of_numbers():
    algorithm = esbench.make_algorithm("csa_es", num_params=2, center_init=0.0, sigma=1e30)
    climb(algorithm, 400, lambda points: points[:, 0])
    assert algorithm.sigma == 1e32
    assert np.isfinite(algorithm.center).all()
