from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.estimates import (
    PROFILE_RESAMPLES,
    RESAMPLES,
    STRATIFIED_RESAMPLES,
    StrataStatistic,
    bootstrap_interval,
    hedges_g,
    improvement_interval,
    iqm,
    iqm_across,
    mean_across,
    median_across,
    normalized,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profile_interval,
    stratified_interval,
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


# Three environments with two, three and four runs; means 1, 2 and 0.5.
STRATA = ([0.0, 2.0], [1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0])


def test_environments_count_alike() -> None:
    assert mean_across(*STRATA) == pytest.approx(3.5 / 3)
    assert median_across(*STRATA) == 1.0
    # Short of 1: 1/2 on average, 0, 1/2.
    assert optimality_gap(*STRATA) == pytest.approx(1 / 3)
    # Above 0: 1/2, 1, 1/2; above 1: 1/2, 2/3, 0; above 3: none.
    np.testing.assert_allclose(performance_profile(STRATA, [0.0, 1.0, 3.0]), [2 / 3, 7 / 18, 0.0])


def test_iqm_of_equally_many_runs_is_the_trimmed_mean_of_all() -> None:
    rng = np.random.default_rng(0)
    for runs in (1, 2, 3, 5, 8):
        strata = rng.normal(size=(3, runs))
        assert iqm_across(*strata) == pytest.approx(scipy.stats.trim_mean(strata.ravel(), 0.25))
    assert iqm_across([1.0, 2.0, 3.0, 50.0]) == iqm([1.0, 2.0, 3.0, 50.0]) == 2.5


def test_iqm_of_unequally_many_runs_by_hand() -> None:
    # Four runs in all, one of them is cut at each end: two runs that weigh 2 (a half of four over
    # one) and 2/3 each (a half of four over three). In order 0 (2/3), 1 (2), 2 (2/3), 9 (2/3):
    # what lies between 1 and 3 is 5/3 of 1 and 1/3 of 2.
    assert iqm_across([1.0], [0.0, 2.0, 9.0]) == pytest.approx((5 / 3 + 2 / 3) / 2)


def test_statistics_broadcast_over_resamples() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(6, 4)), rng.normal(size=(6, 7))
    for statistic in (mean_across, median_across, iqm_across, optimality_gap):
        rows = [float(statistic(a, b)) for a, b in zip(ours, theirs, strict=True)]
        np.testing.assert_allclose(statistic(ours, theirs), rows)
    rows = [float(probability_of_improvement(a, b)) for a, b in zip(ours, theirs, strict=True)]
    np.testing.assert_allclose(probability_of_improvement(ours, theirs), rows)


def test_probability_of_improvement_is_mann_whitneys_u_over_the_pairs() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=9).round(1), rng.normal(size=5).round(1)
    u = scipy.stats.mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement(ours, theirs) == pytest.approx(u / 45)
    assert probability_of_improvement([1.0, 1.0], [1.0]) == 0.5
    assert probability_of_improvement([2.0], [1.0]) == 1.0


@pytest.mark.parametrize("runs", [(3, 3), (5, 5), (4, 12)])
@pytest.mark.parametrize("difference", [0.0, 1.0, 2.0])
def test_the_interval_of_the_probability_covers_it(
    runs: tuple[int, int], difference: float
) -> None:
    random, covered, trials = np.random.default_rng(0), 0, 600
    chance = NormalDist().cdf(difference / math.sqrt(2))
    for _ in range(trials):
        ours, theirs = (random.normal(size=size) for size in runs)
        found = float(probability_of_improvement(ours + difference, theirs))
        low, high = improvement_interval(found, runs)
        assert low <= found <= high
        covered += low <= chance <= high
    assert 0.87 < covered / trials < 0.99


def test_hedges_g_by_hand() -> None:
    # Means 3 and 2, both variances 1, four degrees of freedom: 1 - 3 / 15.
    assert hedges_g(np.arange(2.0, 5.0), np.arange(1.0, 4.0)) == pytest.approx(0.8)
    assert math.isnan(hedges_g(np.ones(2), np.zeros(2)))
    assert math.isnan(hedges_g(np.ones(1), np.zeros(1)))
    # 0.7 is not the mean of seven of it, to the last bit.
    assert math.isnan(hedges_g(np.full(7, 1 / 3), np.full(7, 0.7)))


# Intervals


def scipys(
    strata: list[np.ndarray], statistic: StrataStatistic, resamples: int
) -> tuple[float, float]:
    """SciPy's interval of the same resamples."""
    low, high = scipy.stats.bootstrap(
        strata,
        lambda *drawn, axis: statistic(*drawn),
        vectorized=True,
        n_resamples=resamples,
        method="percentile",
        rng=stream(0, Purpose.BOOTSTRAP),
    ).confidence_interval
    return float(low), float(high)


def test_the_interval_of_two_small_sides_is_that_of_all_their_resamples() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=4), rng.normal(size=3)

    def difference(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Floats:
        return mean_across(ours) - mean_across(theirs)

    every = [
        first[list(ours)].mean() - second[list(theirs)].mean()
        for ours in itertools.product(range(4), repeat=4)
        for theirs in itertools.product(range(3), repeat=3)
    ]
    outside = int(0.025 * len(every))
    ends = sorted(every)[outside], sorted(every)[-1 - outside]
    assert stratified_interval(difference, [first, second]) == pytest.approx(ends, rel=1e-12)


def test_the_interval_is_scipys_on_the_same_resamples() -> None:
    strata = [np.random.default_rng(1).normal(size=9), np.random.default_rng(2).normal(size=6)]
    expected = scipys(strata, mean_across, STRATIFIED_RESAMPLES)
    assert stratified_interval(mean_across, strata) == pytest.approx(expected, rel=1e-15)


def test_the_profiles_interval_is_that_of_the_share_at_each_threshold() -> None:
    rng = np.random.default_rng(1)
    strata = [rng.normal(size=9).round(), rng.normal(size=6).round()]
    thresholds = [-1.0, 0.0, 0.3, 2.0]
    low, high = profile_interval(strata, thresholds)
    for index, threshold in enumerate(thresholds):

        def share(*drawn: np.ndarray, above: float = threshold) -> np.ndarray:
            return mean_across(*(stratum > above for stratum in drawn))

        ends = scipys(strata, share, PROFILE_RESAMPLES)
        assert (low[index], high[index]) == pytest.approx(ends, rel=1e-12)
        assert low[index] <= performance_profile(strata, thresholds)[index] <= high[index]
    assert low[2] < high[2]


def test_no_interval_below_three_runs_or_with_a_run_that_is_not_finite() -> None:
    low, high = profile_interval([[-np.inf] * 3], [-9.0, 0.0])  # diverged: above nothing
    np.testing.assert_array_equal([low, high], np.zeros((2, 2)))
    assert np.isnan(profile_interval([[1.0, 2.0, 3.0], [1.0, 2.0]], [0.0])).all()
    for strata in ([[1.0, 2.0]], [[1.0, 2.0, 3.0], [1.0, 2.0]], [[1.0, 2.0, math.nan]]):
        assert all(map(math.isnan, stratified_interval(mean_across, strata)))
    assert np.isnan(improvement_interval(1.0, (2, 9))).all()
    for runs in (1, 2):
        assert np.isnan(bootstrap_interval(np.ones((runs, 4)))).all()
