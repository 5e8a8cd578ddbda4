import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esbench.algorithms.shaping import (
    SHAPINGS,
    center_rank,
    centered,
    linear,
    nes,
    normalized,
    ranks,
    raw,
)

NAN, INF = math.nan, math.inf
quick = settings(deadline=None, derandomize=True, max_examples=100)

whole = st.integers(-50, 50).map(float)
not_finite = st.sampled_from([NAN, INF, -INF])


@st.composite
def returns_with_failures(draw):
    values = draw(st.lists(st.one_of(whole, whole, whole, not_finite), min_size=1, max_size=20))
    return np.array([*values, draw(whole)])  # at least one is finite, as ``tell`` demands


def array(*values):
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([-123, -50, 3, -5, 20, 10, 100], [-1 / 2, -1 / 3, 0, -1 / 6, 1 / 3, 1 / 6, 1 / 2]),
        ([1, 2], [-0.5, 0.5]),
        ([5, 1, 5, 3], [1 / 3, -0.5, 1 / 3, -1 / 6]),
        ([0, 0, 1, 1], [-1 / 3, -1 / 3, 1 / 3, 1 / 3]),
        ([2, 2, 2, 2], [0, 0, 0, 0]),
        ([7], [0]),
        ([1, NAN, 3], [0, -0.5, 0.5]),
        ([NAN, 1, INF, -INF, 2], [-0.25, 0.25, -0.25, -0.25, 0.5]),
    ],
)
def test_centered(returns, expected):
    np.testing.assert_allclose(centered(array(*returns)), expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(linear(array(*returns)), centered(array(*returns)) + 0.5)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([30, 10, 20], [2, 0, 1]),
        ([1, 1, 0], [1.5, 1.5, 0]),
        ([4, 4, 4], [1, 1, 1]),
        ([0.0, -0.0], [0.5, 0.5]),
        ([NAN, 5, INF], [0.5, 2, 0.5]),
        ([7], [0]),
    ],
)
def test_ranks_count_from_the_worst_and_share_ties(returns, expected):
    np.testing.assert_array_equal(ranks(array(*returns)), expected)


def nes_as_printed(returns):
    """Wierstra et al. 2014, section 3.1, for returns without ties."""
    size = len(returns)
    best_first = sorted(returns, reverse=True)
    places = [best_first.index(value) + 1 for value in returns]
    utilities = [max(0.0, math.log(size / 2 + 1) - math.log(k)) for k in places]
    return [utility / sum(utilities) - 1 / size for utility in utilities]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 50])
def test_nes_is_the_published_formula(size):
    returns = np.random.default_rng(size).standard_normal(size)
    np.testing.assert_allclose(nes(returns), nes_as_printed(returns.tolist()), rtol=0, atol=1e-15)


def test_nes_shares_ties():
    one, two, three, four = nes(array(4, 3, 2, 1))
    shared = [(one + two) / 2] * 2 + [(three + four) / 2] * 2
    np.testing.assert_allclose(nes(array(9, 9, 1, 1)), shared, rtol=0, atol=1e-15)
    failed = [one, two, (three + four) / 2, (three + four) / 2]
    np.testing.assert_allclose(nes(array(9, 8, NAN, INF)), failed, rtol=0, atol=1e-15)


def test_raw_is_the_returns_with_failures_as_the_worst():
    np.testing.assert_array_equal(raw(array(3, -1, 2)), [3, -1, 2])
    np.testing.assert_array_equal(raw(array(3, NAN, INF, -INF, 2)), [3, 2, 2, 2, 2])


def test_normalized():
    # mean 3, population variance (4 + 0 + 4) / 3
    deviation = math.sqrt(8 / 3)
    expected = [-2 / deviation, 0, 2 / deviation]
    np.testing.assert_allclose(normalized(array(1, 3, 5)), expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(normalized(array(NAN, 3, 1)), normalized(array(1, 3, 1)))


@pytest.mark.parametrize("name", SHAPINGS)
@quick
@given(returns=returns_with_failures())
def test_higher_is_better_and_equal_is_equal(name, returns):
    weights = SHAPINGS[name](returns)
    values = np.where(np.isfinite(returns), returns, -INF)
    order = np.argsort(values, kind="stable")
    finite = order[np.isfinite(values[order])]
    assert (np.diff(weights[order]) >= 0).all()
    equal = np.diff(values[finite]) == 0
    assert (np.diff(weights[finite])[equal] == 0).all()


@pytest.mark.parametrize(
    ("center", "returns", "expected"),
    [
        (2, [1, 2, 3], 2.5),
        (NAN, [1, 2, 3], 4),
        (NAN, [1, NAN, 3], 3.5),
        (INF, [1, 2, 3], 4),
        (1, [NAN, INF, -INF], 1),
    ],
)
def test_center_rank(center, returns, expected):
    assert center_rank(center, array(*returns)) == expected
