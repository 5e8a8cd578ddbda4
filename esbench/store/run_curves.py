"""What stored trials cost and returned, generation by generation, as arrays for ``analysis``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from esbench.analysis.efficiency import WINDOW, first_totals, judged
from esbench.analysis.statistics import Floats
from esbench.store.cells import Cell

COSTS: Final = ("env_steps", "episodes", "cpu_time_s", "wall_time_s")


@final
@dataclass(frozen=True, eq=False)
class RunCurve:
    """The curve of one trial that has at least one generation.

    Attributes:
        totals: cumulative cost after each generation, by the names of ``COSTS``, [generations].
        returns: return of the unperturbed policy before each update, [generations]; NaN where it
            was not evaluated.
        score: of the final policy over held-out episodes; NaN if there is none.
        done: whether the trial has its result.
    """

    totals: dict[str, Floats]
    returns: Floats
    score: float
    done: bool

    def first_totals(
        self, targets: Floats, window: int = WINDOW, costs: Sequence[str] = COSTS
    ) -> dict[str, Floats]:
        """The cost at which each target was first reached, [targets]; infinity if it was not."""
        values = judged(self.returns, self.score, window)
        return {cost: first_totals(self.totals[cost], values, targets) for cost in costs}


def run_curves(cell: Cell) -> list[RunCurve]:
    """The curves of a cell's trials that have a generation, sorted by seed.

    Raises:
        UsageError: a trial cannot be read.
    """
    curves = []
    for trial in cell.trials:
        columns = trial.columns(*COSTS, "center_return")
        done = trial.is_done
        score = trial.result()["score"] if done else None
        if len(columns["center_return"]):
            totals = {name: columns[name].astype(np.float64) for name in COSTS}
            value = math.nan if score is None else float(score)
            curves.append(RunCurve(totals, columns["center_return"], value, done))
    return curves
