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

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.results.statistics.statistics import bootstrap_interval, iqm

POINTS: Final = 100
GENERATION_POINTS: Final = 25  # a rank comes from few episodes: it is noisier than a return


@final
@dataclass(frozen=True, eq=False)
class Band:
    """A curve over some runs, [points]; ``low`` to ``high`` is the pointwise 95 % interval."""

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
    """Interpolate runs linearly, of [its points] each, on a common grid.

    The grid is even, from the largest first x to the smallest last x. If runs do not overlap, it
    is the largest first x, and all values are NaN. A NaN makes the interval between its neighbors
    NaN.

    Returns:
        The grid [points] and the values [runs, points].

    Raises:
        UsageError: x decreases or is NaN.
    """
    runs = [np.asarray(x, dtype=np.float64) for x in x_list]
    if not all(np.all(np.diff(x) >= 0) for x in runs):
        raise UsageError("the x of a run decreases or is NaN; expected it in order")
    first, last = max(x[0] for x in runs), min(x[-1] for x in runs)
    grid = np.linspace(first, max(first, last), points)
    values = [np.asarray(y, dtype=np.float64) for y in y_list]
    rows = np.stack([np.interp(grid, x, y) for x, y in zip(runs, values, strict=True)])
    return grid, rows if first <= last else np.full_like(rows, np.nan)


def blocks(values: npt.ArrayLike, most: int = POINTS) -> Floats:
    """The means of at most ``most`` blocks of neighbors, as equal in length as can be.

    [..., min(points, most)] from [..., points]; a NaN makes its block NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    points = array.shape[-1]
    if points <= most:
        return array
    edges = np.arange(most + 1) * points // most
    means: Floats = np.add.reduceat(array, edges[:-1], axis=-1) / np.diff(edges)
    return means


def curve_band(x: Floats, values: Floats) -> Band:
    """The IQM over [runs, points] and its pointwise 95 % bootstrap interval, at x, [points]."""
    return Band(x, iqm(values), *bootstrap_interval(values), len(values))


def learning_curve(
    totals: Sequence[npt.ArrayLike],
    returns: Sequence[npt.ArrayLike],
    points: int = POINTS,
    *,
    after: bool = False,
) -> Band:
    """The curve of returns against the totals before them, as ``on_grid``."""
    return curve_band(*on_grid(totals, returns, points, after=after))


def on_grid(
    totals: Sequence[npt.ArrayLike],
    returns: Sequence[npt.ArrayLike],
    points: int = POINTS,
    *,
    after: bool = False,
) -> tuple[Floats, Floats]:
    """A grid of totals, [points], and the returns of each run there, [runs, points].

    Runs longer than ``points`` generations are averaged over blocks of neighbors. Each run has
    ``totals`` after, and ``returns`` before, the updates of [its generations], as for ``align``.
    The grid begins at 0. ``after``: the returns are those after the updates too, as of an agent,
    and the grid begins at the first total that all runs have reached.
    """
    fine = max(points, *(np.size(run) for run in returns))
    grid, values = align(totals if after else [at_start(run) for run in totals], returns, fine)
    return blocks(grid, points), blocks(values, points)


def generation_curve(
    values: Sequence[npt.ArrayLike], points: int = GENERATION_POINTS, *, gaps: bool = False
) -> Band:
    """The curve of one value per generation over generations, counted from 1.

    Each run has [its generations]; longer ones are cut to the shortest, and more than ``points``
    generations are averaged over blocks of neighbors. ``gaps`` leaves NaN out of a block's mean.
    """
    shortest = min(map(np.size, values))
    array = np.stack([np.asarray(run, dtype=np.float64)[:shortest] for run in values])
    generation = np.arange(1, array.shape[1] + 1, dtype=np.float64)
    known = np.isfinite(array) if gaps else np.ones(array.shape, np.bool_)
    shares = blocks(known.astype(np.float64), points)
    with np.errstate(invalid="ignore"):  # a block without any value: 0 / 0 is NaN
        means = blocks(np.where(known, array, 0.0), points) / shares
    return curve_band(blocks(generation, points), means)
