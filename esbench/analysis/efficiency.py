"""Sample efficiency: what runs spend until they reach a target, as pure functions on arrays.

A run is one training seed. After G generations it has had G + 1 policies: the one it began with and
one after each update. Policy g was reached when generations 1 to g were paid for, which is what
``spent`` says; ``judged`` says how good it is. The unperturbed policy plays one noisy episode a
generation (as many as a member does), so a policy is judged by the mean over the last generations,
as early stopping is (``esbench.TargetReturn``): a run that was stopped at its target has
reached it. Where returns rise, that is late by up to a window. The last policy is judged by its
score over held-out episodes instead, which are more.

A run that does not reach the target is censored at what it has spent: all that is known is that it
would have taken longer.

Hansen, Auger, Ros, Mersmann, Tusar and Brockhoff, "COCO: a platform for comparing continuous
optimizers in a black-box setting", Optimization Methods and Software 36, 2021, for the expected
running time and the share of targets reached; Kaplan and Meier, "Nonparametric estimation from
incomplete observations", JASA 53, 1958; Wilson, "Probable inference, the law of succession, and
statistical inference", JASA 22, 1927, for the interval of a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from esbench.analysis.curves import at_start
from esbench.analysis.statistics import CONFIDENCE, MIN_RUNS, Floats
from esbench.errors import UsageError

WINDOW: Final = 5
TARGETS: Final = 50
_ROUNDING: Final = 1e-9  # a product of shares may miss one half in the last bits


def judged(returns: npt.ArrayLike, score: float = math.nan, window: int = WINDOW) -> Floats:
    """The estimated return of each policy of a run.

    Args:
        returns: [generations], of the policy before each generation's update.
        score: of the last policy over held-out episodes; NaN if there is none.
        window: number of returns averaged for a policy, its own and those before it.

    Returns:
        [generations + 1]; NaN for the first ``window - 1`` policies, where the window holds a
        return that is not finite, and for the last policy without a score.

    Raises:
        UsageError: ``window`` is below 1, or ``returns`` is not one run.
    """
    values = _run(returns)
    if window < 1:
        raise UsageError(f"window = {window}: expected at least 1 generation")
    values = np.where(np.isfinite(values), values, np.nan)
    means = np.full(len(values) + 1, np.nan)
    if (count := len(values) - window + 1) > 0:  # added in order, as ``TargetReturn`` does
        means[window - 1 : -1] = sum(values[k : k + count] for k in range(window)) / window
    means[-1] = score
    return means


def spent(totals: npt.ArrayLike) -> Floats:
    """The cost of each policy of a run: [generations + 1]; the first costs nothing.

    Args:
        totals: [generations], steps, episodes or seconds after each generation.
    """
    return np.concatenate([np.zeros(1), _run(totals)])


def first_reaching(values: npt.ArrayLike, targets: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The index of the first value that is at least each target.

    Args:
        values: [policies]; NaN reaches nothing.
        targets: [targets].

    Returns:
        [targets]; the number of policies where none reaches the target.
    """
    array = _run(values)
    best = np.maximum.accumulate(np.where(np.isnan(array), -np.inf, array))
    return np.searchsorted(best, np.asarray(targets, dtype=np.float64), side="left")


def first_totals(totals: npt.ArrayLike, values: npt.ArrayLike, targets: npt.ArrayLike) -> Floats:
    """The cost at which a run first reached each target.

    Args:
        totals: [generations], steps, episodes or seconds after each generation.
        values: [generations + 1], of ``judged``.
        targets: [targets].

    Returns:
        [targets]; infinite where it never does.

    Raises:
        UsageError: the lengths do not fit.
    """
    costs, array = spent(totals), _run(values)
    if costs.shape != array.shape:
        raise UsageError(
            f"{len(costs) - 1} totals and {len(array)} values: expected one value more than totals"
        )
    return np.append(costs, np.inf)[first_reaching(array, targets)]


def share_interval(reached: int, runs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of the probability that a run reaches the target.

    Args:
        reached: runs that did, of ``runs``.
        runs: how many.
        confidence: the probability that the interval should cover, in (0, 1).

    Returns:
        The lower and the upper end; NaN below three runs.
    """
    from scipy.stats import binomtest

    if runs < MIN_RUNS:
        return math.nan, math.nan
    interval = binomtest(reached, runs).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def median_total(totals: npt.ArrayLike, budgets: npt.ArrayLike) -> float:
    """The median cost until the target, over all runs.

    The smallest total at which Kaplan and Meier's estimate of the share that has reached the target
    is one half or more. Where all runs have the same budget, that is the share itself.

    Args:
        totals: [runs], of ``first_totals``; infinite where a run did not reach the target.
        budgets: [runs], what each run spent in all: where those are censored.

    Returns:
        Infinite where the estimate never comes to one half.

    Raises:
        UsageError: there is no run, or the lengths differ.
    """
    from scipy.stats import CensoredData, ecdf

    times, ends = _times(totals, budgets)
    reached = np.isfinite(times)
    if not reached.any():
        return math.inf
    data = CensoredData.right_censored(np.where(reached, times, ends), ~reached)
    share = ecdf(data).cdf
    half = np.flatnonzero(share.probabilities >= 0.5 - _ROUNDING)
    return float(share.quantiles[half[0]]) if half.size else math.inf


def expected_running_time(totals: npt.ArrayLike, budgets: npt.ArrayLike) -> float:
    """COCO's expected running time (ERT) to the target, with restarts of failed runs.

    The total cost of the runs, until the target or their end, over the number that reached it.

    Args:
        totals: [runs], of ``first_totals``; infinite where a run did not reach the target.
        budgets: [runs], what each run spent in all.

    Returns:
        Infinite where no run reached the target.

    Raises:
        UsageError: there is no run, or the lengths differ.
    """
    times, ends = _times(totals, budgets)
    reached = np.isfinite(times)
    if not reached.any():
        return math.inf
    return float(np.where(reached, times, ends).sum() / reached.sum())


def mean_return(totals: npt.ArrayLike, returns: npt.ArrayLike, budget: float) -> float:
    """The area under a run's learning curve up to a budget, divided by the budget.

    The curve is a staircase: a policy's return holds while its generation is being paid for.

    Args:
        totals: [generations], after each generation, not decreasing.
        returns: [generations], of the policy before each generation's update.
        budget: in the unit of ``totals``, above 0.

    Returns:
        The mean return over the budget; NaN if the run ended before it, or if a return within it is
        not finite.

    Raises:
        UsageError: the lengths differ, or the budget is not above 0.
    """
    ends, values = _run(totals), _run(returns)
    if ends.shape != values.shape:
        raise UsageError(f"{len(ends)} totals and {len(values)} returns: expected as many")
    if not budget > 0:
        raise UsageError(f"budget = {budget}: expected a number above 0")
    if not len(ends) or ends[-1] < budget:
        return math.nan
    widths = np.minimum(ends, budget) - np.minimum(at_start(ends), budget)
    within = widths > 0
    area = float(widths[within] @ values[within]) / budget
    return area if math.isfinite(area) else math.nan


def even_targets(random: float, reference: float, count: int = TARGETS) -> Floats:
    """Targets evenly spaced between two published scores: [count]; the last is the reference.

    Args:
        random: mean return of random actions, which is no target itself.
        reference: mean return of the reference.
        count: how many.

    Raises:
        UsageError: the reference is not above random actions.
    """
    if not reference > random:
        raise UsageError(f"reference score {reference}: expected one above random's ({random})")
    return random + (reference - random) * np.arange(1, count + 1) / count


def share_reached(totals: npt.ArrayLike, budgets: npt.ArrayLike) -> Floats:
    """The share of pairs (run, target) that were reached within each budget.

    Args:
        totals: [runs, targets], of ``first_totals``; infinite where a run never reached a target.
        budgets: [points].

    Returns:
        [points], in [0, 1].

    Raises:
        UsageError: there is no pair.
    """
    times = np.sort(np.asarray(totals, dtype=np.float64), axis=None)
    if not times.size:
        raise UsageError("no run or no target; expected at least one of each")
    budgets = np.asarray(budgets, dtype=np.float64)
    return np.searchsorted(times, budgets, side="right") / times.size


def share_reached_across(environments: Sequence[npt.ArrayLike], budgets: npt.ArrayLike) -> Floats:
    """The share of triples (environment, target, run) reached within each budget.

    Every environment weighs the same, however many seeds it was run with: it is the mean of their
    shares.

    Args:
        environments: for each, [its runs, targets], as in ``share_reached``.
        budgets: [points].

    Returns:
        [points], in [0, 1].

    Raises:
        UsageError: there is no environment, or one has no pair.
    """
    if not environments:
        raise UsageError("no environment; expected at least one")
    shares = np.stack([share_reached(totals, budgets) for totals in environments])
    return np.asarray(shares.mean(axis=0), dtype=np.float64)


def _run(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise UsageError(f"a run of shape {array.shape}: expected one number per generation")
    return array


def _times(totals: npt.ArrayLike, budgets: npt.ArrayLike) -> tuple[Floats, Floats]:
    times, ends = _run(totals), _run(budgets)
    if times.shape != ends.shape or not times.size:
        raise UsageError(
            f"{len(times)} totals and {len(ends)} budgets: expected as many, and at least one run"
        )
    return times, ends
