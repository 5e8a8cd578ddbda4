"""Learning curves, sample efficiency and generations of runs: pure functions on arrays.

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
from esbench.core.seeding import Purpose, stream
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


BLOCKS: Final = 10  # of a path of returns, which goes up and down
TREND_POINTS: Final = 300
EXACT_GENERATIONS: Final = 12  # the mean of more uniform ranks is normal
BAND_DRAWS: Final = 10_000


def thirds(values: Floats) -> tuple[float, float, float]:
    """The means of the first, middle and last third of [generations]; NaN only without a number."""
    parts = [part[np.isfinite(part)] for part in np.array_split(values, 3)]
    first, middle, last = (float(part.mean()) if part.size else math.nan for part in parts)
    return first, middle, last


def uniform_band(members: float, generations: int) -> tuple[float, float]:
    """The 95 % band of a mean rank fraction if the center is no better than its members.

    If perturbing changes nothing, the number of the n members that beat the center is uniform on
    0 .. n: its fraction has mean 1/2 and variance (n + 2) / (12 n). The band of the mean over k
    generations is the normal one, cut to [0, 1].
    """
    from scipy.stats import norm

    half = float(norm.ppf(0.5 + CONFIDENCE / 2)) * _deviation(members, generations)
    return max(0.0, 0.5 - half), min(1.0, 0.5 + half)


def uniform_curve_band(members: int, runs: int, generations: int) -> tuple[float, float]:
    """The 95 % band of a point of a rank curve, if all centers are no better than their members.

    That is the interquartile mean over runs of means over as many generations as are averaged in a
    point. Its band is wider than ``uniform_band`` from four runs on. By simulation.
    """
    generator = stream(0, Purpose.SIMULATION, members, runs, generations)
    if generations > EXACT_GENERATIONS:
        means = generator.normal(0.5, _deviation(members, generations), (runs, BAND_DRAWS))
    else:
        ranks = generator.integers(0, members + 1, (generations, runs, BAND_DRAWS))
        means = ranks.mean(axis=0) / members
    low, high = np.quantile(iqm(means), (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return max(0.0, float(low)), min(1.0, float(high))


def trend(values: Floats) -> tuple[float, float, float]:
    """The Theil-Sen slope of [generations] per generation, and its 95 % interval, without NaN.

    Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63, 1968. Fewer than
    three numbers give NaN. It compares all pairs, so long runs are first averaged over blocks.
    """
    from scipy.stats import theilslopes

    points = blocks(values, TREND_POINTS)
    known = np.isfinite(points)
    if known.sum() < 3:
        return math.nan, math.nan, math.nan
    at = blocks(np.arange(values.size), TREND_POINTS)
    slope, _, low, high = theilslopes(points[known], at[known], alpha=CONFIDENCE)
    return float(slope), float(low), float(high)


def mean_interval(values: Floats) -> tuple[float, float, float]:
    """The mean of [generations] and Student's 95 % interval, NaN for one number; without NaN."""
    from scipy.stats import t

    known = values[np.isfinite(values)]
    if known.size < 2:
        return (float(known.mean()) if known.size else math.nan), math.nan, math.nan
    mean, error = float(known.mean()), float(known.std(ddof=1)) / math.sqrt(known.size)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, known.size - 1)) * error
    return mean, mean - half, mean + half


def signal_to_noise(cosine: float) -> float:
    """The signal-to-noise ratio of an update from its split-half cosine r: 2 r / (1 - r)."""
    return 2 * cosine / (1 - cosine) if cosine < 1 else math.inf


def ascent(values: Floats) -> float:
    """The net rise of returns [generations], divided by the length of their path; in [-1, 1].

    The path is the first value, then the means of ten blocks of neighbors. The first value keeps
    a run that falls at once from looking like one that climbs. NaN if the path is constant.
    """
    path = np.concatenate([values[:1], blocks(values, BLOCKS)])
    way = float(np.abs(np.diff(path)).sum())
    return float(path[-1] - path[0]) / way if way > 0 else math.nan


def gain(values: Floats) -> float:
    """The mean of the last tenth of [generations], minus the first value."""
    return float(blocks(values, BLOCKS)[-1] - values[0])


def _deviation(members: float, generations: int) -> float:
    return math.sqrt((members + 2) / (12 * members * generations))
