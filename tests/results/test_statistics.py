from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.estimates import (
    RESAMPLES,
    bootstrap_interval,
    iqm,
    normalized,
    tail_mean,
)


@pytest.mark.parametrize("points", [(), (1,), (7,), (100,)])
def test_iqm_is_scipys_trimmed_mean_to_the_last_bit(points: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for runs in range(1, 41):
        values = rng.normal(scale=10 ** rng.uniform(-5, 5), size=(runs, *points))
        np.testing.assert_array_equal(iqm(values), scipy.stats.trim_mean(values, 0.25, axis=0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_run_that_is_not_finite_is_never_trimmed_away(bad: float) -> None:
    values = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, bad]])
    np.testing.assert_array_equal(iqm(values), [2.5, np.nan])
    low, high = bootstrap_interval(values)
    assert np.isfinite([low[0], high[0]]).all()
    assert np.isnan([low[1], high[1]]).all()


@pytest.mark.parametrize("runs", [3, 4, 5, 6])
def test_the_interval_of_few_runs_is_that_of_all_their_resamples(runs: int) -> None:
    values = np.random.default_rng(runs).normal(size=(runs, 2))
    resamples = values[list(itertools.product(range(runs), repeat=runs))]
    iqms = np.sort(scipy.stats.trim_mean(resamples, 0.25, axis=1), axis=0)
    outside = int(0.025 * len(iqms))  # at each end
    ends = iqms[outside], iqms[len(iqms) - 1 - outside]
    np.testing.assert_allclose(bootstrap_interval(values), ends, rtol=1e-12)


@pytest.mark.parametrize("runs", [9, 10, 16])
def test_the_interval_of_many_runs_is_scipys_on_the_same_resamples(runs: int) -> None:
    # Ranks are resampled, so scipy sees the same resamples if the values come sorted.
    values = np.sort(np.random.default_rng(runs).normal(size=runs))
    expected = scipy.stats.bootstrap(
        (values,),
        lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=stream(0, Purpose.BOOTSTRAP),
    ).confidence_interval
    np.testing.assert_allclose(bootstrap_interval(values), expected, rtol=1e-12)


def test_each_point_has_its_own_interval_whatever_the_order_of_its_runs() -> None:
    values = np.random.default_rng(0).normal(size=(5, 4))
    low, high = bootstrap_interval(values)
    assert low.shape == high.shape == (4,)
    for point in range(4):
        alone = bootstrap_interval(values[::-1, point])
        np.testing.assert_allclose(alone, (low[point], high[point]), rtol=1e-12)
    assert bootstrap_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.parametrize("runs", [1, 2])
def test_no_interval_below_three_runs(runs: int) -> None:
    assert np.isnan(bootstrap_interval(np.arange(runs, dtype=float))).all()
    low, high = bootstrap_interval(np.ones((runs, 4)))
    assert np.isnan(low).all()
    assert np.isnan(high).all()
    assert low.shape == high.shape == (4,)


def test_normalized_is_0_at_random_and_1_at_the_reference() -> None:
    assert normalized(-200.0, -200.0, 100.0) == 0
    assert normalized(100.0, -200.0, 100.0) == 1
    assert normalized(-50.0, -200.0, 100.0) == 0.5
    assert np.isnan(normalized(1.0, np.nan, 100.0))
    for reference in (1.0, 0.5, np.nan):  # a scale that ends where it begins, or is reversed
        assert np.isnan(normalized(3.0, 1.0, reference))


def test_the_tail_is_the_mean_of_the_worst_tenth() -> None:
    # Ten of 100 episodes fall, at -600 to -609: the mean of all hides it.
    episodes = [4590.0] * 90 + [-600.0 - n for n in range(10)]
    assert tail_mean(np.random.default_rng(0).permutation(episodes)) == -604.5
    for count, worst in ((1, 1), (10, 1), (11, 2), (20, 2), (30, 3), (100, 10)):
        values = np.random.default_rng(count).normal(size=count)
        lowest = np.partition(values, worst - 1)[:worst]
        assert tail_mean(values) == pytest.approx(np.mean(lowest), rel=1e-12)
    for bad in ([], [1.0, np.nan], [1.0, np.inf], [None, 1.0]):
        assert np.isnan(tail_mean(bad))
