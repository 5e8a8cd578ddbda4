"""Aggregate scores over environments and effect sizes: pure functions on arrays.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS
2021: interquartile mean, optimality gap, performance profile and probability of improvement;
Hedges, "Distribution theory for Glass's estimator of effect size", J. Educ. Stat. 6, 1981.

A stratum holds the normalized scores of one environment: [runs] or, for bootstrap resamples,
[..., runs]. All environments have equal weight, whatever their number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.results.statistics.resampling import ENDS, draw_resamples
from esbench.results.statistics.statistics import MIN_RUNS, TRIMMED

Statistic: TypeAlias = Callable[..., Floats]
"""Takes strata [..., runs], gives [...]."""

RESAMPLES: Final = 9_999
_BISECTIONS: Final = 50  # of [0, 1]: to the last bits
PROFILE_RESAMPLES: Final = 1_999  # an interval at each of several hundred thresholds


def mean(*strata: npt.ArrayLike) -> Floats:
    """The mean over environments of the mean over runs: [...] from strata [..., runs]."""
    result: Floats = np.mean(_means(strata), axis=0)
    return result


def median(*strata: npt.ArrayLike) -> Floats:
    """The median over environments of the mean over runs: [...] from strata [..., runs]."""
    result: Floats = np.median(_means(strata), axis=0)
    return result


def iqm(*strata: npt.ArrayLike) -> Floats:
    """The interquartile mean over all runs of all environments: [...] from strata [..., runs].

    A quarter of the runs, rounded down, is cut at each end. The weight of a run is inversely
    proportional to the number of runs of its environment.
    """
    values = np.concatenate([np.asarray(s, dtype=np.float64) for s in strata], axis=-1)
    sizes = [np.shape(stratum)[-1] for stratum in strata]
    total = sum(sizes)
    weights = np.concatenate([np.full(size, total / (size * len(strata))) for size in sizes])
    cut = int(TRIMMED * total)
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    above = np.cumsum(weights[order], axis=-1)
    kept = np.clip(above, cut, total - cut) - np.clip(above - weights[order], cut, total - cut)
    result: Floats = (kept * ordered).sum(axis=-1) / (total - 2 * cut)
    return result


def optimality_gap(*strata: npt.ArrayLike) -> Floats:
    """The mean shortfall of scores below 1: [...] from strata [..., runs]."""
    return mean(*(np.maximum(1.0 - np.asarray(s, dtype=np.float64), 0.0) for s in strata))


def performance_profile(strata: Sequence[npt.ArrayLike], thresholds: npt.ArrayLike) -> Floats:
    """The share of runs in strata [runs] with a score above each of [thresholds]."""
    levels = np.asarray(thresholds, dtype=np.float64)
    return mean(*(np.asarray(stratum)[None, :] > levels[:, None] for stratum in strata))


def profile_interval(
    strata: Sequence[npt.ArrayLike], thresholds: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """The 95 % percentile bootstrap interval of the performance profile, at every threshold.

    Runs are drawn within each stratum, and the same ones for all thresholds. NaN if a stratum has
    fewer than three runs.
    """
    levels = np.asarray(thresholds, dtype=np.float64)
    arrays = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    if any(array.size < MIN_RUNS for array in arrays):
        return np.full(levels.shape, np.nan), np.full(levels.shape, np.nan)
    resamples = draw_resamples([array.size for array in arrays], PROFILE_RESAMPLES)
    shares = np.zeros((len(resamples.runs[0]), levels.size))
    for array, drawn in zip(arrays, resamples.runs, strict=True):
        times = np.stack([np.count_nonzero(drawn == run, axis=1) for run in range(array.size)], 1)
        above = array[:, None] > levels
        shares += times @ above.astype(np.float64) / (array.size * len(arrays))
    return resamples.interval(shares)


def probability_of_improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """The probability that a run of ``first`` beats one of ``second``, ties shared.

    It is the Mann-Whitney U statistic over the number of pairs: [...] from [..., runs] each.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    pairs = np.sign(ours[..., :, None] - theirs[..., None, :])
    share: Floats = 0.5 + 0.5 * pairs.mean(axis=(-2, -1))
    return share


def improvement_interval(chance: float, runs: tuple[int, int]) -> tuple[float, float]:
    """The 95 % interval of a probability of improvement; NaN below three runs per side.

    Method 5 of Newcombe, "Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic, part 2", Statistics in Medicine 25, 2006: the values t with
    (chance - t)^2 = z^2 t (1 - t) [1 + c ((1 - t) / (2 - t) + t / (1 + t))] / pairs. A bootstrap
    interval has no width if every run of one side beats every run of the other.
    """
    if min(runs) < MIN_RUNS or not math.isfinite(chance):
        return math.nan, math.nan
    half_width = NormalDist().inv_cdf(ENDS[1])
    c, pairs = sum(runs) / 2 - 1, runs[0] * runs[1]

    def is_outside(t: float) -> bool:
        spread = 1 + c * ((1 - t) / (2 - t) + t / (1 + t))
        return (chance - t) ** 2 > half_width**2 * t * (1 - t) * spread / pairs

    ends = []
    for outside in (0.0, 1.0):
        inside = chance
        for _ in range(_BISECTIONS):
            middle = (outside + inside) / 2
            outside, inside = (middle, inside) if is_outside(middle) else (outside, middle)
        ends.append(outside)
    return ends[0], ends[1]


def hedges_g(first: Floats, second: Floats) -> float:
    """The difference of means in pooled deviations, without small-sample bias, of [runs] each.

    NaN where there are fewer than three runs in all, or none differs within its side.
    """
    freedom = first.size + second.size - 2
    squares = first.size * first.var() + second.size * second.var()
    spreads = any(side.size and side.min() < side.max() for side in (first, second))
    if freedom < 1 or not spreads:  # rounding of the means leaves squares even without a spread
        return math.nan
    correction = 1 - 3 / (4 * freedom - 1)
    return float((first.mean() - second.mean()) / math.sqrt(squares / freedom) * correction)


def stratified_interval(
    statistic: Statistic, strata: Sequence[npt.ArrayLike], resamples: int = RESAMPLES
) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of a statistic; runs are drawn within each stratum.

    All ``resamples`` are used where they are few. NaN if a stratum has fewer than three runs, or a
    run that is not finite. Random ones give the interval of ``scipy.stats.bootstrap``, without the
    slow import of SciPy.
    ``plots/error_rates.md`` has the simulated coverage.
    """
    arrays = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    if any(a.size < MIN_RUNS or not np.isfinite(a).all() for a in arrays):
        return math.nan, math.nan
    drawn = draw_resamples([array.size for array in arrays], resamples)
    low, high = drawn.interval(
        statistic(*(array[runs] for array, runs in zip(arrays, drawn.runs, strict=True)))
    )
    return float(low), float(high)


def _means(strata: Sequence[npt.ArrayLike]) -> Floats:
    """The mean over runs of each environment: [environments, ...]."""
    return np.stack([np.asarray(s, dtype=np.float64).mean(axis=-1) for s in strata])
