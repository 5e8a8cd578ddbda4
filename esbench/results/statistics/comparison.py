"""Comparison of two sides: pure functions on arrays of scores, one per training seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.results.statistics.aggregates import (
    hedges_g,
    improvement_interval,
    iqm,
    probability_of_improvement,
    stratified_interval,
)
from esbench.results.statistics.permutation import holm, p_different
from esbench.results.statistics.statistics import MIN_RUNS

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
        first=float(iqm(ours)),
        second=float(iqm(theirs)),
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
    """The difference and the probability of improvement over several environments.

    The difference is of the interquartile means over all runs of all environments, the probability
    the mean over environments, whose interval adds the squared distances of the intervals' ends
    (Zou & Donner, "Construction of confidence limits about effect measures", Statistics in
    Medicine 27, 2008). Both sides have the same environments in the same order, [runs] finite
    normalized scores each.
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
    best = max(known, key=lambda index: float(iqm(arrays[index])))
    others = [index for index in known if index != best]
    p_values = holm([p_different(arrays[best], arrays[index]) for index in others])
    found[best] = "best"
    for index, p_value in zip(others, p_values, strict=True):
        is_worse = p_value <= LEVEL and arrays[index].mean() < arrays[best].mean()
        found[index] = "" if is_worse else "tied"
    return found


def adjusted(comparisons: Sequence[Comparison]) -> Floats:
    """The p-values with Holm's correction: [comparisons]."""
    return holm([comparison.p_value for comparison in comparisons])


def _difference(strata: Sequence[npt.ArrayLike]) -> Estimate:
    """The difference of the IQM over the first half of the strata and that over the second."""
    half = len(strata) // 2

    def difference(*drawn: npt.ArrayLike) -> Floats:
        return iqm(*drawn[:half]) - iqm(*drawn[half:])

    return Estimate(float(difference(*strata)), *stratified_interval(difference, strata))


def _improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> Estimate:
    chance = float(probability_of_improvement(first, second))
    return Estimate(chance, *improvement_interval(chance, (np.size(first), np.size(second))))
