"""Aggregate scores over environments and effect sizes: pure functions on arrays.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS
2021: interquartile mean, optimality gap, performance profile and probability of improvement; Efron,
"Better bootstrap confidence intervals", JASA 82, 1987, for BCa; Hedges, "Distribution theory for
Glass's estimator of effect size", J. Educ. Stat. 6, 1981.

A stratum holds the normalised scores of one environment: [runs] or, for bootstrap resamples,
[..., runs]. All environments have equal weight, whatever their number of runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from esbench.analysis.statistics import CONFIDENCE, MIN_RUNS, TRIMMED, Floats
from esbench.errors import UsageError
from esbench.seeding import Purpose, stream

Method: TypeAlias = Literal["percentile", "bca"]
Statistic: TypeAlias = Callable[..., Floats]
"""Takes strata [..., runs] and ``axis=-1``, gives [...]."""

RESAMPLES: Final = 9_999
PROFILE_RESAMPLES: Final = 1_999  # an interval at each of several hundred thresholds


def mean(*strata: npt.ArrayLike, axis: int = -1) -> Floats:
    """The mean over environments of the mean over runs: [...] from strata [..., runs]."""
    result: Floats = np.mean(_means(strata, axis), axis=0)
    return result


def median(*strata: npt.ArrayLike, axis: int = -1) -> Floats:
    """The median over environments of the mean over runs: [...] from strata [..., runs]."""
    result: Floats = np.median(_means(strata, axis), axis=0)
    return result


def iqm(*strata: npt.ArrayLike, axis: int = -1) -> Floats:
    """The interquartile mean over all runs of all environments: [...] from [..., runs].

    A quarter of the runs, rounded down, is cut at each end. The weight of a run is inversely
    proportional to the number of runs of its environment.

    Args:
        strata: an environment each, [..., runs].
        axis: of the runs; the last one.
    """
    values = np.concatenate([np.asarray(s, dtype=np.float64) for s in strata], axis=axis)
    sizes = [np.shape(stratum)[axis] for stratum in strata]
    total = sum(sizes)
    weights = np.concatenate([np.full(size, total / (size * len(strata))) for size in sizes])
    cut = int(TRIMMED * total)
    order = np.argsort(values, axis=axis, kind="stable")
    ordered = np.take_along_axis(values, order, axis=axis)
    above = np.cumsum(weights[order], axis=axis)
    kept = np.clip(above, cut, total - cut) - np.clip(above - weights[order], cut, total - cut)
    result: Floats = (kept * ordered).sum(axis=axis) / (total - 2 * cut)
    return result


def optimality_gap(*strata: npt.ArrayLike, axis: int = -1, target: float = 1.0) -> Floats:
    """The mean shortfall of scores below ``target``: [...] from [..., runs]."""
    short = [np.maximum(target - np.asarray(s, dtype=np.float64), 0.0) for s in strata]
    return mean(*short, axis=axis)


def performance_profile(strata: Sequence[npt.ArrayLike], thresholds: npt.ArrayLike) -> Floats:
    """The share of runs with a score above each threshold: [thresholds].

    Args:
        strata: an environment each, [runs].
        thresholds: [thresholds] normalised scores.
    """
    levels = np.asarray(thresholds, dtype=np.float64)
    return mean(*(np.asarray(stratum)[None, :] > levels[:, None] for stratum in strata))


def profile_interval(
    strata: Sequence[npt.ArrayLike],
    thresholds: npt.ArrayLike,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = PROFILE_RESAMPLES,
) -> tuple[Floats, Floats]:
    """The percentile bootstrap interval of the performance profile, at every threshold.

    Runs are drawn within each stratum, and the same ones for all thresholds: at each of them it is
    ``stratified_interval`` of the share.

    Args:
        strata: an environment each, [runs]; minus infinity is a run that is above no threshold.
        thresholds: [thresholds] normalised scores.
        confidence: the probability that the interval should cover, in (0, 1).
        seed: names the stream of the resamples.
        resamples: number of resamples; memory is 8 x resamples x thresholds bytes.

    Returns:
        The lower and the upper ends, [thresholds] each; NaN if a stratum has fewer than three runs.

    Raises:
        UsageError: there is no stratum, or ``confidence`` is not in (0, 1).
    """
    levels = np.asarray(thresholds, dtype=np.float64)
    arrays = _strata(strata, confidence)
    if any(array.size < MIN_RUNS for array in arrays):
        return np.full(levels.shape, np.nan), np.full(levels.shape, np.nan)
    rng = stream(seed, Purpose.BOOTSTRAP)
    shares = np.zeros((resamples, levels.size))
    for array in arrays:
        drawn = rng.integers(array.size, size=(resamples, array.size))
        times = np.stack([np.count_nonzero(drawn == run, axis=1) for run in range(array.size)], 1)
        above = array[:, None] > levels
        shares += times @ above.astype(np.float64) / (array.size * len(arrays))
    tail = (1 - confidence) / 2
    low, high = np.quantile(shares, (tail, 1 - tail), axis=0)
    return low, high


def probability_of_improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """The probability that a run of ``first`` beats one of ``second``, ties shared.

    It is the Mann-Whitney U statistic over the number of pairs.

    Args:
        first: [..., runs] of one environment.
        second: [..., runs] of it, in any number.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    pairs = np.sign(ours[..., :, None] - theirs[..., None, :])
    share: Floats = 0.5 + 0.5 * pairs.mean(axis=(-2, -1))
    return share


def hedges_g(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """The difference of means in pooled deviations, without small-sample bias.

    Args:
        first: [runs].
        second: [runs].

    Returns:
        NaN where there are fewer than three runs in all, or none differs within its side.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    freedom = ours.size + theirs.size - 2
    squares = ours.size * ours.var() + theirs.size * theirs.var()
    if freedom < 1 or not squares > 0:
        return math.nan
    correction = 1 - 3 / (4 * freedom - 1)
    return float((ours.mean() - theirs.mean()) / math.sqrt(squares / freedom) * correction)


def stratified_interval(
    statistic: Statistic,
    strata: Sequence[npt.ArrayLike],
    method: Method = "percentile",
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """The bootstrap interval of a statistic; runs are drawn within each stratum.

    The percentile interval equals that of ``scipy.stats.bootstrap`` with the same resamples,
    without the slow import of SciPy. ``plots/error_rates.md`` has the simulated coverage.

    Args:
        statistic: of the strata.
        strata: [runs] each.
        method: "percentile", or "bca", bias-corrected and accelerated. Where BCa is undefined
            because all runs of a side are equal, the percentile interval is used.
        confidence: the probability that the interval should cover, in (0, 1).
        seed: names the stream of the resamples.
        resamples: number of resamples.

    Returns:
        The lower and the upper end; NaN if a stratum has fewer than three runs, or a run that is
        not finite.

    Raises:
        UsageError: there is no stratum, or ``confidence`` is not in (0, 1).
    """
    arrays = _strata(strata, confidence)
    if any(a.size < MIN_RUNS or not np.isfinite(a).all() for a in arrays):
        return math.nan, math.nan
    if method == "bca":
        low, high = _bca_ends(statistic, arrays, confidence, seed, resamples)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    rng = stream(seed, Purpose.BOOTSTRAP)
    drawn = [a[rng.integers(a.size, size=(resamples, a.size))] for a in arrays]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(*drawn, axis=-1), (tail, 1 - tail))
    return float(low), float(high)


def _strata(strata: Sequence[npt.ArrayLike], confidence: float) -> list[Floats]:
    """Check the confidence and that there is a stratum; strata as arrays."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence}: expected a number between 0 and 1, as 0.95")
    if not strata:
        raise UsageError("no scores; expected at least one environment")
    return [np.asarray(stratum, dtype=np.float64) for stratum in strata]


def _bca_ends(
    statistic: Statistic, arrays: Sequence[Floats], confidence: float, seed: int, resamples: int
) -> tuple[float, float]:
    """SciPy's BCa interval, of the same resamples; NaN where it is not defined."""
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        # Dividing by a spread of zero is how SciPy finds out that BCa is not defined.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DegenerateDataWarning)
        ends = bootstrap(
            arrays,
            statistic,
            vectorized=True,
            n_resamples=resamples,
            confidence_level=confidence,
            method="BCa",
            rng=stream(seed, Purpose.BOOTSTRAP),
        ).confidence_interval
    return float(ends.low), float(ends.high)


def _means(strata: Sequence[npt.ArrayLike], axis: int) -> Floats:
    """The mean over runs of each environment: [environments, ...]."""
    return np.stack([np.asarray(s, dtype=np.float64).mean(axis=axis) for s in strata])
