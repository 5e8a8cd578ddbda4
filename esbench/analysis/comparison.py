"""Comparison of two sides: pure functions on arrays of scores, one per training seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.analysis.aggregates import (
    Statistic,
    hedges_g,
    iqm,
    mean,
    probability_of_improvement,
    stratified_interval,
)
from esbench.analysis.permutation import holm, p_different
from esbench.analysis.statistics import Floats
from esbench.errors import UsageError

Standing: TypeAlias = Literal["best", "tied", ""]
LEVEL: Final = 0.05


@final
@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % percentile bootstrap interval, NaN below three runs per side."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Comparison:
    """The result of comparing two sides.

    Attributes:
        first, second: interquartile means.
        runs: of the first, and of the second.
        difference: of the interquartile means, first less second.
        mean_difference: of the means, which the test compares.
        improvement: the probability that a run of the first beats one of the second, ties shared.
        p_value: two-sided permutation test of the means; 1 if a side has a single run.
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


def compare(first: npt.ArrayLike, second: npt.ArrayLike, seed: int = 0) -> Comparison:
    """Compare two sides on one environment.

    Args:
        first: [runs] finite scores.
        second: [runs] finite scores, in any number.
        seed: names the streams of resamples and permutations.

    Raises:
        UsageError: a side has no score, or one that is not finite.
    """
    ours, theirs = _scores(first), _scores(second)
    return Comparison(
        first=float(iqm(ours)),
        second=float(iqm(theirs)),
        runs=(ours.size, theirs.size),
        difference=_estimate(_difference, [ours, theirs], seed),
        mean_difference=float(ours.mean() - theirs.mean()),
        improvement=_estimate(_improvement, [ours, theirs], seed),
        p_value=p_different(ours, theirs, seed),
        effect_size=hedges_g(ours, theirs),
    )


def compare_across(
    first: Sequence[npt.ArrayLike], second: Sequence[npt.ArrayLike], seed: int = 0
) -> tuple[Estimate, Estimate]:
    """The difference and the probability of improvement over several environments.

    The difference is of the interquartile means over all runs of all environments, the probability
    the mean over environments; runs are resampled within each environment and side.

    Args:
        first: an environment each, [runs] normalised scores.
        second: the same environments, in the same order.
        seed: names the stream of the resamples.

    Raises:
        UsageError: there are not as many environments on both sides, or none, or a score is not
            finite.
    """
    if not first or len(first) != len(second):
        raise UsageError(
            f"{len(first)} and {len(second)} environments: expected as many, and at least one"
        )
    strata = [*map(_scores, first), *map(_scores, second)]
    return _estimate(_difference, strata, seed), _estimate(_improvement, strata, seed)


def standings(
    sides: Sequence[npt.ArrayLike], level: float = LEVEL, seed: int = 0
) -> list[Standing]:
    """The best side by interquartile mean, and those not significantly different from it.

    Args:
        sides: [runs] finite scores each; one without scores is neither.
        level: of the two-sided permutation tests of means against the best, Holm-corrected over
            the sides. With three runs per side no p is below 0.1, so all are tied.
        seed: names the stream of the permutations.

    Returns:
        "best", "tied" or "" for each side; all "" if fewer than two have scores.
    """
    arrays = [np.asarray(side, dtype=np.float64) for side in sides]
    known = [index for index, array in enumerate(arrays) if array.size]
    found: list[Standing] = [""] * len(arrays)
    if len(known) < 2:
        return found
    best = max(known, key=lambda index: float(iqm(arrays[index])))
    others = [index for index in known if index != best]
    p_values = holm([p_different(arrays[best], arrays[index], seed) for index in others])
    found[best] = "best"
    for index, p_value in zip(others, p_values, strict=True):
        found[index] = "tied" if p_value > level else ""
    return found


def adjusted(comparisons: Sequence[Comparison]) -> Floats:
    """The p-values with Holm's correction: [comparisons]."""
    return holm([comparison.p_value for comparison in comparisons])


def _difference(*strata: npt.ArrayLike, axis: int = -1) -> Floats:
    half = len(strata) // 2
    return iqm(*strata[:half], axis=axis) - iqm(*strata[half:], axis=axis)


def _improvement(*strata: npt.ArrayLike, axis: int = -1) -> Floats:
    half = len(strata) // 2
    pairs = zip(strata[:half], strata[half:], strict=True)
    chances = [probability_of_improvement(ours, theirs)[..., None] for ours, theirs in pairs]
    return mean(*chances, axis=axis)


def _estimate(statistic: Statistic, strata: Sequence[Floats], seed: int) -> Estimate:
    low, high = stratified_interval(statistic, strata, seed=seed)
    return Estimate(float(statistic(*strata)), low, high)


def _scores(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise UsageError(f"scores = {array}: expected finite numbers [runs]")
    return array
