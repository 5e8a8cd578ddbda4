"""What stored trials spent and returned, generation by generation, as arrays for ``analysis``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from esbench.analysis.efficiency import WINDOW, first_totals, judged
from esbench.analysis.statistics import Floats
from esbench.store.seed_groups import Cell

COSTS: Final = ("env_steps", "episodes", "cpu_time_s", "wall_time_s")


@final
@dataclass(frozen=True, eq=False)
class Run:
    """One trial that has at least one generation.

    Attributes:
        totals: what had been spent after each generation, by the name of ``COSTS``, [generations].
        returns: of the unperturbed policy before each update, [generations]; NaN where it was not
            evaluated.
        score: of the final policy over held-out episodes; NaN if there is none.
        done: whether it has its result.
    """

    totals: dict[str, Floats]
    returns: Floats
    score: float
    done: bool

    def first_totals(
        self, targets: Floats, window: int = WINDOW, costs: Sequence[str] = COSTS
    ) -> dict[str, Floats]:
        """Return what was spent when each target was first reached, [targets]; else infinity."""
        values = judged(self.returns, self.score, window)
        return {cost: first_totals(self.totals[cost], values, targets) for cost in costs}


def runs_of(cell: Cell) -> list[Run]:
    """Return the trials of a cell that have a generation, in the order of the seeds.

    Raises:
        UsageError: a trial is not readable.
    """
    runs = []
    for trial in cell.trials:
        columns = trial.columns(*COSTS, "center_return")
        done = trial.is_done
        score = trial.result()["score"] if done else None
        if len(columns["center_return"]):
            runs.append(
                Run(
                    totals={name: columns[name].astype(np.float64) for name in COSTS},
                    returns=columns["center_return"],
                    score=math.nan if score is None else float(score),
                    done=done,
                )
            )
    return runs
