"""Permutation tests of two groups of runs, and Holm's correction: pure functions on arrays.

Fisher, "The design of experiments", 1935; Pitman, "Significance tests which may be applied to
samples from any populations", J. R. Stat. Soc. Suppl. 4, 1937; Holm, "A simple sequentially
rejective multiple test procedure", Scand. J. Stat. 6, 1979. If both groups come from the
same distribution, P(p <= a) <= a for every level a.

The omnibus test takes the smallest p of several statistics and compares it with the smallest p of
every other split of the scores, so its level is exact too: Westfall and Young, "Resampling-based
multiple testing", 1993; Pesarin and Salmaso, "Permutation tests for complex data", 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.statistics import TRIMMED

TestStatistic: TypeAlias = Literal["mean", "ranks", "iqm"]
"""What a test compares of both sides' [runs]; an ``EpisodeStatistic`` is of one run's episodes."""
Bools: TypeAlias = npt.NDArray[np.bool_]

OMNIBUS: Final[tuple[TestStatistic, ...]] = ("mean", "ranks", "iqm")
PERMUTATIONS: Final = 20_000  # all 12,870 of eight seeds against eight
EPSILON: Final = float(np.finfo(np.float64).eps)


def p_greater(
    high: npt.ArrayLike,
    low: npt.ArrayLike,
    seed: int = 0,
    resamples: int = PERMUTATIONS,
    statistics: Sequence[TestStatistic] = ("mean",),
) -> float:
    """The p-value of a permutation test for "the scores ``high`` are above ``low``".

    Exact if there are at most ``resamples`` splits of the scores into two sides. Otherwise it uses
    ``resamples`` random splits, including the observed one (Phipson and Smyth, SAGMB 9, 2010). For
    the mean it equals ``scipy.stats.permutation_test`` and is faster: cells share the splits, and
    a statistic of all splits is one matrix product.

    Args:
        high: scores, [runs].
        low: scores, [runs].
        seed: names the stream of random splits.
        resamples: the largest number of splits.
        statistics: one is tested alone; several are combined by the smallest p-value.
    """
    ours, theirs = np.asarray(high, dtype=np.float64), np.asarray(low, dtype=np.float64)
    scores = np.concatenate([ours, theirs])
    order = np.argsort(scores, kind="stable")
    scores = scores[order]
    observed = order < ours.size
    contrasts = partial(_contrasts, ours.size, theirs.size, seed, resamples)
    has_all = math.comb(scores.size, ours.size) <= resamples
    own = np.argmax(((contrasts(0.0) > 0) == observed).all(axis=1)) if has_all else -1
    columns = []
    for statistic in statistics:
        trimmed = TRIMMED if statistic == "iqm" else 0.0
        values, scale = _centered(scores, statistic, int(trimmed * min(ours.size, theirs.size)))
        differences = contrasts(trimmed) @ values
        if not has_all:
            differences = np.append(differences, _contrast(observed[None], trimmed) @ values)
        # Equal sums may differ in their last bits, by the order in which they are added.
        columns.append(_numbers_below(differences, 4 * EPSILON * scores.size * scale))
    most = np.max(columns, axis=0)  # the more splits are below one, the smaller is its p-value
    return float(np.mean(most >= most[own]))


def p_different(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """The two-sided p-value: twice the smaller of the one-sided ones, as in SciPy."""
    return min(1.0, 2 * min(p_greater(first, second), p_greater(second, first)))


def holm(p_values: npt.ArrayLike) -> Floats:
    """P-values adjusted by Holm's step-down procedure: [tests] from [tests]."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def _centered(scores: Floats, statistic: TestStatistic, cut: int) -> tuple[Floats, float]:
    """What a statistic sums of sorted [scores], and the size whose rounding counts as equal.

    No split keeps the first and last ``cut`` scores. An exploded one must not round the others.
    """
    if statistic == "ranks":
        ranks = _ranks(scores)
        return ranks, float(np.abs(ranks).max())
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


def _ranks(scores: Floats) -> Floats:
    """The ranks of sorted [scores], less their mean; equal scores share theirs."""
    ends = [np.searchsorted(scores, scores, side) for side in ("left", "right")]
    ranks: Floats = np.sum(ends, axis=0) / 2 - scores.size / 2
    return ranks


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
    """``_contrast`` of all splits of sorted scores, or of ``resamples`` - 1 random ones."""
    total = ours + theirs
    if math.comb(total, ours) <= resamples:
        chosen = np.array(list(combinations(range(total), ours)), dtype=np.intp)
    else:
        keys = stream(seed, Purpose.PERMUTATION, ours, theirs).random((resamples - 1, total))
        chosen = np.argpartition(keys, ours - 1, axis=1)[:, :ours]
    splits = np.zeros((len(chosen), total), dtype=np.bool_)
    np.put_along_axis(splits, chosen, True, axis=1)
    return _contrast(splits, trimmed)
