"""The statistics of the gate, which tests whether scores dropped: pure functions on arrays.

A cell fails if two things hold at once: a one-sided permutation test says that its scores dropped,
at a level that is shared among all cells by Holm's procedure (Scand. J. Stat. 6, 1979), and the
drop is one that matters: the mean or the interquartile mean has dropped by the cell's margin, a
share of the range between random actions and the reference. A cell passes only if a drop of all
scores by the margin is excluded, by the same test of the scores moved up by the margin
(non-inferiority), and the test of the mean alone agrees at five times the level; otherwise it is
inconclusive. An improvement must pass in the same way: a rise of most seeds does not hide that more
seeds fail.

The test is the omnibus test of ``significance.p_greater``. The mean notices that more seeds fail,
which the interquartile mean hides; ranks and the interquartile mean notice a drop of the other
seeds, which the failure of a seed hides in the mean. The baseline names the statistics, so that
they are chosen before the scores are known. The test is unpaired because any change of the code
changes the episodes of a seed; if the scores of equal seeds are correlated, it is conservative.

The null hypothesis is that both sides come from one distribution. The false alarm rate averages
over baselines too: a lucky baseline affects every later check, more often if it has few seeds.

A sequential check looks several times, at more and more seeds. Each look spends a share of the
levels, by the spending function of Lan and DeMets (Biometrika 70, 1983) that is near the boundaries
of Pocock (Biometrika 64, 1977). By the union bound the joint error rates stay below the levels,
whichever cells are trained further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError, require_finite
from esbench.core.units import counted
from esbench.results.statistics.estimates import iqm, pooled_deviation
from esbench.results.statistics.significance import (
    OMNIBUS,
    PERMUTATIONS,
    TestStatistic,
    holm,
    p_greater,
)

ALPHA: Final = 0.01
MARGIN: Final = 0.05
NONINFERIORITY_ALPHA: Final = 0.05
FIRST_LOOK: Final = 8  # the number of seeds
MEAN_LEVELS: Final = 5  # the mean alone must exclude the margin at this many times that level
POWER: Final = 0.8
RESAMPLES_PER_LEVEL: Final = 10  # so that the smallest p is well below Holm's smallest level
MOST_RESAMPLES: Final = 1_000_000
MOST_SEEDS: Final = 1000


class Verdict(StrEnum):
    """The result of the gate for a cell."""

    NO_WORSE = "no worse"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"


@final
@dataclass(frozen=True)
class GateRules:
    """The rules of a check, fixed before any measurement.

    Attributes:
        alpha: the probability that a check fails although nothing got worse, over all its cells
            and looks; in (0, 1).
        margin: the smallest drop that matters, as a share of a cell's range; in (0, 1]. None: that
            of each sample.
        statistics: of the permutation tests; the baseline names them.
        share: of the levels, which this look may spend; in (0, 1].

    Raises:
        UsageError: one of them is out of its range.
    """

    alpha: float = ALPHA
    margin: float | None = None
    statistics: tuple[TestStatistic, ...] = OMNIBUS
    share: float = 1.0

    def __post_init__(self) -> None:
        require_finite("alpha", self.alpha)
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha = {self.alpha}: expected a number between 0 and 1, as 0.01")
        if self.margin is not None:
            require_margin(self.margin)

    @property
    def level(self) -> float:
        """The level of a look, shared by its cells."""
        return self.alpha * self.share

    @property
    def noninferiority_level(self) -> float:
        """The level at which a look calls a single cell no worse."""
        return NONINFERIORITY_ALPHA * self.share


def require_margin(margin: float) -> None:
    """Raises UsageError if it is not in (0, 1]."""
    require_finite("margin", margin)
    if not 0 < margin <= 1:
        raise UsageError(
            f"margin = {margin}: expected a share above 0 and at most 1, as 0.05 for 5 %"
        )


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """The finite scores of one cell: [runs] that are frozen, and [runs] to judge.

    ``span`` is the range between random actions and the reference, above 0; ``margin`` is the
    smallest drop that matters, as a share of it.
    """

    baseline: Floats
    scores: Floats
    span: float
    margin: float = MARGIN

    @property
    def change(self) -> float:
        """The mean score less the baseline's, as a share of the range; below 0 is a drop."""
        return float(self.scores.mean() - self.baseline.mean()) / self.span

    @property
    def iqm_change(self) -> float:
        """As ``change``, of the interquartile mean."""
        return float(iqm(self.scores) - iqm(self.baseline)) / self.span


@final
@dataclass(frozen=True)
class Judgment:
    """The result of one look at one cell.

    Attributes:
        verdict: NO_WORSE, REGRESSION, IMPROVEMENT or INCONCLUSIVE.
        change, iqm_change, margin: as in ``Sample``; the margin is that of the rules, if given.
        p_drop, p_gain: of the tests for a drop and for a gain, adjusted by Holm over the cells.
        p_margin: of the test for "no drop as large as the margin", of this cell alone; at least a
            fifth of the p of the mean alone.
        seeds_needed: if inconclusive, the estimated number of seeds per side that shows with 80 %
            power that an unchanged cell is no worse; infinite beyond a thousand. NaN if the cell
            is not inconclusive, or has that many seeds already (the change is near the margin).
        seeds_to_fail: the fewest seeds per side with which a drop can fail, if none can with
            those at hand; otherwise 0.
    """

    verdict: Verdict
    change: float
    iqm_change: float
    margin: float
    p_drop: float
    p_gain: float
    p_margin: float
    seeds_needed: float
    seeds_to_fail: int = 0


def judge(
    samples: Sequence[Sample | None], rules: GateRules, seed: int = 0, resamples: int = PERMUTATIONS
) -> list[Judgment | None]:
    """The judgment of every cell at one look.

    A cell without measurements (None) still takes its share of the level, so the choice of cells
    may depend on earlier results. ``seed`` names the stream of random permutations, used if there
    are too many for all to be tried (``all_splits``): ``resamples``, or as many as the level needs.

    Raises:
        UsageError: the level is too small for this number of cells.
    """
    resamples = max(resamples, resamples_needed(rules, len(samples)))
    if (margin := rules.margin) is not None:
        samples = [sample and replace(sample, margin=margin) for sample in samples]
    drops, gains, margins = np.ones((3, len(samples)))
    for cell, sample in enumerate(samples):
        if sample is not None:
            test = partial(p_greater, seed=seed, resamples=resamples, statistics=rules.statistics)
            drops[cell] = test(sample.baseline, sample.scores)
            gains[cell] = test(sample.scores, sample.baseline)
            margins[cell] = p_within(sample, rules, seed, resamples)
    columns = zip(samples, holm(drops), holm(gains), margins, strict=True)
    return [
        None if sample is None else _judgment(sample, rules, len(samples), *map(float, p_values))
        for sample, *p_values in columns
    ]


def resamples_needed(rules: GateRules, cells: int) -> int:
    """The number of random permutations that the level needs for this number of cells.

    Raises:
        UsageError: the level is too small for this number of cells.
    """
    resamples = math.ceil(RESAMPLES_PER_LEVEL * cells / rules.level)
    if resamples > MOST_RESAMPLES:
        smallest = RESAMPLES_PER_LEVEL * cells / rules.share / MOST_RESAMPLES
        raise UsageError(
            f"alpha = {rules.alpha:g} for {counted(cells, 'cell')}: expected about {smallest:.2g} "
            f"or more, since a test tries at most {MOST_RESAMPLES:,} permutations"
        )
    return resamples


def looks(max_seeds: int) -> tuple[int, ...]:
    """The numbers of seeds at which a sequential check looks: 8, doubled up to ``max_seeds``.

    Raises:
        UsageError: fewer than 8, or more than a thousand.
    """
    if not FIRST_LOOK <= max_seeds <= MOST_SEEDS:
        raise UsageError(f"max_seeds = {max_seeds}: expected {FIRST_LOOK} to {MOST_SEEDS}")
    doublings = range(max_seeds.bit_length())
    sizes = {min(FIRST_LOOK * 2**number, max_seeds) for number in doublings}
    return tuple(sorted(sizes))


def shares_of_looks(sizes: Sequence[int]) -> list[float]:
    """The share of the levels that each look spends; they add up to 1."""
    spent = [0.0, *(math.log(1 + (math.e - 1) * size / sizes[-1]) for size in sizes)]
    return [after - before for before, after in pairwise(spent)]


def p_within(
    sample: Sample, rules: GateRules, seed: int = 0, resamples: int = PERMUTATIONS
) -> float:
    """The p-value of the test for "no drop as large as the margin", as in ``Judgment``."""
    moved = sample.scores + sample.margin * sample.span
    test = partial(p_greater, moved, sample.baseline, seed, resamples)
    return max(test(statistics=rules.statistics), test(statistics=("mean",)) / MEAN_LEVELS)


def seeds_needed(sample: Sample, rules: GateRules, cells: int = 1) -> float:
    """The estimated number of seeds per side to call an unchanged cell no worse, at 80 % power.

    By the normal approximation; at least ``seeds_to_fail``, and infinite beyond ``MOST_SEEDS``.
    """
    from scipy.stats import norm

    n, m = sample.baseline.size, sample.scores.size
    deviation = pooled_deviation(sample.baseline, sample.scores) if n + m > 2 else math.inf
    quantiles = float(norm.ppf(1 - rules.noninferiority_level) + norm.ppf(POWER))
    root = quantiles * deviation / (sample.margin * sample.span)
    seeds = max(2 * root * root, seeds_to_fail(rules, cells))
    return math.ceil(seeds) if seeds <= MOST_SEEDS else math.inf


def seeds_to_fail(rules: GateRules, cells: int = 1) -> int:
    """The fewest seeds per side with which a drop can fail a check, since p has a minimum."""
    return next(
        seeds
        for seeds in range(1, MOST_SEEDS)
        if 1 / math.comb(2 * seeds, seeds) <= rules.level / cells
    )


def _judgment(
    sample: Sample, rules: GateRules, cells: int, p_drop: float, p_gain: float, p_margin: float
) -> Judgment:
    change, iqm_change, margin = sample.change, sample.iqm_change, sample.margin
    excludes_drop = p_margin <= rules.noninferiority_level
    if p_drop <= rules.level and min(change, iqm_change) <= -margin:
        verdict = Verdict.REGRESSION
    elif excludes_drop and p_gain <= rules.level and max(change, iqm_change) >= margin:
        verdict = Verdict.IMPROVEMENT
    elif excludes_drop:
        verdict = Verdict.NO_WORSE
    else:
        verdict = Verdict.INCONCLUSIVE
    seeds = math.nan
    if verdict is Verdict.INCONCLUSIVE:
        seeds = seeds_needed(sample, rules, cells)
    before, now = sample.baseline.size, sample.scores.size
    if seeds <= min(before, now):
        seeds = math.nan
    can_fail = 1 / math.comb(before + now, now) <= rules.level / cells
    fewest = 0 if can_fail else seeds_to_fail(rules, cells)
    return Judgment(verdict, change, iqm_change, margin, p_drop, p_gain, p_margin, seeds, fewest)
