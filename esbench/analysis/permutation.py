"""Permutation tests of two groups of runs, and Holm's correction: pure functions on arrays.

Fisher, "The design of experiments", 1935; Pitman, "Significance tests which may be applied to
samples from any populations", J. R. Stat. Soc. Suppl. 4, 1937; Holm, "A simple sequentially
rejective multiple test procedure", Scand. J. Stat. 6, 1979. If both groups come from the
same distribution, P(p <= a) <= a for every level a.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from esbench.analysis.statistics import Floats
from esbench.seeding import Purpose, stream

RESAMPLES: Final = 20_000  # all 12,870 of eight seeds against eight
TIE_TOLERANCE: Final = 1e-12


def p_greater(
    high: npt.ArrayLike, low: npt.ArrayLike, seed: int = 0, resamples: int = RESAMPLES
) -> float:
    """The p-value of a permutation test for "the mean of ``high`` is above that of ``low``".

    Exact if there are at most ``resamples`` splits of the scores into two sides. Otherwise it uses
    ``resamples`` random splits, including the observed one (Phipson and Smyth, SAGMB 9, 2010).
    ``seed`` names their stream. It equals ``scipy.stats.permutation_test`` and is faster: cells
    share the splits, and the sums are one matrix product.
    """
    ours, theirs = np.asarray(high, dtype=np.float64), np.asarray(low, dtype=np.float64)
    scores = np.concatenate([ours, theirs])
    scores -= scores.mean()
    sums = _ways(ours.size, theirs.size, seed, resamples) @ scores
    # Equal sums may differ in their last bits, by the order in which they are added.
    equal = TIE_TOLERANCE * np.abs(scores).max()
    return float(np.mean(sums >= scores[: ours.size].sum() - equal))


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


@lru_cache(maxsize=8)
def _ways(ours: int, theirs: int, seed: int, resamples: int) -> Floats:
    """The splits of scores, the observed one first; 1 where one is ours: [splits, scores]."""
    total = ours + theirs
    count = math.comb(total, ours)
    if count <= resamples:
        chosen = np.array(list(combinations(range(total), ours)), dtype=np.intp)
    else:
        keys = stream(seed, Purpose.PERMUTATION, ours, theirs).random((resamples, total))
        chosen = np.argpartition(keys, ours - 1, axis=1)[:, :ours]
        chosen[0] = np.arange(ours)
    ways = np.zeros((len(chosen), total))
    np.put_along_axis(ways, chosen, 1.0, axis=1)
    return ways
