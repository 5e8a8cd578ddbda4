from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import scipy.stats

from esbench.experiment.watchers import TargetReturn
from esbench.results.run import Run
from esbench.results.statistics.curves import (
    align,
    blocks,
    curve_band,
    expected_running_time,
    first_totals,
    generation_curve,
    mean_return,
    median_total,
    on_grid,
    policy_returns,
    share_interval,
    share_reached,
)


def test_align_interpolates_from_the_largest_first_to_the_smallest_last_x() -> None:
    grid, values = align([[0, 10, 20], [5, 15]], [[0, 100, 0], [1, 3]], points=3)
    npt.assert_array_equal(grid, [5, 10, 15])
    npt.assert_array_equal(values, [[50, 100, 50], [1, 2, 3]])
    # A gap stays where a run has NaN.
    _, values = align([[0, 1, 2, 3]], [[1, 2, np.nan, 4]], points=7)
    npt.assert_array_equal(values[0, :3], [1, 1.5, 2])
    assert np.isnan(values[0, 3:6]).all()
    assert values[0, 6] == 4


def test_blocks_average_neighbors() -> None:
    npt.assert_array_equal(blocks([1, 3, 5, 7], most=2), [2, 6])
    npt.assert_array_equal(blocks([1, 3, 5, 7, 9], most=2), [2, 7])
    npt.assert_array_equal(blocks([[1, 3], [5, np.nan]], most=1), [[2], [np.nan]])
    npt.assert_array_equal(blocks([1, 3, 5], most=3), [1, 3, 5])
    npt.assert_allclose(blocks(np.ones(1003), most=100), np.ones(100))


def test_learning_curve_puts_a_return_where_its_policy_was_and_not_after_the_update() -> None:
    band = curve_band(*on_grid([[10, 20, 30]], [[1.0, 2.0, 3.0]], points=5))
    npt.assert_array_equal(band.x, [0, 5, 10, 15, 20])
    npt.assert_array_equal(band.iqm, [1, 1.5, 2, 2.5, 3])
    assert np.isnan(band.low).all()
    # Totals may stand still, and the shortest of unequal runs ends the curve.
    band = curve_band(*on_grid([[0.0, 0.0]], [[1.0, 2.0]], points=3))
    npt.assert_array_equal(band.x, [0, 0, 0])
    band = curve_band(*on_grid([[10, 20, 30], [10, 20]], [[1.0, 2.0, 3.0], [3.0, 4.0]], points=3))
    npt.assert_array_equal(band.x, [0, 5, 10])
    npt.assert_array_equal(band.iqm, [2, 2.5, 3])


def test_generation_curve_counts_generations_from_1_and_cuts_to_the_shortest() -> None:
    band = generation_curve([[0.0, 0.5, 1.0], [0.5, 0.5], [1.0, 0.5, 0.0]])
    npt.assert_array_equal(band.x, [1, 2])
    npt.assert_array_equal(band.iqm, [0.5, 0.5])
    npt.assert_array_equal(band.low, [0, 0.5])
    npt.assert_array_equal(band.high, [1, 0.5])
    # Many generations are averaged.
    band = generation_curve([np.tile([0.0, 1.0], 50)], points=25)
    npt.assert_array_equal(band.x[:2], [2.5, 6.5])
    npt.assert_array_equal(band.iqm, np.full(25, 0.5))


INF, NAN = math.inf, math.nan


def test_a_policy_is_judged_by_the_mean_of_the_window_and_the_last_one_by_its_score() -> None:
    npt.assert_array_equal(policy_returns([1, 2, 6, 7], 9.0, window=3), [NAN, NAN, 3, 5, 9])
    npt.assert_array_equal(policy_returns([1, 2, 6, 7], window=1), [1, 2, 6, 7, NAN])
    npt.assert_array_equal(policy_returns([1, 2], 9.0, window=3), [NAN, NAN, 9])
    npt.assert_array_equal(policy_returns([], NAN), [NAN])


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_window_with_a_return_that_is_not_finite_says_nothing(bad: float) -> None:
    expected = [NAN, 1.5, NAN, NAN, 4.5, NAN]
    npt.assert_array_equal(policy_returns([1, 2, bad, 4, 5], window=2), expected)
    assert first_totals([10, 20, 30, 40, 50], expected, [4.0]) == 40  # and not when it was infinite


@pytest.mark.parametrize(
    ("values", "targets", "expected"),
    [
        # The first value counts although later ones fall.
        ([NAN, 3.0, 1.0, NAN, 5.0, 2.0], [-1, 3, 3.5, 5, 5.1], [10, 10, 40, 40, INF]),
        ([NAN] * 6, [0.0], [INF]),
        # A policy costs what was spent before the generation that showed its return.
        (
            policy_returns([1, 2, 3, 3, 3], 4.0, window=1),
            [1.0, 2.5, 3.0, 4.0, 4.5],
            [0, 20, 20, 50, INF],
        ),
        (policy_returns([9] * 5, window=1), [9], [0]),
        (policy_returns([9] * 5, window=2), [9], [10]),
        (policy_returns([9] * 5, 8.0, window=6), [8, 9], [50, INF]),  # shorter than the window
    ],
)
def test_the_total_at_which_a_target_is_first_reached(
    values: list[float], targets: list[float], expected: list[float]
) -> None:
    npt.assert_array_equal(first_totals([10, 20, 30, 40, 50], values, targets), expected)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_early_stopping_would_stop_has_reached_its_target_there(seed: int) -> None:
    returns = np.random.default_rng(seed).normal(scale=3.0, size=60) + np.linspace(0, 4, 60)
    stop = TargetReturn(2.0, window=4)
    expected = INF
    for number, value in enumerate(returns):
        record: Any = SimpleNamespace(center_return=float(value))
        if stop(record):
            expected = 10.0 * number
            break
    totals = 10.0 * np.arange(1, 61)
    assert first_totals(totals, policy_returns(returns, window=4), [2.0]) == expected


def test_the_interval_of_a_share_is_wilsons() -> None:
    # By hand: n = 10, p = 1/2, z = 1.959964: center 1/2, half width z sqrt(p q / n + z^2 / 4 n^2)
    # / (1 + z^2 / n) = 0.26340.
    npt.assert_allclose(share_interval(5, 10), [0.2366, 0.7634], atol=5e-5)
    low, high = share_interval(3, 3)  # 1 / (1 + z^2 / n) = 0.43850
    assert (round(low, 4), high) == (0.4385, 1.0)
    assert share_interval(0, 3) == pytest.approx((0.0, 0.5615), abs=5e-5)
    assert np.isnan(share_interval(2, 2)).all()


@pytest.mark.parametrize(
    ("totals", "median"),
    [
        # Of all runs, those that never reached it too.
        ([30, 10, 20], 20),
        ([30, INF, 10], 30),
        ([10, 20, INF, INF], 20),  # half did
        ([10, INF, INF], INF),
        ([INF, INF], INF),
        ([0, 0, INF], 0),
    ],
)
def test_the_median_total(totals: list[float], median: float) -> None:
    assert median_total(totals) == median


def test_expected_running_time_is_all_that_was_spent_over_the_runs_that_reached_it() -> None:
    assert expected_running_time([10, 30, INF, INF], [100, 100, 100, 60]) == (10 + 30 + 160) / 2
    assert expected_running_time([10, 30], [100, 100]) == 20
    assert expected_running_time([INF, INF], [100, 100]) == INF
    assert expected_running_time([0.0, INF], [50, 50]) == 50


def test_mean_return_is_the_area_of_a_staircase() -> None:
    # 4 until 10, 6 until 30, 2 until 40, then the final policy with 8.
    totals, returns = [10, 30, 40], [4.0, 6.0, 2.0]
    assert mean_return(totals, returns, 8.0, 50) == (4 * 10 + 6 * 20 + 2 * 10 + 8 * 10) / 50
    assert mean_return(totals, returns, 8.0, 40) == (4 * 10 + 6 * 20 + 2 * 10) / 40
    assert mean_return(totals, returns, 8.0, 20) == (4 * 10 + 6 * 10) / 20
    assert mean_return(totals, returns, 8.0, 10) == 4
    for bad in (NAN, INF, -INF):  # matters within the budget only
        assert math.isnan(mean_return([10, 20, 30], [1.0, bad, 1.0], 1.0, 30))
        assert mean_return([10, 20, 30], [1.0, bad, 1.0], bad, 10) == 1


def test_share_reached_counts_triples_and_weighs_environments_the_same() -> None:
    totals = [[0.0, 10.0], [20.0, INF]]
    found = share_reached([totals], [0, 9, 10, 20, 1e9])
    npt.assert_array_equal(found, [0.25, 0.25, 0.5, 0.75, 0.75])
    found = share_reached([[[10.0, INF]], [[10.0, 20.0]] * 3], [5, 10, 20])
    npt.assert_allclose(found, [0, (0.5 + 0.5) / 2, (0.5 + 1) / 2])
    times = np.random.default_rng(0).exponential(size=(7, 3))
    points = np.linspace(0, 3, 11)
    expected = scipy.stats.ecdf(times.ravel()).cdf.evaluate(points)
    npt.assert_allclose(share_reached([times], points), expected)


def test_an_agents_row_is_of_the_policy_after_it() -> None:
    steps = np.array([5.0, 10.0, 15.0, 20.0, 25.0, 30.0])
    rising = [0.0, 0.0, 0.0, 0.0, 5.0, 0.0]  # the mean of five reaches 1 with the fifth
    for policy, returns, score, targets, expected in (
        (None, rising, None, [1.0], [25.0]),
        ({}, rising, None, [1.0], [20.0]),
        (None, [0.0] * 6, 2.0, [1.0, 3.0], [30.0, INF]),
    ):
        description = {"spec": {"policy": policy}}
        run = Run(seed=0, description=description, known_scores={"mean": score})
        vars(run)["curve"] = {"env_steps": steps, "center_return": np.array(returns)}
        first = run.first_totals(np.array(targets), costs=["env_steps"])["env_steps"]
        assert first.tolist() == expected
