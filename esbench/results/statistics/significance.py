"""Tests of differences between scores, one per training seed: pure functions on arrays.

Permutation tests of two groups of runs and Holm's correction: Fisher, "The design of experiments",
1935; Pitman, J. R. Stat. Soc. Suppl. 4, 1937; Holm, Scand. J. Stat. 6, 1979. If both groups come
from the same distribution, P(p <= a) <= a for every level a. The omnibus test takes the smallest p
of several statistics and compares it with the smallest p of every other split of the scores, so its
level is exact too (Westfall and Young, "Resampling-based multiple testing", 1993).

Change points of a series by binary segmentation (Vostrikova, Soviet Math. Dokl. 24, 1981): the
border that separates a series best is a change point if a test says so, then each side is searched.
Its statistic is the standardized difference of the mean ranks on both sides (Pettitt, Appl. Stat.
28, 1979), compared with the largest one of shuffled values (Antoch and Huskova, Stat. Probab. Lett.
53, 2001): the search over borders is accounted for, and ranks bound the weight of a failed run. A
series without a change has a change point with probability ``CHANGE_LEVEL`` at most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from statistics import fmean
from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.estimates import (
    MIN_RUNS,
    RESAMPLES,
    TRIMMED,
    draw_resamples,
    hedges_g,
    improvement_interval,
    iqm,
    iqm_across,
    probability_of_improvement,
    stratified_interval,
)

Standing: TypeAlias = Literal["best", "tied", ""]
LEVEL: Final = 0.05


@final
@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, NaN below three runs per side."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Comparison:
    """The result of comparing two sides.

    Attributes:
        first, second: interquartile means.
        difference: of these, first less second, with its percentile bootstrap interval.
        mean_difference: of the means, which the test compares.
        improvement: the probability that a run of the first beats one of the second, ties shared,
            with the interval of ``improvement_interval``.
        p_value: two-sided permutation test of the means; 1 if both sides have a single run.
        effect_size: Hedges' g, the difference of means in pooled deviations; NaN without spread.
    """

    first: float
    second: float
    runs: tuple[int, int]
    difference: Estimate
    mean_difference: float
    improvement: Estimate
    p_value: float
    effect_size: float


def compare(first: npt.ArrayLike, second: npt.ArrayLike) -> Comparison:
    """Compare two sides on one environment: finite scores, [runs] each, in any number."""
    ours, theirs = (np.asarray(side, dtype=np.float64) for side in (first, second))
    return Comparison(
        first=float(iqm_across(ours)),
        second=float(iqm_across(theirs)),
        runs=(ours.size, theirs.size),
        difference=_difference([ours, theirs]),
        mean_difference=float(ours.mean() - theirs.mean()),
        improvement=_improvement(ours, theirs),
        p_value=p_different(ours, theirs),
        effect_size=hedges_g(ours, theirs),
    )


def compare_across(
    first: Sequence[npt.ArrayLike], second: Sequence[npt.ArrayLike]
) -> tuple[Estimate, Estimate]:
    """The difference and the probability of improvement over the same environments of both sides.

    The difference is of the interquartile means over all runs of all environments, the probability
    the mean over environments, whose interval adds the squared distances of the intervals' ends
    (Zou & Donner, Statistics in Medicine 27, 2008). Scores are finite and normalized, [runs] each.
    """
    chances = [*map(_improvement, first, second)]
    mean = fmean(each.value for each in chances)
    below, above = (
        math.hypot(*(getattr(each, end) - each.value for each in chances)) / len(chances)
        for end in ("low", "high")
    )
    return _difference([*first, *second]), Estimate(mean, mean - below, mean + above)


def standings(sides: Sequence[npt.ArrayLike]) -> list[Standing]:
    """The best side by interquartile mean, and those not significantly worse.

    By two-sided permutation tests of means against the best, Holm-corrected over the sides, at
    ``LEVEL``. With three runs per side no p is below 0.1, so all are tied. The sides have [runs]
    finite scores each; all are "" if fewer than two have any, or one has fewer than three.
    """
    arrays = [np.asarray(side, dtype=np.float64) for side in sides]
    known = [index for index, array in enumerate(arrays) if array.size]
    found: list[Standing] = [""] * len(arrays)
    if len(known) < 2 or min(arrays[index].size for index in known) < MIN_RUNS:
        return found
    best = max(known, key=lambda index: float(iqm_across(arrays[index])))
    others = [index for index in known if index != best]
    p_values = holm([p_different(arrays[best], arrays[index]) for index in others])
    found[best] = "best"
    for index, p_value in zip(others, p_values, strict=True):
        is_worse = p_value <= LEVEL and arrays[index].mean() < arrays[best].mean()
        found[index] = "" if is_worse else "tied"
    return found


def chances_of_best(sides: Sequence[npt.ArrayLike]) -> list[float]:
    """How often each side has the highest IQM when its runs and those of the others are resampled.

    Shares of the resamples of all sides, [runs] finite scores each; equal IQMs share theirs. NaN
    for a side with fewer than three runs, whose resamples say nothing about its spread.
    """
    arrays = [np.asarray(side, dtype=np.float64) for side in sides]
    drawn = draw_resamples([array.size for array in arrays], RESAMPLES)
    scores = np.stack([iqm(a[runs].T) for a, runs in zip(arrays, drawn.runs, strict=True)])
    best = scores == scores.max(axis=0)
    shares = np.average(best / best.sum(axis=0), axis=1, weights=drawn.weights)
    return [
        float(share) if array.size >= MIN_RUNS else math.nan
        for array, share in zip(arrays, shares, strict=True)
    ]


def _difference(strata: Sequence[npt.ArrayLike]) -> Estimate:
    """The difference of the IQM over the first half of the strata and that over the second."""
    half = len(strata) // 2

    def difference(*drawn: npt.ArrayLike) -> Floats:
        return iqm_across(*drawn[:half]) - iqm_across(*drawn[half:])

    return Estimate(float(difference(*strata)), *stratified_interval(difference, strata))


def _improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> Estimate:
    chance = float(probability_of_improvement(first, second))
    return Estimate(chance, *improvement_interval(chance, (np.size(first), np.size(second))))


TestStatistic: TypeAlias = Literal["mean", "ranks", "iqm"]
"""What a test compares of both sides' [runs]; an ``EpisodeStatistic`` is of one run's episodes."""
Bools: TypeAlias = npt.NDArray[np.bool_]

OMNIBUS: Final[tuple[TestStatistic, ...]] = ("mean", "ranks", "iqm")
MOST_FLIPS: Final = 2_000_000  # signs at once
PERMUTATIONS: Final = 20_000  # random ones
MOST_SPLITS: Final = 200_000  # all 184,756 of ten seeds against ten
EPSILON: Final = float(np.finfo(np.float64).eps)


def p_greater(
    high: npt.ArrayLike,
    low: npt.ArrayLike,
    seed: int = 0,
    resamples: int = PERMUTATIONS,
    statistics: Sequence[TestStatistic] = ("mean",),
) -> float:
    """The p-value of a permutation test for "the scores ``high`` are above ``low``".

    Both are [runs]. Exact if the splits of the scores into two sides are few (``all_splits``).
    Otherwise it uses ``resamples`` random ones, of the stream ``seed``, including the observed one
    (Phipson and Smyth, SAGMB 9, 2010). Several ``statistics`` are combined by the smallest p-value.
    For the mean it equals ``scipy.stats.permutation_test`` and is faster: cells share the splits,
    and a statistic of all splits is one matrix product.
    """
    ours, theirs = np.asarray(high, dtype=np.float64), np.asarray(low, dtype=np.float64)
    scores = np.concatenate([ours, theirs])
    order = np.argsort(scores, kind="stable")
    scores = scores[order]
    observed = order < ours.size
    splits = all_splits(ours.size, theirs.size, resamples)
    own = _place(np.flatnonzero(observed).tolist(), scores.size) if splits else -1
    drawn = (0, 0) if splits else (seed, resamples)
    tested = []
    for statistic in statistics:
        trimmed = TRIMMED if statistic == "iqm" else 0.0
        values, scale = _centered(scores, statistic, int(trimmed * min(ours.size, theirs.size)))
        differences = _contrasts(ours.size, theirs.size, *drawn, trimmed) @ values
        if not splits:
            differences = np.append(differences, _contrast(observed[None], trimmed) @ values)
        # Equal sums may differ in their last bits, by the order in which they are added.
        tested.append((differences, 4 * EPSILON * scores.size * scale))
    most, tolerance = tested[0]
    if len(tested) > 1:  # the more splits are below one, the smaller is its p-value
        most, tolerance = np.max([_numbers_below(*each) for each in tested], axis=0), 0.0
    return float(np.mean(most >= most[own] - tolerance))


def all_splits(first: int, second: int, resamples: int = PERMUTATIONS) -> int:
    """The number of splits into sides of these numbers of runs, 0 if they are not all tried.

    All are tried up to ``resamples``, and up to ``MOST_SPLITS`` of 20 runs unless fewer resamples
    than by default are asked for; the sides of more runs take more memory.
    """
    runs = max(20, first + second)
    most = resamples if resamples < PERMUTATIONS else max(resamples, 20 * MOST_SPLITS // runs)
    splits = math.comb(first + second, first)
    return splits if splits <= most else 0


def _place(chosen: Sequence[int], number: int) -> int:
    """The place of a combination of ascending numbers below ``number`` in ``combinations``."""
    after = (math.comb(number - 1 - each, len(chosen) - place) for place, each in enumerate(chosen))
    return math.comb(number, len(chosen)) - 1 - sum(after)


def p_different(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """The two-sided p-value: twice the smaller of the one-sided ones, as in SciPy."""
    return min(1.0, 2 * min(p_greater(first, second), p_greater(second, first)))


def p_paired(first: npt.ArrayLike, second: npt.ArrayLike, seed: int = 0) -> float:
    """The two-sided p-value of a sign-flip test of the mean difference of pairs, both [pairs].

    It is exact under the hypothesis that a pair may be swapped. Pairs of equal values say nothing.
    Exact for few pairs and for differences of one sign; otherwise with random flips of the stream
    ``seed``, including none, as in ``scipy.stats.permutation_test`` with
    ``permutation_type="samples"``.
    """
    differences = np.subtract(first, second, dtype=np.float64)
    differences = differences[differences != 0]
    total, size = differences.sum(), differences.size
    if size and len(set(differences > 0)) == 1:
        return math.ldexp(1.0, 1 - size)
    limit = abs(total) - 4 * EPSILON * np.abs(differences).sum()
    blocks: Iterable[npt.NDArray[np.int_] | npt.NDArray[np.int8]]
    if 2**size <= PERMUTATIONS:
        blocks = [np.array([*itertools.product((0, 1), repeat=size)])]
        hits, tried = 0, 0
    else:
        rng, step = np.random.default_rng(seed), max(1, MOST_FLIPS // size)
        sizes = [min(step, PERMUTATIONS - begin) for begin in range(1, PERMUTATIONS, step)]
        blocks = (rng.integers(0, 2, (rows, size), dtype=np.int8) for rows in sizes)
        hits, tried = 1, 1  # the observed one
    for flips in blocks:
        hits += int((np.abs(total - 2 * (flips @ differences)) >= limit).sum())
        tried += len(flips)
    return hits / tried


def holm(p_values: npt.ArrayLike) -> Floats:
    """P-values adjusted by Holm's step-down procedure: [tests] from [tests]."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def _centered(scores: Floats, statistic: TestStatistic, cut: int) -> tuple[Floats, float]:
    """What a statistic sums of sorted [scores], and the size whose rounding counts as equal."""
    if statistic == "ranks":
        ranks = _centered_ranks(scores)
        return ranks, float(np.abs(ranks).max())
    # No split keeps the first and last ``cut`` scores. An exploded one must not round the others.
    kept = np.clip(scores, scores[cut], scores[-1 - cut])
    middle = np.median(kept) if cut else kept.mean()
    return kept - middle, float(np.abs(kept).max())


def _numbers_below(values: Floats, tolerance: float) -> Floats:
    """How many of [values] are smaller than each of them, by more than ``tolerance``."""
    order = np.argsort(values)
    rising = values[order]
    numbers = np.empty(values.size)
    numbers[order] = np.searchsorted(rising, rising - tolerance, "left")
    return numbers


def _contrast(splits: Bools, trimmed: float) -> Floats:
    """The weights of sorted scores in the difference of both sides' means: [splits, scores].

    Of each side, the share ``trimmed`` is cut at both ends.
    """
    weights = np.zeros(splits.shape)
    for side, sign in ((splits, 1.0), (~splits, -1.0)):
        number = np.count_nonzero(side[0])
        cut = int(trimmed * number)
        place = np.cumsum(side, axis=1, dtype=np.int16)
        kept = side & (place > cut) & (place <= number - cut)
        weights += sign / (number - 2 * cut) * kept
    return weights


@lru_cache(maxsize=8)
def _contrasts(ours: int, theirs: int, seed: int, resamples: int, trimmed: float) -> Floats:
    """``_contrast`` of ``resamples`` - 1 random splits of sorted scores, or of all for 0."""
    total = ours + theirs
    if not resamples:
        places = chain.from_iterable(combinations(range(total), ours))
        chosen = np.fromiter(places, np.intp).reshape(-1, ours)
    else:
        keys = stream(seed, Purpose.PERMUTATION, ours, theirs).random((resamples - 1, total))
        chosen = np.argpartition(keys, ours - 1, axis=1)[:, :ours]
    splits = np.zeros((len(chosen), total), dtype=np.bool_)
    np.put_along_axis(splits, chosen, True, axis=1)
    return _contrast(splits, trimmed)


CHANGE_LEVEL: Final = 0.01
SHUFFLES: Final = 2000
TOLERANCE: Final = 1e-9  # equal sums may differ in their last bits
BLOCK: Final = 100  # shuffles at once


def change_points(samples: Sequence[npt.ArrayLike], level: float = CHANGE_LEVEL) -> list[int]:
    """The places of the samples that begin a new level, ascending; never the first.

    Samples are finite, [values] each. ``level``: of a change point in a series without a change.
    """
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    found: list[int] = []
    parts = [(0, len(arrays))]
    while parts:
        start, end = parts.pop()
        if place := _change_point(arrays[start:end], level, start, end):
            found.append(start + place)
            parts += [(start, start + place), (start + place, end)]
    return sorted(found)


def _change_point(arrays: Sequence[Floats], level: float, *stream_name: int) -> int:
    """The number of samples before the border that separates them best; 0 if not significant."""
    if len(arrays) < 2:
        return 0
    ranks = _centered_ranks(np.concatenate(arrays))
    borders = np.cumsum([array.size for array in arrays])[:-1]
    observed = _separations(ranks[None], borders)[0]
    rng = stream(0, Purpose.PERMUTATION, *stream_name)
    largest = observed.max() * (1 - TOLERANCE)
    at_least = 1  # the observed order is one of all
    for _ in range(0, SHUFFLES, BLOCK):
        shuffled = rng.permuted(np.tile(ranks, (BLOCK, 1)), axis=1)
        at_least += int(np.count_nonzero(_separations(shuffled, borders).max(axis=1) >= largest))
        if at_least > level * (SHUFFLES + 1):  # p stays above the level
            return 0
    return int(observed.argmax()) + 1


def _separations(ranks: Floats, borders: npt.NDArray[np.int64]) -> Floats:
    """The standardized differences of mean ranks on both sides: [series, borders]."""
    before = np.cumsum(ranks, axis=1)[:, borders - 1]
    return np.asarray(np.abs(before) / np.sqrt(borders * (ranks.shape[1] - borders)))


def _centered_ranks(values: Floats) -> Floats:
    """The ranks of [values], less their mean; equal values share theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.asarray(ranks - ranks.mean())
