"""Learning curves and sample efficiency of several runs: pure functions on arrays.

A run is one training seed. A row of ``metrics.jsonl`` has the return of the policy before the
update and the steps and seconds after it, so a return belongs to the totals of the row before.

After G generations a run has had G + 1 policies: the one it began with and one after each update.
One episode per generation is noisy, so a policy is judged by the mean over the last generations, as
in early stopping (``esbench.TargetReturn``): a run that was stopped at its target has reached it.
The last policy is judged by its held-out score. A run that does not reach the target counts as one
that takes longer than all that reach it.

Hansen et al., "COCO: a platform for comparing continuous optimizers in a black-box setting",
Optimization Methods and Software 36, 2021, for the expected running time and the share of targets
reached; Wilson, JASA 22, 1927, for the interval of a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.results.statistics.estimates import CONFIDENCE, MIN_RUNS, bootstrap_interval, iqm

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
    return Band(x, iqm(values), *bootstrap_interval(values))


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


WINDOW: Final = 5
TARGETS: Final = 50


def policy_returns(returns: npt.ArrayLike, score: float = math.nan, window: int = WINDOW) -> Floats:
    """The estimated return of each policy of a run, [generations + 1].

    NaN for the first ``window - 1`` policies, where the window holds a return that is not finite,
    and for the last policy without a score.

    Args:
        returns: [generations], of the policy before each generation's update.
        score: of the last policy over held-out episodes; NaN if there is none.
        window: number of returns averaged for a policy, its own and those before it.
    """
    values = np.asarray(returns, dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    means = np.full(len(values) + 1, np.nan)
    if (count := len(values) - window + 1) > 0:  # added in order, as ``TargetReturn`` does
        means[window - 1 : -1] = sum(values[k : k + count] for k in range(window)) / window
    means[-1] = score
    return means


def first_totals(totals: npt.ArrayLike, values: npt.ArrayLike, targets: npt.ArrayLike) -> Floats:
    """The cost at which a run first reached each of [targets]; infinite where it never does.

    ``totals`` are [generations], the cost after each generation; ``values`` are those of
    ``policy_returns``, [generations + 1]; NaN reaches no target.
    """
    costs = np.concatenate([[0.0], np.asarray(totals, dtype=np.float64), [np.inf]])
    array = np.asarray(values, dtype=np.float64)
    best = np.maximum.accumulate(np.where(np.isnan(array), -np.inf, array))
    return costs[np.searchsorted(best, np.asarray(targets, dtype=np.float64), side="left")]


def share_interval(reached: int, runs: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the chance to reach the target; NaN below three runs."""
    from scipy.stats import binomtest

    if runs < MIN_RUNS:
        return math.nan, math.nan
    interval = binomtest(reached, runs).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def median_total(totals: npt.ArrayLike) -> float:
    """The median cost until the target, over all runs: [runs] of ``first_totals``, at least one.

    It is the smallest cost for which half of the runs reach the target; infinite if fewer do. A
    survival estimate such as Kaplan and Meier's would be biased for episodes and seconds: a run
    ends with its budget of steps, and how many episodes those are depends on its returns.
    """
    times = np.sort(np.asarray(totals, dtype=np.float64))
    return float(times[(len(times) - 1) // 2])


def expected_running_time(totals: npt.ArrayLike, budgets: npt.ArrayLike) -> float:
    """COCO's expected running time (ERT) to the target, with restarts of failed runs.

    The total cost of the runs over the number that reached the target; infinite if none did.
    ``totals`` [runs] are of ``first_totals``; ``budgets`` [runs] are what each run spent in all.
    """
    times = np.asarray(totals, dtype=np.float64)
    reached = np.isfinite(times)
    times = np.where(reached, times, np.asarray(budgets, dtype=np.float64))
    return float(times.sum() / reached.sum()) if reached.any() else math.inf


def mean_return(
    totals: npt.ArrayLike, returns: npt.ArrayLike, score: float, budget: float
) -> float:
    """The area under a run's learning curve up to a budget above 0, divided by the budget.

    The curve is a staircase: a policy's return holds while its generation is being paid for, and
    the ``score`` of the final policy from the last total on. ``totals`` and ``returns`` are
    [generations]. NaN if a return within the budget is not finite.
    """
    ends = np.minimum(np.append(totals, budget), budget)
    values = np.append(returns, score)
    widths = ends - at_start(ends)
    within = widths > 0
    area = float(widths[within] @ values[within]) / budget
    return area if math.isfinite(area) else math.nan


def even_targets(random: float, reference: float) -> Floats:
    """``TARGETS`` targets, evenly spaced above ``random`` up to ``reference``."""
    return random + (reference - random) * np.arange(1, TARGETS + 1) / TARGETS


def share_reached(environments: Sequence[npt.ArrayLike], budgets: npt.ArrayLike) -> Floats:
    """The share of triples (environment, target, run) reached within each of ``budgets`` [points].

    It is the mean of the environments' shares: all weigh the same, however many seeds they have.
    ``environments`` are [runs, targets] each, of ``first_totals``.
    """
    points = np.asarray(budgets, dtype=np.float64)
    times = [np.sort(np.asarray(totals, np.float64), axis=None) for totals in environments]
    shares = [np.searchsorted(each, points, side="right") / each.size for each in times]
    return np.asarray(np.stack(shares).mean(axis=0), dtype=np.float64)
