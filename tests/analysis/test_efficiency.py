from __future__ import annotations

import math

import numpy as np
import numpy.testing as npt
import pytest
import scipy.stats

from esbench.analysis.efficiency import (
    even_targets,
    expected_running_time,
    first_reaching,
    first_totals,
    judged,
    mean_return,
    median_total,
    share_interval,
    share_reached,
    share_reached_across,
    spent,
)
from esbench.errors import UsageError
from esbench.training.callbacks import TargetReturn

INF, NAN = math.inf, math.nan


def test_a_policy_is_judged_by_the_mean_of_the_window_and_the_last_one_by_its_score() -> None:
    npt.assert_array_equal(judged([1, 2, 6, 7], 9.0, window=3), [NAN, NAN, 3, 5, 9])
    npt.assert_array_equal(judged([1, 2, 6, 7], window=1), [1, 2, 6, 7, NAN])
    npt.assert_array_equal(judged([1, 2], 9.0, window=3), [NAN, NAN, 9])
    npt.assert_array_equal(judged([], NAN), [NAN])


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_window_with_a_return_that_is_not_finite_says_nothing(bad: float) -> None:
    expected = [NAN, 1.5, NAN, NAN, 4.5, NAN]
    npt.assert_array_equal(judged([1, 2, bad, 4, 5], window=2), expected)
    assert first_totals([10, 20, 30, 40, 50], expected, [4.0]) == 40  # and not when it was infinite


def test_spent_is_nothing_for_the_policy_a_run_begins_with() -> None:
    npt.assert_array_equal(spent([10, 25, 30]), [0, 10, 25, 30])


def test_first_reaching_is_of_the_first_value_although_later_ones_fall() -> None:
    values = [NAN, 3.0, 1.0, NAN, 5.0, 2.0]
    npt.assert_array_equal(first_reaching(values, [-1, 3, 3.5, 5, 5.1]), [1, 1, 4, 4, 6])
    npt.assert_array_equal(first_reaching([NAN, NAN], [0.0]), [2])


def test_a_total_is_what_was_spent_before_the_generation_that_showed_the_return() -> None:
    values = judged([1.0, 2.0, 3.0], 4.0, window=1)
    found = first_totals([10, 25, 45], values, [1.0, 2.5, 3.0, 4.0, 4.5])
    npt.assert_array_equal(found, [0, 25, 25, 45, INF])


def test_a_run_that_is_at_the_target_from_the_start_has_spent_its_window() -> None:
    npt.assert_array_equal(first_totals([10, 25, 45], judged([9, 9, 9], window=1), [9]), [0])
    npt.assert_array_equal(first_totals([10, 25, 45], judged([9, 9, 9], window=2), [9]), [10])


def test_a_run_shorter_than_the_window_is_judged_by_its_score_alone() -> None:
    npt.assert_array_equal(first_totals([10, 25], judged([9, 9], 8.0), [8, 9]), [25, INF])


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_early_stopping_would_stop_has_reached_its_target_there(seed: int) -> None:
    returns = np.random.default_rng(seed).normal(scale=3.0, size=60) + np.linspace(0, 4, 60)
    stop = TargetReturn(2.0, window=4)
    record = type("Record", (), {})
    expected = INF
    for number, value in enumerate(returns):
        record.center_return = float(value)
        if stop(record):  # type: ignore[arg-type]
            expected = 10.0 * number
            break
    totals = 10.0 * np.arange(1, 61)
    assert first_totals(totals, judged(returns, window=4), [2.0]) == expected


def test_the_interval_of_a_share_is_wilsons() -> None:
    # By hand: n = 10, p = 1/2, z = 1.959964: centre 1/2, half width z sqrt(p q / n + z^2 / 4 n^2)
    # / (1 + z^2 / n) = 0.26340.
    npt.assert_allclose(share_interval(5, 10), [0.2366, 0.7634], atol=5e-5)
    low, high = share_interval(3, 3)  # 1 / (1 + z^2 / n) = 0.43850
    assert (round(low, 4), high) == (0.4385, 1.0)
    assert share_interval(0, 3) == pytest.approx((0.0, 0.5615), abs=5e-5)
    assert np.isnan(share_interval(2, 2)).all()


def test_the_median_is_over_all_runs_those_that_never_reached_it_too() -> None:
    assert median_total([30, 10, 20], [100, 100, 100]) == 20
    assert median_total([30, INF, 10], [100, 100, 100]) == 30
    assert median_total([10, 20, INF, INF], [100] * 4) == 20  # half did
    assert median_total([10, INF, INF], [100] * 3) == INF
    assert median_total([INF, INF], [100, 100]) == INF
    assert median_total([0, 0, INF], [100] * 3) == 0
    assert median_total([7], [100]) == 7


def test_the_median_respects_runs_that_ended_early() -> None:
    # Kaplan and Meier by hand: 4 at risk at 10, 3/4 remain; one is censored at 15; 2 at risk at 20,
    # 3/4 x 1/2 = 3/8 remain. Counted as runs that failed they would have made it infinite.
    assert median_total([10, 20, INF, INF], [100, 100, 15, 100]) == 20
    # 5 at risk at 10, 4/5; censored at 12 and 13; 2 at risk at 40: 2/5 remain.
    assert median_total([10, INF, INF, 40, INF], [100, 12, 13, 100, 100]) == 40
    # A run that is censored after the others' totals counts as one that takes longer.
    assert median_total([10, INF, INF, 40, INF], [100, 100, 100, 100, 100]) == INF


def test_the_median_is_not_missed_by_rounding() -> None:
    for runs in range(2, 60, 2):
        times = [*range(runs // 2), *[INF] * (runs // 2)]
        assert median_total(times, [100] * runs) == runs // 2 - 1


def test_expected_running_time_is_all_that_was_spent_over_the_runs_that_reached_it() -> None:
    assert expected_running_time([10, 30, INF, INF], [100, 100, 100, 60]) == (10 + 30 + 160) / 2
    assert expected_running_time([10, 30], [100, 100]) == 20
    assert expected_running_time([INF, INF], [100, 100]) == INF
    assert expected_running_time([0.0, INF], [50, 50]) == 50


def test_mean_return_is_the_area_of_a_staircase() -> None:
    # 4 until 10, 6 until 30, 2 until 40.
    totals, returns = [10, 30, 40], [4.0, 6.0, 2.0]
    assert mean_return(totals, returns, 40) == (4 * 10 + 6 * 20 + 2 * 10) / 40
    assert mean_return(totals, returns, 20) == (4 * 10 + 6 * 10) / 20
    assert mean_return(totals, returns, 10) == 4
    assert math.isnan(mean_return(totals, returns, 41))
    assert math.isnan(mean_return([], [], 1))


def test_mean_return_is_nan_for_a_return_that_is_not_finite_within_the_budget_only() -> None:
    for bad in (NAN, INF, -INF):
        assert math.isnan(mean_return([10, 20, 30], [1.0, bad, 1.0], 30))
        assert mean_return([10, 20, 30], [1.0, bad, 1.0], 10) == 1


def test_targets_are_evenly_spaced_and_end_with_the_reference() -> None:
    npt.assert_allclose(even_targets(-200.0, -100.0, 4), [-175, -150, -125, -100])
    targets = even_targets(22.63, 500.0)
    assert targets.shape == (50,)
    assert targets[-1] == 500
    assert targets[0] > 22.63


def test_share_reached_counts_pairs_of_run_and_target() -> None:
    totals = [[0.0, 10.0], [20.0, INF]]
    npt.assert_array_equal(
        share_reached(totals, [0, 9, 10, 20, 1e9]), [0.25, 0.25, 0.5, 0.75, 0.75]
    )


def test_environments_weigh_the_same_however_many_seeds_they_have() -> None:
    one = [[10.0, INF]]
    three = [[10.0, 20.0], [10.0, 20.0], [10.0, 20.0]]
    found = share_reached_across([one, three], [5, 10, 20])
    npt.assert_allclose(found, [0, (0.5 + 0.5) / 2, (0.5 + 1) / 2])
    npt.assert_array_equal(share_reached_across([one], [5, 10]), [0, 0.5])


def test_share_reached_is_the_ecdf_of_scipy() -> None:
    times = np.random.default_rng(0).exponential(size=(7, 3))
    points = np.linspace(0, 3, 11)
    npt.assert_allclose(
        share_reached(times, points), scipy.stats.ecdf(times.ravel()).cdf.evaluate(points)
    )


def test_broken_input_is_refused() -> None:
    with pytest.raises(UsageError, match="window = 0"):
        judged([1.0], window=0)
    with pytest.raises(UsageError, match=r"shape \(1, 2\)"):
        judged([[1.0, 2.0]])
    with pytest.raises(UsageError, match="2 totals and 2 values"):
        first_totals([1, 2], [1, 2], [0])
    with pytest.raises(UsageError, match="0 totals and 0 budgets"):
        median_total([], [])
    with pytest.raises(UsageError, match="1 totals and 2 budgets"):
        expected_running_time([1], [1, 2])
    with pytest.raises(UsageError, match="budget = 0"):
        mean_return([1], [1], 0)
    with pytest.raises(UsageError, match="2 totals and 1 returns"):
        mean_return([1, 2], [1], 1)
    with pytest.raises(UsageError, match="expected one above"):
        even_targets(5.0, 5.0)
    with pytest.raises(UsageError, match="no run or no target"):
        share_reached([], [1])
    with pytest.raises(UsageError, match="no environment"):
        share_reached_across([], [1])
