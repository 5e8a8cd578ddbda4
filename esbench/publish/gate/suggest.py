"""Numbers of seeds and margins for a wanted power, from the spread of a baseline's own scores.

Both sides of an unchanged check are drawn from the scores with replacement.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, stream
from esbench.core.units import counted
from esbench.publish.gate.baselines import Baseline
from esbench.publish.gate.match_baseline import make_sample, scores_of
from esbench.results.statistics.judgment import GateRules, Sample, p_within

SEEDS: Final = (8, 10, 16, 32)
MARGINS: Final = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
CHECKS: Final = 200  # simulated, for each number of seeds
FEWEST: Final = 5  # seeds of the baseline
SPLITS: Final = 2000  # of each permutation test


@final
@dataclass(frozen=True)
class Suggestion:
    """What checks of one cell with as many seeds as the baseline would say.

    Attributes:
        cell: such as "openai_es on CartPole-v1".
        seeds: of the baseline and of the check.
        no_worse: the share of unchanged checks that end with "no worse", at the
            default margin.
        margin: the smallest of ``MARGINS`` with which this share reaches the wanted power; None if
            none does.
    """

    cell: str
    seeds: int
    no_worse: float
    margin: float | None


def suggestions(baseline: Baseline, power: float) -> list[Suggestion]:
    """The suggestions for every cell and each of ``SEEDS``.

    UsageError if a cell has fewer than ``FEWEST`` seeds, which do not tell their spread.
    """
    cells = baseline.to_cells()
    for cell in cells:
        if len(cell.runs) < FEWEST:
            raise UsageError(
                f"{cell.title} has {counted(len(cell.runs), 'seed')}; expected {FEWEST} or "
                "more to estimate the spread of the scores"
            )
    rules = GateRules(statistics=baseline.statistics)
    found = []
    for cell in cells:
        sample = make_sample(cell, scores_of(cell))
        for seeds in SEEDS:
            needed = _margins_needed(sample.baseline / sample.span, seeds, rules)
            shares = {margin: float(np.mean(needed <= margin)) for margin in MARGINS}
            enough = [margin for margin, share in shares.items() if share >= power]
            no_worse = float(np.mean(needed <= rules.margin))
            found.append(Suggestion(cell.title, seeds, no_worse, min(enough, default=None)))
    return found


def _margins_needed(scores: Floats, seeds: int, rules: GateRules) -> Floats:
    """The smallest margin, of ``MARGINS`` and that of the rules, that each check excludes."""
    margins = sorted({*MARGINS, rules.margin})
    rng = stream(0, Purpose.SIMULATION, seeds)

    def needed() -> float:
        sample = Sample(rng.choice(scores, seeds), rng.choice(scores, seeds), 1.0)

        def excluded(margin: float) -> bool:
            p_value = p_within(sample, replace(rules, margin=margin), resamples=SPLITS)
            return p_value <= rules.noninferiority_level

        place = bisect_left(margins, True, key=excluded)
        return margins[place] if place < len(margins) else np.inf

    return np.array([needed() for _ in range(CHECKS)])
