"""SNES and xNES: evotorch's updates, utilities, invariance and the exponential of a matrix."""

import math

import numpy as np
import pytest
import scipy.linalg
from evotorch_oracle import SNES, XNES, Oracle
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from searches import (
    SIZE,
    START,
    P,
    climb,
    maker,
    printed_with_one_and_two_threads,
    quadratic,
    tilted,
)

from esbench.algorithms.nes import times_exponential, utilities_of
from esbench.algorithms.shaping import SHAPINGS
from esbench.core.errors import TrainingError

RATE = (9 + 3 * math.log(P)) / (5 * P * math.sqrt(P))

few = hypothesis_settings(max_examples=15, deadline=None)


def make(sigma=0.1, **given):
    return maker("xnes")(sigma=sigma, **given)


def factor(algorithm):
    return algorithm.state_dict()["factor"]


def with_factor(algorithm, matrix):
    algorithm.load_state_dict({**algorithm.state_dict(), "factor": matrix})
    return algorithm


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


def test_utilities_of_known_returns():
    np.testing.assert_allclose(utilities_of(np.array([1.0, 4.0, 1.0]), "raw"), [-0.25, 0.5, -0.25])
    np.testing.assert_allclose(utilities_of(np.array([0.0, 2.0]), "linear"), [-0.5, 0.5])
    np.testing.assert_array_equal(
        utilities_of(np.array([1.0, 2.0, 3.0, 9.0]), "nes"), SHAPINGS["nes"](np.arange(4.0))
    )
    nan = np.array([5.0, math.nan])
    np.testing.assert_array_equal(utilities_of(nan, "raw"), 0.0)  # the worst finite one, both
    np.testing.assert_allclose(utilities_of(nan, "centered"), [0.5, -0.5])


SIGMA = np.linspace(0.1, 0.4, P)
# The other library's name of a setting.
THEIRS = {
    "learning_rate": "center_learning_rate",
    "sigma_learning_rate": "stdev_learning_rate",
    "sigma_min": "stdev_min",
    "sigma_max": "stdev_max",
    "sigma_max_change": "stdev_max_change",
    "shaping": "ranking_method",
    "optimizer": "optimizer",
    "optimizer_settings": "optimizer_config",
}
SEARCHES = {"snes": (SNES, quadratic), "xnes": (XNES, tilted)}


def both(name, ours):
    """Return our search, evotorch's, and the function."""
    cls, function = SEARCHES[name]
    theirs = {THEIRS[key]: value for key, value in ours.items()}
    if "sigma_learning_rate" in ours:
        theirs["scale_learning_rate"] = False
    oracle = Oracle(cls, START, SIGMA, size=SIZE, **theirs)
    return maker(name)(sigma=SIGMA, **ours), oracle, function


# What evotorch has too. The linear and raw utilities of its SNES have a sum other than 0.
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("snes", {}),
        ("snes", {"sigma_learning_rate": 0.1}),
        ("snes", {"learning_rate": 0.5}),
        ("snes", {"shaping": "centered"}),
        ("snes", {"shaping": "normalized"}),
        ("snes", {"sigma_min": 0.05, "sigma_max": 0.3}),
        ("snes", {"sigma_max_change": 0.02}),
        ("snes", {"optimizer": "clipup", "learning_rate": 0.1}),
        ("snes", {"optimizer": "adam", "learning_rate": 0.1}),
        (
            "snes",
            {"optimizer": "sgd", "learning_rate": 1.0, "optimizer_settings": {"momentum": 0.5}},
        ),
        ("xnes", {}),
        ("xnes", {"sigma_learning_rate": 0.1}),
        ("xnes", {"learning_rate": 0.5}),
    ],
)
def test_a_hundred_updates_are_evotorchs(name, ours):
    algorithm, oracle, function = both(name, ours)
    before = oracle.sigma.copy()
    assert oracle.follow(algorithm, function, 1) < 1e-13
    assert oracle.follow(algorithm, function, 99) < 1e-7
    assert np.abs(algorithm.center - START).max() > 0.01
    assert np.abs(oracle.sigma - before).max() > 0.001
    if name == "xnes":  # more than a deviation for each parameter
        adapted = algorithm.state_dict()["factor"]
        assert np.abs(adapted - np.diag(np.diag(adapted))).max() > 0.05 * np.abs(adapted).max()
