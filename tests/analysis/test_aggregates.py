from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from esbench.analysis import aggregates, statistics
from esbench.analysis.aggregates import (
    hedges_g,
    iqm,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profile_interval,
    stratified_interval,
)
from esbench.analysis.error_rates import DISTRIBUTIONS
from esbench.errors import UsageError
from esbench.seeding import Purpose, stream

# Three environments with two, three and four runs; means 1, 2 and 0.5.
STRATA = ([0.0, 2.0], [1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0])


def test_mean_and_median_count_environments_alike() -> None:
    assert mean(*STRATA) == pytest.approx(3.5 / 3)
    assert median(*STRATA) == 1.0


def test_optimality_gap_by_hand() -> None:
    # Short of 1: 1/2 on average, 0, 1/2.
    assert optimality_gap(*STRATA) == pytest.approx(1 / 3)
    assert optimality_gap([0.5], [3.0], target=2.0) == pytest.approx(0.75)


def test_performance_profile_by_hand() -> None:
    # Above 0: 1/2, 1, 1/2; above 1: 1/2, 2/3, 0; above 3: none.
    np.testing.assert_allclose(performance_profile(STRATA, [0.0, 1.0, 3.0]), [2 / 3, 7 / 18, 0.0])


def test_iqm_of_equally_many_runs_is_the_trimmed_mean_of_all() -> None:
    rng = np.random.default_rng(0)
    for runs in (1, 2, 3, 5, 8):
        strata = rng.normal(size=(3, runs))
        assert iqm(*strata) == pytest.approx(scipy.stats.trim_mean(strata.ravel(), 0.25))
    assert iqm([1.0, 2.0, 3.0, 50.0]) == statistics.iqm([1.0, 2.0, 3.0, 50.0]) == 2.5


def test_iqm_of_unequally_many_runs_by_hand() -> None:
    # Four runs in all, one of them is cut at each end: two runs that weigh 2 (a half of four over
    # one) and 2/3 each (a half of four over three). In order 0 (2/3), 1 (2), 2 (2/3), 9 (2/3):
    # what lies between 1 and 3 is 5/3 of 1 and 1/3 of 2.
    assert iqm([1.0], [0.0, 2.0, 9.0]) == pytest.approx((5 / 3 + 2 / 3) / 2)


def test_a_run_counted_twice_changes_nothing_between_environments() -> None:
    once, other = [0.2, 0.7, 0.1, 0.5], [0.9, 0.3, 0.4, 0.8]
    assert iqm(np.repeat(once, 2), other) == pytest.approx(float(iqm(once, other)))


def test_statistics_broadcast_over_resamples() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(6, 4)), rng.normal(size=(6, 7))
    for statistic in (mean, median, iqm, optimality_gap):
        rows = [float(statistic(a, b)) for a, b in zip(ours, theirs, strict=True)]
        np.testing.assert_allclose(statistic(ours, theirs, axis=-1), rows)
    rows = [float(probability_of_improvement(a, b)) for a, b in zip(ours, theirs, strict=True)]
    np.testing.assert_allclose(probability_of_improvement(ours, theirs), rows)


def test_probability_of_improvement_is_mann_whitneys_u_over_the_pairs() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=9).round(1), rng.normal(size=5).round(1)
    u = scipy.stats.mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement(ours, theirs) == pytest.approx(u / 45)
    assert probability_of_improvement([1.0, 1.0], [1.0]) == 0.5
    assert probability_of_improvement([2.0], [1.0]) == 1.0


def test_hedges_g_by_hand() -> None:
    # Means 3 and 2, both variances 1, four degrees of freedom: 1 - 3 / 15.
    assert hedges_g([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]) == pytest.approx(0.8)
    assert math.isnan(hedges_g([1.0, 1.0], [2.0, 2.0]))
    assert math.isnan(hedges_g([1.0], [2.0]))


# Intervals


def test_percentile_interval_of_one_environment_is_that_of_the_table() -> None:
    values = np.random.default_rng(1).normal(size=9)
    ends = stratified_interval(iqm, [values])
    np.testing.assert_allclose(ends, statistics.bootstrap_interval(values), atol=0.05)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_intervals_are_scipys_on_the_same_resamples(method: str) -> None:
    strata = [np.random.default_rng(1).normal(size=9), np.random.default_rng(2).normal(size=6)]
    expected = scipy.stats.bootstrap(
        strata,
        mean,
        vectorized=True,
        n_resamples=aggregates.RESAMPLES,
        method="BCa" if method == "bca" else "percentile",
        rng=stream(3, Purpose.BOOTSTRAP),
    ).confidence_interval
    found = stratified_interval(mean, strata, method, seed=3)  # type: ignore[arg-type]
    assert found == pytest.approx((expected.low, expected.high), rel=1e-15)


def test_the_profiles_interval_is_that_of_the_share_at_each_threshold() -> None:
    rng = np.random.default_rng(1)
    strata = [rng.normal(size=9).round(), rng.normal(size=6).round()]
    thresholds = [-1.0, 0.0, 0.3, 2.0]
    low, high = profile_interval(strata, thresholds, seed=3, resamples=999)
    for index, threshold in enumerate(thresholds):

        def share(*drawn: np.ndarray, axis: int, above: float = threshold) -> np.ndarray:
            return mean(*(stratum > above for stratum in drawn), axis=axis)

        ends = scipy.stats.bootstrap(
            strata,
            share,
            vectorized=True,
            n_resamples=999,
            method="percentile",
            rng=stream(3, Purpose.BOOTSTRAP),
        ).confidence_interval
        assert (low[index], high[index]) == pytest.approx((ends.low, ends.high), rel=1e-12)
        assert low[index] <= performance_profile(strata, thresholds)[index] <= high[index]
    assert low[2] < high[2]


def test_a_run_that_diverged_is_above_nothing_and_two_runs_have_no_interval() -> None:
    low, high = profile_interval([[-np.inf, -np.inf, -np.inf]], [-9.0, 0.0])
    np.testing.assert_array_equal([low, high], np.zeros((2, 2)))
    assert np.isnan(profile_interval([[1.0, 2.0, 3.0], [1.0, 2.0]], [0.0])).all()
    with pytest.raises(UsageError, match="no scores"):
        profile_interval([], [0.0])


def test_runs_are_drawn_within_their_environment() -> None:
    # Without strata a resample could miss an environment, and the interval would not be a point.
    for method in ("percentile", "bca"):
        ends = stratified_interval(mean, [[0.0] * 4, [10.0] * 5], method)  # type: ignore[arg-type]
        assert ends == (5.0, 5.0)


def test_no_interval_below_three_runs_or_with_a_run_that_is_not_finite() -> None:
    for strata in ([[1.0, 2.0]], [[1.0, 2.0, 3.0], [1.0, 2.0]], [[1.0, 2.0, math.nan]]):
        assert all(map(math.isnan, stratified_interval(mean, strata)))


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="confidence = 95"):
        stratified_interval(mean, [[1.0, 2.0, 3.0]], confidence=95)
    with pytest.raises(UsageError, match="no scores"):
        stratified_interval(mean, [])


@pytest.mark.parametrize("name", ["normal", "heavy-tailed"])
def test_intervals_cover_about_as_often_as_is_written_down(name: str) -> None:
    rng = np.random.default_rng(0)
    draw = DISTRIBUTIONS[name]
    covered = 0
    for number in range(150):
        strata = [draw(rng, 10, 0.0), draw(rng, 10, 0.0)]
        low, high = stratified_interval(_difference, strata, seed=number, resamples=499)
        covered += low <= 0 <= high
    assert 0.88 < covered / 150 <= 1.0


def _difference(ours: np.ndarray, theirs: np.ndarray, axis: int = -1) -> np.ndarray:
    return iqm(ours, axis=axis) - iqm(theirs, axis=axis)
