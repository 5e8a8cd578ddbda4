"""Estimates of scores over training seeds and environments: pure functions on arrays.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS
2021: interquartile mean, optimality gap, performance profile and probability of improvement;
Hedges, "Distribution theory for Glass's estimator of effect size", J. Educ. Stat. 6, 1981.

Intervals are percentile bootstrap intervals (Efron, Annals of Statistics 7, 1979) from all
resamples where these are few (Fisher and Hall, J. Stat. Plan. Inference 27, 1991): random resamples
of few runs often miss the end of an interval by a whole score.

Functions over seeds have the runs along the first axis. A value that is not finite makes a result
NaN: leaving it out would favor algorithms that diverge. ``diverged_as_worst`` gives it a score.

Functions over environments take strata, the normalized scores of one environment each: [runs] or,
for resamples, [..., runs]. All environments weigh the same, whatever their number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist
from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats, unit_of
from esbench.core.seeding import Purpose, stream

EpisodeStatistic: TypeAlias = Literal["mean", "tail", "area"]
"""What makes one number of a run's episodes; a ``TestStatistic`` compares such numbers.

The mean or the tail of held-out episodes, or the area under the learning curve of training.
"""

Pick: TypeAlias = Literal["median", "worst"]
"""An episode of many: the one whose return is nearest to the median, or the lowest one."""

MIN_RUNS: Final = 3
RESAMPLES: Final = 10_000
TRIMMED: Final = 0.25
TAIL_PARTS: Final = 10  # the tail is the worst tenth


def iqm(values: npt.ArrayLike) -> Floats:
    """The interquartile mean over runs: the mean without the lowest and highest quarter.

    [] or [points] from [runs] or [runs, points]; NaN where a run is not finite. A quarter of the
    runs is rounded down, so with fewer than four runs it is the mean. It equals
    ``scipy.stats.trim_mean`` to the last bit, without the slow import of SciPy.
    """
    array = _finite(values)
    cut = int(TRIMMED * len(array))
    end = len(array) - cut
    means = np.partition(array, (cut, end - 1), axis=0)[cut:end].mean(axis=0)
    return np.where(np.isnan(array).any(axis=0), np.nan, means)


def picked(returns: npt.ArrayLike, pick: Pick) -> int:
    """The index of an episode among the returns of one or more; the first of equal ones."""
    known = np.asarray(returns, dtype=np.float64)
    goal = np.median(known) if pick == "median" else np.min(known)
    return int(np.argmin(np.abs(known - goal)))


def tail_mean(returns: npt.ArrayLike) -> float:
    """The mean of the worst 10 % of the episodes, of [episodes] returns.

    A tenth of the episodes is rounded up, so that it is at least one; NaN if there is no episode or
    a return is not finite. It is the expected shortfall at 10 %.
    """
    array = _finite(returns)
    worst = tail_size(array.size)
    return float(np.sort(array)[:worst].mean()) if np.isfinite(array).all() and worst else math.nan


def tail_size(episodes: int) -> int:
    """The number of the worst episodes in a tail."""
    return -(-episodes // TAIL_PARTS)


def diverged_as_worst(
    sides: Sequence[Sequence[float | None]], random_score: float = math.inf
) -> list[list[float]]:
    """The scores of sides, in which a run that diverged, None, counts as the worst of all.

    The random policy's score counts too. Without any score, the sides have none.
    """
    finite = [score for side in sides for score in side if score is not None]
    worst = min([random_score, *finite])
    if worst == math.inf:
        return [[] for _ in sides]
    return [[worst if score is None else score for score in side] for side in sides]


def bootstrap_interval(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The 95 % percentile bootstrap interval of the IQM over runs, separately at each point.

    Its ends are [] or [points] from [runs] or [runs, points]; NaN where a run is not finite, and
    everywhere below three runs, whose resamples say nothing about the spread.
    """
    array = _finite(values)
    runs, shape = len(array), array.shape[1:]
    if runs < MIN_RUNS:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    # Every point has its own order of the runs. Resampling ranks instead of runs has the same
    # distribution at each point, and makes the IQM of all resamples one matrix product.
    resamples, weights = _resampled_weights(runs)
    low, high = resamples.interval(weights @ np.sort(array.reshape(runs, -1), axis=0))
    return low.reshape(shape), high.reshape(shape)


def normalized(score: float, random: float, reference: float) -> float:
    """A score on the scale where random actions have 0 and the reference has 1.

    NaN if a score is, or if the reference is not better than random actions.
    """
    return (score - random) / (reference - random) if reference > random else math.nan


def _finite(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


@lru_cache(maxsize=8)  # rows with as many runs share the resamples
def _resampled_weights(runs: int) -> tuple[Resamples, Floats]:
    """Resamples, and the weight [resamples, runs] of each sorted run in the IQM of each."""
    resamples = draw_resamples((runs,), RESAMPLES)
    ranks = resamples.runs[0]
    cut = int(TRIMMED * runs)
    kept = np.sort(ranks, axis=1)[:, cut : runs - cut]
    cells = kept + runs * np.arange(len(ranks))[:, None]
    counts = np.bincount(cells.ravel(), minlength=ranks.size)
    return resamples, counts.reshape(ranks.shape) / kept.shape[1]


Ints: TypeAlias = npt.NDArray[np.int64]

CONFIDENCE: Final = 0.95
ENDS: Final = ((1 - CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / 2)  # quantiles of an interval's ends
MOST_EXACT: Final = 20_000  # eight runs, or two sides of five


@final
@dataclass(frozen=True)
class Resamples:
    """Resamples of the runs of each stratum.

    Attributes:
        runs: which runs are drawn, [resamples, runs] for each stratum.
        weights: how often each resample occurs among all, [resamples]; None for random ones.
    """

    runs: tuple[Ints, ...]
    weights: Ints | None

    def interval(self, replicates: Floats) -> tuple[Floats, Floats]:
        """The 95 % percentile interval, [...], of a statistic of the resamples, [resamples, ...].

        Its ends are values of the statistic; between random resamples they are interpolated.
        """
        if self.weights is None:
            low, high = np.quantile(replicates, ENDS, axis=0)
        else:
            low, high = np.quantile(
                replicates, ENDS, axis=0, weights=self.weights, method="inverted_cdf"
            )
        return low, high


def draw_resamples(sizes: Sequence[int], number: int) -> Resamples:
    """All resamples of strata of ``sizes`` if they are few, otherwise a ``number`` of random ones.

    Resamples of the same runs in another order are one. The random stream is always the same.
    """
    if math.prod(math.comb(2 * size - 1, size) for size in sizes) > MOST_EXACT:
        rng = stream(0, Purpose.BOOTSTRAP)
        return Resamples(tuple(rng.integers(n, size=(number, n)) for n in sizes), None)
    strata = [_all_resamples(size) for size in sizes]
    places = np.indices([len(weights) for _, weights in strata]).reshape(len(strata), -1)
    parts = [weights[place] for (_, weights), place in zip(strata, places, strict=True)]
    return Resamples(
        tuple(runs[place] for (runs, _), place in zip(strata, places, strict=True)),
        np.prod(parts, axis=0),
    )


@lru_cache(maxsize=8)
def _all_resamples(size: int) -> tuple[Ints, Ints]:
    """All resamples of a stratum, sorted, [resamples, size], and how often each occurs."""
    runs = np.array(list(combinations_with_replacement(range(size), size)))
    times = (runs[:, :, None] == np.arange(size)).sum(axis=1)
    factorials = np.array([math.factorial(number) for number in range(size + 1)])
    weights: Ints = factorials[size] // factorials[times].prod(axis=1)
    return runs, weights


StrataStatistic: TypeAlias = Callable[..., Floats]
"""Takes strata [..., runs], gives [...]."""

STRATIFIED_RESAMPLES: Final = 9_999
_BISECTIONS: Final = 50  # of [0, 1]: to the last bits
PROFILE_RESAMPLES: Final = 1_999  # an interval at each of several hundred thresholds
OVERALL_RESAMPLES: Final = 1_999  # each of strata with many runs


def mean_across(*strata: npt.ArrayLike) -> Floats:
    """The mean over environments of the mean over runs: [...] from strata [..., runs]."""
    return np.asarray(np.mean(_means(strata), axis=0))


def median_across(*strata: npt.ArrayLike) -> Floats:
    """The median over environments of the mean over runs: [...] from strata [..., runs]."""
    return np.asarray(np.median(_means(strata), axis=0))


def iqm_across(*strata: npt.ArrayLike) -> Floats:
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
    return np.asarray((kept * ordered).sum(axis=-1) / (total - 2 * cut))


def optimality_gap(*strata: npt.ArrayLike) -> Floats:
    """The mean shortfall of scores below 1: [...] from strata [..., runs]."""
    return mean_across(*(np.maximum(1.0 - np.asarray(s, dtype=np.float64), 0.0) for s in strata))


def performance_profile(strata: Sequence[npt.ArrayLike], thresholds: npt.ArrayLike) -> Floats:
    """The share of runs in strata [runs] with a score above each of [thresholds]."""
    levels = np.asarray(thresholds, dtype=np.float64)
    return mean_across(*(np.asarray(stratum)[None, :] > levels[:, None] for stratum in strata))


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
    return np.asarray(0.5 + 0.5 * pairs.mean(axis=(-2, -1)))


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
    spreads = any(side.size and side.min() < side.max() for side in (first, second))
    if freedom < 1 or not spreads:  # rounding of the means leaves squares even without a spread
        return math.nan
    correction = 1 - 3 / (4 * freedom - 1)
    return float((first.mean() - second.mean()) / pooled_deviation(first, second) * correction)


def pooled_deviation(first: Floats, second: Floats) -> float:
    """The standard deviation within two sides of [runs] each, of three runs or more in all."""
    unit = unit_of(first, second)
    squares = sum(side.size * (side / unit).var() for side in (first, second))
    return unit * math.sqrt(squares / (first.size + second.size - 2))


def stratified_interval(
    statistic: StrataStatistic,
    strata: Sequence[npt.ArrayLike],
    resamples: int = STRATIFIED_RESAMPLES,
) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of a statistic; runs are drawn within each stratum.

    NaN if a stratum has fewer than three runs, or a run that is not finite. Random resamples give
    the interval of ``scipy.stats.bootstrap``. ``plots/error_rates.md`` has the simulated coverage.
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


@final
@dataclass(frozen=True)
class Overall:
    """Statistics of one algorithm's normalized scores over all runs of all environments.

    The IQM has a 95 % stratified percentile bootstrap interval, NaN with fewer than three seeds in
    an environment. The median is that of the means of the environments.
    """

    name: str
    iqm: float
    low: float
    high: float
    mean: float
    median: float
    optimality_gap: float


def overall(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Overall]:
    """Statistics of every algorithm with scores in all of two or more environments, the best first.

    ``scores`` are normalized, [runs], by algorithm and environment.
    """
    environments = sorted({name for table in scores.values() for name in table})
    if len(environments) < 2:
        return []
    found = []
    for name, table in scores.items():
        strata = [table.get(key, ()) for key in environments]
        if all(strata):
            others = (mean_across, median_across, optimality_gap)
            interval = stratified_interval(iqm_across, strata, OVERALL_RESAMPLES)
            values = (float(statistic(*strata)) for statistic in others)
            found.append(Overall(name, float(iqm_across(*strata)), *interval, *values))
    return sorted(found, key=lambda item: -item.iqm)
