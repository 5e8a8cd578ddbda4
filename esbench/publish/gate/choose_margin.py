"""Choose the margin of a baseline from the spread of its own scores.

With a margin that is small beside the spread of the seeds, most checks of unchanged code end
inconclusive. Checks of unchanged code are simulated: both sides are drawn with replacement from the
scores of a cell. The margin is the smallest with which enough of them end with "no worse".

Scores that are drawn from a few seeds vary less than new seeds do, so they are spread by the factor
that makes their variance that of new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, stream
from esbench.core.units import counted
from esbench.publish.gate.match_baseline import make_sample
from esbench.results.baselines import Baseline
from esbench.results.cell import Cell
from esbench.results.statistics.judgment import MARGIN, GateRules, Sample, p_within
from esbench.results.statistics.significance import TestStatistic

SEEDS: Final = (8, 10, 16, 32)
MARGINS: Final = (
    *(round(MARGIN + number / 100, 2) for number in range(16)),  # 5 % to 20 %
    *(round(0.225 + number / 40, 3) for number in range(12)),  # to 50 %
    *(round(0.55 + number / 20, 2) for number in range(10)),  # to 100 %
)
CHECKS: Final = 100  # simulated, for each number of seeds
FEWEST: Final = 5  # seeds of the baseline, to suggest other numbers of seeds
SPLITS: Final = 500  # of each permutation test


def suggestions(baseline: Baseline) -> list[tuple[str, int, Floats]]:
    """For each cell and each of ``SEEDS``, the margins that checks with so many seeds need.

    UsageError if a cell has too few seeds.
    """
    found = []
    for cell in baseline.to_cells():
        if len(cell.runs) < FEWEST:
            few = counted(len(cell.runs), "seed")
            raise UsageError(f"{cell.title} has {few}; expected {FEWEST} or more")
        for seeds in SEEDS:
            found.append((cell.title, seeds, _margins_needed(cell, seeds, baseline)))
    return found


def with_margins(baseline: Baseline, power: float, margin: float | None = None) -> Baseline:
    """The baseline with this margin, or one that is chosen for each cell.

    With the chosen ones, the share ``power`` of the checks of unchanged code, with as many seeds,
    ends with "no worse" in all cells. Where no margin is enough, it is the whole range.
    """
    each = power ** (1 / len(baseline.cells))

    def chosen(cell: Cell) -> float:
        return smallest(_margins_needed(cell, len(cell.runs), baseline), each) or MARGINS[-1]

    cells = tuple(
        frozen.model_copy(update={"margin": chosen(cell) if margin is None else margin})
        for cell, frozen in zip(baseline.to_cells(), baseline.cells, strict=True)
    )
    return baseline.model_copy(update={"cells": cells})


def smallest(needed: Floats, power: float) -> float | None:
    """The smallest margin that is enough for the share ``power`` of checks, None if none is."""
    return next((margin for margin in MARGINS if np.mean(needed <= margin) >= power), None)


def _margins_needed(cell: Cell, seeds: int, baseline: Baseline) -> Floats:
    sample = make_sample(cell, [])
    return margins_needed(sample.baseline / sample.span, seeds, baseline.statistics)


def margins_needed(scores: Floats, seeds: int, statistics: tuple[TestStatistic, ...]) -> Floats:
    """The smallest of ``MARGINS`` that each simulated check excludes, infinite if it is none.

    ``scores`` [runs] are shares of the range, from which both sides of ``seeds`` are drawn.
    """
    rules = GateRules(statistics=statistics)
    center, number = scores.mean(), scores.size
    scores = center + (scores - center) * np.sqrt(number / max(1, number - 1))
    rng = stream(0, Purpose.SIMULATION, seeds)

    def needed() -> float:
        drawn = Sample(rng.choice(scores, seeds), rng.choice(scores, seeds), 1.0)

        def excluded(margin: float) -> bool:
            p_value = p_within(replace(drawn, margin=margin), rules, resamples=SPLITS)
            return p_value <= rules.noninferiority_level

        place = 0 if excluded(MARGINS[0]) else bisect_left(MARGINS, True, lo=1, key=excluded)
        return MARGINS[place] if place < len(MARGINS) else np.inf

    return np.array([needed() for _ in range(CHECKS)])
