import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from searches import (
    SIZE,
    START,
    TARGET,
    P,
    climb,
    maker,
    printed_with_one_and_two_threads,
    signed_noise,
    tilted,
)

from esbench.algorithms.nes import times_exponential, utilities_of
from esbench.algorithms.shaping import SHAPINGS
from esbench.core.errors import TrainingError

SIGMA = np.linspace(0.1, 0.4, P)
RATE = (9 + 3 * math.log(P)) / (5 * P * math.sqrt(P))
SNES_RATE = (3 + math.log(P)) / (5 * math.sqrt(P))
# Wierstra et al. 2014, section 3.1, best member first.
UTILITIES = np.maximum(0, math.log(SIZE / 2 + 1) - np.log(np.arange(1, SIZE + 1)))
UTILITIES = UTILITIES / UTILITIES.sum() - 1 / SIZE

few = hypothesis_settings(max_examples=15, deadline=None)


def make(sigma=0.1, **given):
    return maker("xnes")(sigma=sigma, **given)


def factor(algorithm):
    return algorithm.state_dict()["factor"]


def with_factor(algorithm, matrix):
    algorithm.load_state_dict({**algorithm.state_dict(), "factor": matrix})
    return algorithm


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
def test_xnes_is_the_papers(given, climber):
    """Wierstra et al. 2014, algorithm 5, with sigma and B apart, and the utilities of 3.1."""
    algorithm, step = make(SIGMA, **given), climber()
    mu, sigma = START, np.prod(SIGMA) ** (1 / P)
    b = np.diag(SIGMA) / sigma
    for _ in range(100):
        population = algorithm.ask()
        s = signed_noise(population)
        returns = tilted(mu + sigma * s @ b.T)
        algorithm.tell(population, returns)
        s = s[np.argsort(-returns)]
        grad_m = sum(
            u_k * (np.outer(s_k, s_k) - np.eye(P)) for u_k, s_k in zip(UTILITIES, s, strict=True)
        )
        grad_sigma = np.trace(grad_m) / P
        grad_b = grad_m - grad_sigma * np.eye(P)
        mu = mu + sigma * b @ step(np.zeros(P), UTILITIES @ s)
        sigma = sigma * math.exp(RATE / 2 * grad_sigma)
        b = b @ scipy.linalg.expm(RATE / 2 * grad_b)
        np.testing.assert_allclose(algorithm.center, mu, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(factor(algorithm), sigma * b, rtol=1e-7, atol=1e-7 * sigma)
    np.testing.assert_allclose(mu, TARGET, atol=0.05)


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


SCRIPT = """
import numpy as np

from esbench.algorithms.nes import times_exponential

random = np.random.default_rng(0)
vectors = random.standard_normal((20, 150))
reached = times_exponential(np.eye(150), random.standard_normal(20) / 1000, vectors)
print(reached.tobytes().hex())
"""


def test_the_bits_do_not_depend_on_the_number_of_threads():
    """At 150 parameters, those of scipy.linalg.expm do."""
    one, two = printed_with_one_and_two_threads(SCRIPT)
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


@pytest.mark.parametrize("rate", [1e5, 1e308])
def test_an_update_that_would_take_forever_is_refused(rate):
    with pytest.raises(TrainingError, match="sigma_learning_rate"):
        climb(make(sigma_learning_rate=rate), 1)


def test_sigma_is_the_root_mean_square_of_the_parameters_deviations():
    assert make(SIGMA).sigma == pytest.approx(math.sqrt(np.mean(SIGMA**2)))
    algorithm = with_factor(make(), well_conditioned(0, 1.0))
    deviations = np.sqrt(np.diag(factor(algorithm) @ factor(algorithm).T))
    assert algorithm.sigma == pytest.approx(math.sqrt(np.mean(deviations**2)))


@pytest.mark.parametrize("name", ["snes", "xnes"])
def test_rates_decay(name):
    """The second generation of a halved rate is a whole one of half the rate."""
    rates = {"sigma_learning_rate": RATE, "sigma_learning_rate_decay": 0.5}
    halved = maker(name)(**rates, learning_rate=1.0, learning_rate_decay=0.5, weight_decay=0.1)
    climb(halved, 1, tilted)
    half = maker(name)(sigma_learning_rate=RATE / 2, learning_rate=0.5, weight_decay=0.1)
    half.load_state_dict(halved.state_dict())
    for algorithm in (halved, half):
        climb(algorithm, 1, tilted)
    np.testing.assert_allclose(halved.center, half.center, rtol=1e-13)
    assert halved.sigma == pytest.approx(half.sigma, rel=1e-13)


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
