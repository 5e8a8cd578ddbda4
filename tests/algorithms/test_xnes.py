import math
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
import torch
from evotorch_oracle import XNES, Oracle
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from searches import best, climb, maker, signed_noise

import esbench
from esbench.algorithms.xnes import MOST_PARAMS, times_exponential
from esbench.environments.functions import FUNCTIONS, rotation

P, SIZE = 6, 20
START = np.linspace(0.5, -0.9, P)
TARGET = np.linspace(-0.5, 0.8, P)
SIGMA = np.linspace(0.1, 0.4, P)
RATE = (9 + 3 * math.log(P)) / (5 * P * math.sqrt(P))

few = hypothesis_settings(max_examples=15, deadline=None)


def tilted(members):
    """Return a quadratic whose axes are not the coordinates."""
    turned = (members - TARGET) @ rotation(P).T
    return -np.sum(turned**2 * np.arange(1, P + 1), axis=1)


def make(sigma=0.1, **given):
    settings = {"population_size": SIZE, "center_init": START, "num_params": P, "sigma": sigma}
    return maker("xnes")(**(settings | given))


def factor(algorithm):
    return algorithm.state_dict()["factor"]


def with_factor(algorithm, matrix):
    algorithm.load_state_dict({**algorithm.state_dict(), "factor": matrix})
    return algorithm


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (
            {"sigma_learning_rate": 0.1},
            {"stdev_learning_rate": 0.1, "scale_learning_rate": False},
        ),
        ({"learning_rate": 0.5}, {"center_learning_rate": 0.5}),
    ],
)
def test_it_is_evotorchs(ours, theirs):
    oracle, algorithm = Oracle(XNES, START, SIGMA, size=SIZE, **theirs), make(SIGMA, **ours)
    assert oracle.follow(algorithm, tilted, 1) < 1e-13
    assert oracle.follow(algorithm, tilted, 99) < 1e-7
    assert np.abs(algorithm.center - START).max() > 0.1
    adapted = factor(algorithm)
    assert np.abs(adapted - np.diag(np.diag(adapted))).max() > 0.05 * np.abs(adapted).max()


@pytest.mark.parametrize("shaping", ["centered", "linear"])
def test_other_shapings_are_evotorchs_at_a_rate_that_fits_their_magnitude(shaping):
    """evotorch's SNES divides such utilities by the sum of their magnitudes; its XNES does not."""
    magnitude = np.abs(np.linspace(-0.5, 0.5, SIZE)).sum()
    rates = {f"{name}_learning_rate": 1 / magnitude for name in ("center", "stdev")}
    oracle = Oracle(XNES, START, SIGMA, size=SIZE, ranking_method=shaping, **rates)
    assert oracle.follow(make(SIGMA, shaping=shaping), tilted, 100) < 1e-7


def test_a_population_that_has_grown_is_evotorchs():
    oracle = Oracle(XNES, START, 0.2, size=SIZE)
    assert oracle.follow(make(0.2), tilted, 30, growth=3) < 1e-7


def sgd_climb():
    return lambda center, gradient: gradient


def adam_climb():
    parameter = torch.nn.Parameter(torch.zeros(P, dtype=torch.float64))
    optimizer = torch.optim.Adam([parameter], lr=0.3, maximize=True)

    def climb(center, gradient):
        parameter.data = torch.from_numpy(center.copy())
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        return parameter.detach().numpy() - center

    return climb


@pytest.mark.parametrize(
    ("given", "climber"),
    [
        ({"antithetic": True}, sgd_climb),
        ({"antithetic": False}, sgd_climb),
        ({"optimizer": "adam", "learning_rate": 0.3}, adam_climb),
    ],
)
def test_it_is_the_papers(given, climber):
    """Wierstra et al. 2014, algorithm 5, with sigma and B apart, and the utilities of 3.1."""
    algorithm, step = make(SIGMA, **given), climber()
    mu, sigma = START, np.prod(SIGMA) ** (1 / P)
    b = np.diag(SIGMA) / sigma
    u = np.maximum(0, math.log(SIZE / 2 + 1) - np.log(np.arange(1, SIZE + 1)))
    u = u / u.sum() - 1 / SIZE
    for _ in range(100):
        population = algorithm.ask()
        s = signed_noise(population)
        returns = tilted(mu + sigma * s @ b.T)
        algorithm.tell(population, returns)
        s = s[np.argsort(-returns)]
        grad_m = sum(u_k * (np.outer(s_k, s_k) - np.eye(P)) for u_k, s_k in zip(u, s, strict=True))
        grad_sigma = np.trace(grad_m) / P
        grad_b = grad_m - grad_sigma * np.eye(P)
        mu = mu + sigma * b @ step(np.zeros(P), u @ s)
        sigma = sigma * math.exp(RATE / 2 * grad_sigma)
        b = b @ scipy.linalg.expm(RATE / 2 * grad_b)
        np.testing.assert_allclose(algorithm.center, mu, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(factor(algorithm), sigma * b, rtol=1e-7, atol=1e-7 * sigma)
    np.testing.assert_allclose(mu, TARGET, atol=0.05)


def test_with_one_parameter_it_is_snes():
    given = {
        "num_params": 1,
        "seed": 5,
        "center_init": 1.0,
        "sigma": 0.3,
        "population_size": 8,
        "sigma_learning_rate": 0.4,
    }
    xnes, snes = (esbench.make_algorithm(name, **given) for name in ("xnes", "snes"))
    for _ in range(50):
        for algorithm in (xnes, snes):
            climb(algorithm, 1, lambda members: -((members[:, 0] - 0.3) ** 2))
        np.testing.assert_allclose(xnes.center, snes.center, rtol=1e-9)
        assert xnes.sigma == pytest.approx(snes.sigma, rel=1e-9)


@hypothesis_settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 12),
    st.floats(-6, 1.3).map(lambda exponent: 10.0**exponent),
    st.integers(0, 1000),
)
def test_the_series_is_the_matrix_exponential(num_params, size, scale, seed):
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((num_params, num_params))
    vectors = random.standard_normal((size, num_params))
    weights = random.standard_normal(size)
    weights *= scale / np.sum(np.abs(weights) * np.sum(vectors**2, axis=1))
    before = matrix.copy()
    expected = matrix @ scipy.linalg.expm(np.einsum("n,ni,nj->ij", weights, vectors, vectors))
    reached = times_exponential(matrix, weights, vectors)
    np.testing.assert_allclose(reached, expected, atol=1e-13 * (1 + np.abs(expected).max()))
    np.testing.assert_array_equal(matrix, before)


def test_the_exponential_is_not_that_of_the_entries():
    vectors = np.array([[1.0, 1.0]])
    reached = times_exponential(np.eye(2), np.array([0.5]), vectors)
    both = (math.e - 1) / 2  # exp of a half in every entry, whose eigenvalues are 0 and 1
    np.testing.assert_allclose(reached, [[1 + both, both], [both, 1 + both]], rtol=1e-14)


SCRIPT = """
import numpy as np

from esbench.algorithms.xnes import times_exponential

random = np.random.default_rng(0)
vectors = random.standard_normal((20, 150))
reached = times_exponential(np.eye(150), random.standard_normal(20) / 1000, vectors)
print(reached.tobytes().hex())
"""


def test_the_bits_do_not_depend_on_the_number_of_threads():
    """At 150 parameters, those of scipy.linalg.expm do."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
        )
        for threads in ("1", "2")
    ]
    one, two = (process.communicate()[0] for process in processes)
    assert len(one) > 150 * 150 * 8
    assert one == two


matrices = st.tuples(st.integers(0, 10**6), st.floats(0.0, 2.0))


def well_conditioned(seed, spread):
    """Return a random matrix with singular values between 10**-spread and 10**spread."""
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.standard_normal((P, P)))[0] for _ in range(2))
    return left @ np.diag(10 ** random.uniform(-spread, spread, P)) @ right


@few
@given(matrices, st.lists(st.floats(-3, 3), min_size=P, max_size=P), st.integers(0, 100))
def test_no_affine_change_of_coordinates_matters(matrix, offset, seed):
    """x' = B x + b, with A' = B A: the same noise makes the same members."""
    b, offset = well_conditioned(*matrix), np.array(offset)
    inverse = np.linalg.inv(b)
    plain = make(0.2, seed=seed)
    other = with_factor(make(0.2, seed=seed, center_init=b @ START + offset), 0.2 * b)
    climb(plain, 8, tilted)
    climb(other, 8, lambda members: tilted((members - offset) @ inverse.T))
    np.testing.assert_allclose(inverse @ (other.center - offset), plain.center, atol=1e-7)
    np.testing.assert_allclose(inverse @ factor(other), factor(plain), atol=1e-7)


@few
@given(st.integers(0, 10**6), st.integers(0, 100))
def test_no_rotation_matters(matrix_seed, seed):
    q = well_conditioned(matrix_seed, 0.0)  # orthogonal
    plain = make(0.2, seed=seed)
    turned = with_factor(make(0.2, seed=seed, center_init=q @ START), 0.2 * q)
    climb(plain, 8, tilted)
    climb(turned, 8, lambda members: tilted(members @ q))
    np.testing.assert_allclose(turned.center, q @ plain.center, atol=1e-10)
    assert turned.sigma == pytest.approx(plain.sigma, rel=1e-9)


def assert_same(one, two, **tolerance):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_minima_that_snes_cannot(seed):
    assert best("xnes", FUNCTIONS["sphere"], 5, 600, seed) < 1e-3
    # Condition 1e6, and no coordinate can be optimised alone: here the separable SNES is stuck.
    evaluations = 1600
    reached = best("xnes", FUNCTIONS["rotated_ellipsoid"], 5, evaluations, seed)
    assert reached < 1e-2
    assert best("snes", FUNCTIONS["rotated_ellipsoid"], 5, evaluations, seed) > max(
        1.0, 1e3 * reached
    )


def test_defaults_are_the_papers():
    algorithm = esbench.make_algorithm("xnes", num_params=100)
    assert len(algorithm.ask()) == algorithm.population_size == 4 + 13
    assert not algorithm.settings.antithetic
    assert algorithm.sigma == pytest.approx(0.1, rel=1e-12)


def test_sigma_is_the_root_mean_square_of_the_parameters_deviations():
    assert make(SIGMA).sigma == pytest.approx(math.sqrt(np.mean(SIGMA**2)))
    algorithm = with_factor(make(), well_conditioned(0, 1.0))
    deviations = np.sqrt(np.diag(factor(algorithm) @ factor(algorithm).T))
    assert algorithm.sigma == pytest.approx(math.sqrt(np.mean(deviations**2)))
    assert make(None, radius=3.0).sigma == pytest.approx(3.0 / math.sqrt(P))


def test_rates_and_decays():
    still = make(SIGMA, sigma_learning_rate=0.0)
    climb(still, 5, tilted)
    np.testing.assert_array_equal(factor(still), np.diag(SIGMA))

    plain, decayed = make(), make(weight_decay=0.25)
    for algorithm in (plain, decayed):
        climb(algorithm, 1, tilted)
    np.testing.assert_allclose(decayed.center, plain.center - 0.25 * START, rtol=1e-12)

    # The second generation of a halved rate is a whole one of half the rate.
    halved = make(
        sigma_learning_rate=RATE,
        sigma_learning_rate_decay=0.5,
        learning_rate_decay=0.5,
        weight_decay=0.1,
    )
    climb(halved, 1, tilted)
    half = make(sigma_learning_rate=RATE / 2, learning_rate=0.5, weight_decay=0.1)
    half.load_state_dict(halved.state_dict())
    for algorithm in (halved, half):
        climb(algorithm, 1, tilted)
    assert_same([halved.center, factor(halved)], [half.center, factor(half)], rtol=1e-13)


def test_the_smallest_cases():
    pair = make(population_size=2)
    climb(pair, 20, tilted)
    assert np.isfinite(pair.center).all()
    assert not np.array_equal(pair.center, START)

    one = make(population_size=1)
    climb(one, 3, tilted)
    np.testing.assert_array_equal(one.center, START)

    assert best("xnes", FUNCTIONS["sphere"], 1, 400, 0, sigma=1.0) < 1e-6


def test_the_most_parameters_are_accepted():
    assert make(num_params=MOST_PARAMS, center_init=0.0).sigma == pytest.approx(0.1)
