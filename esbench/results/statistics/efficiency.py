"""Sample efficiency: what runs spend until they reach a target, as pure functions on arrays.

A run is one training seed. After G generations it has had G + 1 policies: the one it began with and
one after each update. Policy g was reached when generations 1 to g were paid for. One episode per
generation is noisy, so a policy is judged by the mean over the last generations, as in early
stopping (``esbench.TargetReturn``): a run that was stopped at its target has reached it. Where
returns rise, that is late by up to a window. The last policy is judged by its held-out score.

A run that does not reach the target counts as one that takes longer than all that reach it.

Hansen, Auger, Ros, Mersmann, Tusar and Brockhoff, "COCO: a platform for comparing continuous
optimizers in a black-box setting", Optimization Methods and Software 36, 2021, for the expected
running time and the share of targets reached; Wilson, "Probable inference, the law of succession,
and statistical inference", JASA 22, 1927, for the interval of a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.results.statistics.curves import at_start
from esbench.results.statistics.resampling import CONFIDENCE
from esbench.results.statistics.statistics import MIN_RUNS

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
