"""Did the scores of any cell drop? The statistics of the gate: pure functions on arrays.

A cell fails if two things hold at once: a one-sided permutation test of the mean says that its
scores dropped (Fisher 1935; Pitman 1937), at a level that is shared among all cells by Holm's
procedure (Scand. J. Stat. 6, 1979), and the drop is one that matters, a margin of the range between
random actions and the reference. A cell passes only if a drop of that margin is excluded, by the
same test of the scores moved up by the margin (non-inferiority); a gate that cannot tell says so.

Means and not interquartile means, because that one seed of eight now fails is what a gate is for,
and the IQM of eight seeds does not see it. The test is unpaired: a seed gives other episodes as
soon as anything has changed, and where two seeds' scores do go together, it errs to the safe side.

That nothing has changed means here that both sides come from one distribution, and false alarms are
counted over baselines too: one baseline that was lucky is held against every later check, all the
more often the fewer seeds it has.

With two stages, each has half of the levels, so that by the union bound their false alarms
together stay below them, however the cells that are run again were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

import numpy as np

from esbench.analysis.permutation import RESAMPLES, holm, p_greater
from esbench.analysis.statistics import Floats
from esbench.errors import UsageError

ALPHA: Final = 0.01
MARGIN: Final = 0.05
NONINFERIORITY_ALPHA: Final = 0.05
POWER: Final = 0.8
RESAMPLES_PER_LEVEL: Final = 10  # so that the smallest p is well below Holm's smallest level
MOST_RESAMPLES: Final = 1_000_000
MOST_SEEDS: Final = 1000


class Verdict(StrEnum):
    """What is known of a cell."""

    NO_WORSE = "no worse"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"


@final
@dataclass(frozen=True)
class Rules:
    """What is decided before anything is measured.

    Attributes:
        alpha: the probability that a check fails although nothing got worse, over all its cells
            and stages; in (0, 1).
        margin: the smallest drop that matters, as a share of a cell's range; above 0.
        stages: 1, or 2 if what is inconclusive is run again on fresh seeds.

    Raises:
        UsageError: one of them is out of its range.
    """

    alpha: float = ALPHA
    margin: float = MARGIN
    stages: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha = {self.alpha}: expected a number between 0 and 1, as 0.01")
        if not 0 < self.margin < math.inf:
            raise UsageError(f"margin = {self.margin}: expected a share above 0, as 0.05")
        if self.stages not in (1, 2):
            raise UsageError(f"stages = {self.stages}: expected 1 or 2")

    @property
    def level(self) -> float:
        """The level of a stage, shared by its cells."""
        return self.alpha / self.stages

    @property
    def noninferiority_level(self) -> float:
        """The level at which a stage calls a single cell no worse."""
        return NONINFERIORITY_ALPHA / self.stages


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """The scores of one cell.

    Attributes:
        baseline: [runs] frozen; scores: [runs] to judge; a seed each, any number of them.
        span: the range between random actions and the reference, above 0.

    Raises:
        UsageError: there is no score, one is not finite, or the range is not above 0.
    """

    baseline: Floats
    scores: Floats
    span: float

    def __post_init__(self) -> None:
        for name, values in (("baseline", self.baseline), ("scores", self.scores)):
            if values.ndim != 1 or not values.size or not np.isfinite(values).all():
                raise UsageError(f"{name} = {values}: expected finite numbers [runs]")
        if not 0 < self.span < math.inf:
            raise UsageError(f"span = {self.span}: expected a finite number above 0")

    @property
    def change(self) -> float:
        """The mean score less the baseline's, as a share of the range; below 0 is a drop."""
        return float(self.scores.mean() - self.baseline.mean()) / self.span


@final
@dataclass(frozen=True)
class Judgement:
    """What one stage says of one cell.

    Attributes:
        verdict: NO_WORSE, REGRESSION, IMPROVEMENT or INCONCLUSIVE.
        change: as in ``Sample``.
        p_drop, p_gain: of the tests for a drop and for a gain, adjusted by Holm over the cells.
        p_margin: of the test for "no drop as large as the margin", of this cell alone.
        seeds_needed: if inconclusive, about how many seeds a side would show that a cell which is
            as good as the baseline is no worse, four times in five; infinite beyond a thousand.
            NaN if it is not inconclusive, or was with so many: the change is near the margin.
    """

    verdict: Verdict
    change: float
    p_drop: float
    p_gain: float
    p_margin: float
    seeds_needed: float


def judge(samples: Sequence[Sample | None], rules: Rules, seed: int = 0) -> list[Judgement | None]:
    """Return the judgement of every cell in one stage.

    Args:
        samples: a cell each; None for a cell that was not measured, which takes its share of the
            level all the same, so that which cells are measured may depend on what was seen.
        rules: decided before.
        seed: names the stream of the permutations, if there are too many to try them all.

    Raises:
        UsageError: the level is too small for so many cells.
    """
    resamples = max(RESAMPLES, math.ceil(RESAMPLES_PER_LEVEL * len(samples) / rules.level))
    if resamples > MOST_RESAMPLES:
        raise UsageError(
            f"alpha = {rules.alpha:g} for {len(samples)} cells: expected at least "
            f"{RESAMPLES_PER_LEVEL * len(samples) * rules.stages / MOST_RESAMPLES:.1g}, since no p "
            "is smaller than one of the permutations that are tried"
        )
    drops, gains, margins = np.ones(len(samples)), np.ones(len(samples)), np.ones(len(samples))
    for cell, sample in enumerate(samples):
        if sample is not None:
            moved = sample.scores + rules.margin * sample.span
            drops[cell] = p_greater(sample.baseline, sample.scores, seed, resamples)
            gains[cell] = p_greater(sample.scores, sample.baseline, seed, resamples)
            margins[cell] = p_greater(moved, sample.baseline, seed, resamples)
    drops, gains = holm(drops), holm(gains)
    cells = len(samples)
    return [
        None
        if sample is None
        else _judgement(sample, rules, cells, float(drop), float(gain), float(margin))
        for sample, drop, gain, margin in zip(samples, drops, gains, margins, strict=True)
    ]


def seeds_needed(sample: Sample, rules: Rules, cells: int = 1) -> float:
    """Return about how many seeds a side would call an unchanged cell no worse, at 80 % power.

    By the normal approximation with the pooled deviation of both sides; at least so many that a
    drop could fail the check at all, since p has a smallest value. Infinite beyond ``MOST_SEEDS``.

    Args:
        sample: the scores so far.
        rules: of the check.
        cells: of the check.
    """
    from scipy.stats import norm

    n, m = sample.baseline.size, sample.scores.size
    squares = n * sample.baseline.var() + m * sample.scores.var()
    deviation = math.sqrt(squares / (n + m - 2)) if n + m > 2 else math.inf
    quantiles = norm.ppf(1 - rules.noninferiority_level) + norm.ppf(POWER)
    by_power = 2 * (quantiles * deviation / (rules.margin * sample.span)) ** 2
    seeds = max(by_power, seeds_to_fail(rules, cells))
    return math.ceil(seeds) if seeds <= MOST_SEEDS else math.inf


def seeds_to_fail(rules: Rules, cells: int = 1) -> int:
    """Return how many seeds a side a drop needs to fail the check at all: p has a smallest value.

    Args:
        rules: of the check.
        cells: of the check.
    """
    return next(
        seeds
        for seeds in range(1, MOST_SEEDS)
        if 1 / math.comb(2 * seeds, seeds) <= rules.level / cells
    )


def _judgement(
    sample: Sample, rules: Rules, cells: int, p_drop: float, p_gain: float, p_margin: float
) -> Judgement:
    change = sample.change
    if p_drop <= rules.level and change <= -rules.margin:
        verdict = Verdict.REGRESSION
    elif p_gain <= rules.level and change >= rules.margin:
        verdict = Verdict.IMPROVEMENT
    elif p_margin <= rules.noninferiority_level:
        verdict = Verdict.NO_WORSE
    else:
        verdict = Verdict.INCONCLUSIVE
    unclear = verdict is Verdict.INCONCLUSIVE
    seeds = seeds_needed(sample, rules, cells) if unclear else math.nan
    if seeds <= min(sample.baseline.size, sample.scores.size):
        seeds = math.nan
    return Judgement(verdict, change, p_drop, p_gain, p_margin, seeds)
