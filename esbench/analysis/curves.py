"""Learning curves of several runs on one axis: pure functions on arrays.

A run is one training seed. A row of ``metrics.jsonl`` has the return of the policy before the
update and the steps and seconds after it, so a return belongs to the totals of the row before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

from esbench.analysis.statistics import Floats, bootstrap_interval, iqm
from esbench.errors import UsageError

POINTS: Final = 100
GENERATION_POINTS: Final = 25  # a rank comes from few episodes: it is noisier than a return


@final
@dataclass(frozen=True, eq=False)
class Band:
    """A curve over runs.

    Attributes:
        x, iqm, low, high: [points]; low and high are the pointwise 95 % interval, NaN below
            three runs.
        runs: number of runs.
    """

    x: Floats
    iqm: Floats
    low: Floats
    high: Floats
    runs: int


def at_start(totals: npt.ArrayLike) -> Floats:
    """The totals before each generation, [points], from those after it, [points]."""
    after = np.asarray(totals, dtype=np.float64)
    return np.concatenate([np.zeros(1), after[:-1]])


def align(
    x_list: Sequence[npt.ArrayLike], y_list: Sequence[npt.ArrayLike], points: int = POINTS
) -> tuple[Floats, Floats]:
    """Interpolate runs linearly on a common grid.

    The grid is even, from the largest first x to the smallest last x: every run has a value at
    every point. A NaN makes the interval between its neighbours NaN.

    Args:
        x_list: a run each, [its points], not decreasing.
        y_list: the values there, in the same order.
        points: of the grid.

    Returns:
        The grid [points] and the values [runs, points].

    Raises:
        UsageError: no runs, an empty one, unequal lengths, x decreases, or runs do not overlap.
    """
    if not x_list or len(x_list) != len(y_list):
        raise UsageError(
            f"{len(x_list)} x and {len(y_list)} y: expected as many, and at least one run"
        )
    runs = [_run(x, y) for x, y in zip(x_list, y_list, strict=True)]
    first, last = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
    if first > last:
        raise UsageError(f"a run begins at {first:g}, where another has ended ({last:g})")
    grid = np.linspace(first, last, points)
    return grid, np.stack([np.interp(grid, x, y) for x, y in runs])


def shortest(y_list: Sequence[npt.ArrayLike]) -> Floats:
    """Cut runs with a common index to the shortest: [runs, points].

    Raises:
        UsageError: there is no run.
    """
    if not y_list:
        raise UsageError("no runs; expected at least one")
    arrays = [np.asarray(y, dtype=np.float64) for y in y_list]
    points = min(len(array) for array in arrays)
    return np.stack([array[:points] for array in arrays])


def blocks(values: npt.ArrayLike, most: int = POINTS) -> Floats:
    """The means of at most ``most`` blocks of neighbours, as equal in length as can be.

    Args:
        values: [..., points]; with at most ``most`` points they are returned as they are.
        most: blocks.

    Returns:
        [..., min(points, most)]; a NaN makes its block NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    points = array.shape[-1]
    if points <= most:
        return array
    edges = np.arange(most + 1) * points // most
    means: Floats = np.add.reduceat(array, edges[:-1], axis=-1) / np.diff(edges)
    return means


def curve_band(x: npt.ArrayLike, values: npt.ArrayLike, seed: int = 0) -> Band:
    """The IQM over runs and its pointwise 95 % bootstrap interval.

    Args:
        x: [points].
        values: [runs, points].
        seed: of the bootstrap.
    """
    array = np.asarray(values, dtype=np.float64)
    low, high = bootstrap_interval(array, seed=seed)
    return Band(np.asarray(x, dtype=np.float64), iqm(array), low, high, len(array))


def learning_curve(
    totals: Sequence[npt.ArrayLike], returns: Sequence[npt.ArrayLike], points: int = POINTS
) -> Band:
    """The curve of returns against the totals before them, from 0.

    Runs longer than ``points`` generations are averaged over blocks of neighbours.

    Args:
        totals: a run each: steps or seconds after each generation, [its generations].
        returns: a run each: of the policy before each generation's update, [its generations].
        points: of the curve.

    Raises:
        UsageError: see ``align``.
    """
    fine = max(points, *(np.size(run) for run in returns)) if returns else points
    grid, values = align([at_start(run) for run in totals], returns, fine)
    return curve_band(blocks(grid, points), blocks(values, points))


def generation_curve(
    values: Sequence[npt.ArrayLike], points: int = GENERATION_POINTS, *, gaps: bool = False
) -> Band:
    """The curve of one value per generation over generations, counted from 1.

    Generations are common to all runs; longer runs are cut to the shortest, and more than
    ``points`` generations are averaged over blocks of neighbours.

    Args:
        values: a run each, such as the rank fraction of each generation, [its generations].
        points: of the curve.
        gaps: leave NaN out of a block's mean instead of making the block NaN.

    Raises:
        UsageError: there is no run.
    """
    array = shortest(values)
    generation = np.arange(1, array.shape[1] + 1, dtype=np.float64)
    known = np.isfinite(array) if gaps else np.ones(array.shape, np.bool_)
    shares = blocks(known.astype(np.float64), points)
    with np.errstate(invalid="ignore"):  # a block without any value: 0 / 0 is NaN
        means = blocks(np.where(known, array, 0.0), points) / shares
    return curve_band(blocks(generation, points), means)


def _run(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape or not xs.size:
        raise UsageError(f"a run of shapes {xs.shape} and {ys.shape}: expected two [points]")
    if not np.all(np.diff(xs) >= 0):
        raise UsageError("the x of a run decreases or is NaN; expected it in order")
    return xs, ys
