from __future__ import annotations

import numpy as np
import numpy.testing as npt
import pytest

from esbench.core.errors import UsageError
from esbench.results.statistics.curves import (
    align,
    at_start,
    blocks,
    curve_band,
    generation_curve,
    learning_curve,
)
from esbench.results.statistics.estimates import bootstrap_interval, iqm


def test_at_start_moves_totals_to_the_generation_they_precede() -> None:
    npt.assert_array_equal(at_start([10, 25, 30]), [0, 10, 25])


def test_align_interpolates_from_the_largest_first_to_the_smallest_last_x() -> None:
    grid, values = align([[0, 10, 20], [5, 15]], [[0, 100, 0], [1, 3]], points=3)
    npt.assert_array_equal(grid, [5, 10, 15])
    npt.assert_array_equal(values, [[50, 100, 50], [1, 2, 3]])
    # A gap stays where a run has NaN.
    _, values = align([[0, 1, 2, 3]], [[1, 2, np.nan, 4]], points=7)
    npt.assert_array_equal(values[0, :3], [1, 1.5, 2])
    assert np.isnan(values[0, 3:6]).all()
    assert values[0, 6] == 4


def test_align_has_no_values_for_runs_that_do_not_overlap() -> None:
    grid, values = align([[0, 10], [20, 30]], [[1, 2], [3, 4]], points=3)
    npt.assert_array_equal(grid, [20, 20, 20])
    assert values.shape == (2, 3)
    assert np.isnan(values).all()


@pytest.mark.parametrize("x", [[1, 0], [0, np.nan]])
def test_align_refuses_an_x_out_of_order(x: list[float]) -> None:
    with pytest.raises(UsageError, match="decreases or is NaN"):
        align([x], [[1, 2]])


def test_blocks_average_neighbors() -> None:
    npt.assert_array_equal(blocks([1, 3, 5, 7], most=2), [2, 6])
    npt.assert_array_equal(blocks([1, 3, 5, 7, 9], most=2), [2, 7])
    npt.assert_array_equal(blocks([[1, 3], [5, np.nan]], most=1), [[2], [np.nan]])
    npt.assert_array_equal(blocks([1, 3, 5], most=3), [1, 3, 5])
    npt.assert_allclose(blocks(np.ones(1003), most=100), np.ones(100))


def test_curve_band_is_iqm_and_interval_of_each_point() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    band = curve_band(np.arange(3.0), values)
    low, high = bootstrap_interval(values)
    npt.assert_array_equal(band.iqm, iqm(values))
    npt.assert_array_equal(band.low, low)
    npt.assert_array_equal(band.high, high)
    assert band.runs == 5


def test_learning_curve_puts_a_return_where_its_policy_was_and_not_after_the_update() -> None:
    band = learning_curve([[10, 20, 30]], [[1.0, 2.0, 3.0]], points=5)
    npt.assert_array_equal(band.x, [0, 5, 10, 15, 20])
    npt.assert_array_equal(band.iqm, [1, 1.5, 2, 2.5, 3])
    assert np.isnan(band.low).all()
    # Totals may stand still, and the shortest of unequal runs ends the curve.
    band = learning_curve([[0.0, 0.0]], [[1.0, 2.0]], points=3)
    npt.assert_array_equal(band.x, [0, 0, 0])
    band = learning_curve([[10, 20, 30], [10, 20]], [[1.0, 2.0, 3.0], [3.0, 4.0]], points=3)
    npt.assert_array_equal(band.x, [0, 5, 10])
    npt.assert_array_equal(band.iqm, [2, 2.5, 3])
    assert band.runs == 2


def test_long_runs_are_averaged_and_begin_and_end_within_their_first_and_last_block() -> None:
    totals = np.arange(1.0, 1001.0)
    band = learning_curve([totals, totals[:900]], [totals, totals[:900]], points=10)
    assert band.x.shape == (10,)
    npt.assert_allclose(band.iqm, band.x + 1)
    assert 0 < band.x[0] < 100
    assert 800 < band.x[-1] < 899


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
