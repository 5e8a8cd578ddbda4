"""The curves of stored trials: returns of the unperturbed policy, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.results.cells import Cell
from esbench.results.statistics.curves import WINDOW, first_totals, policy_returns

COSTS: Final = ("env_steps", "episodes", "cpu_time_s", "wall_time_s")


@final
@dataclass(frozen=True, eq=False)
class RunCurve:
    """The curve of one trial that has at least one generation."""

    totals: dict[str, Floats]  # cost so far, [generations], by the names of ``COSTS``
    returns: Floats  # ``center_return``, [generations]
    score: float  # of the final policy over held-out episodes; NaN if there is none
    done: bool
    is_agent: bool = False  # its rows have the return of the policy after their steps

    def first_totals(
        self, targets: Floats, window: int = WINDOW, costs: Sequence[str] = COSTS
    ) -> dict[str, Floats]:
        """The cost at which each target was first reached, [targets]; infinity if it was not."""
        values = policy_returns(self.returns, self.score, window)
        if self.is_agent:  # the policies of searches are those before the rows
            values = np.concatenate([[math.nan], values[:-1]])
            values[-1] = np.fmax(values[-1], self.score)
        return {cost: first_totals(self.totals[cost], values, targets) for cost in costs}


def run_curves(cell: Cell) -> list[RunCurve]:
    """The curves of a cell's trials, sorted by seed; UsageError if one cannot be read."""
    curves = []
    for trial in cell.trials:
        columns = trial.columns(*COSTS, "center_return")
        done = trial.is_done
        score = trial.result()["score"] if done else None
        returns = columns.pop("center_return")
        if len(returns):
            totals = {name: values.astype(np.float64) for name, values in columns.items()}
            held_out = math.nan if score is None else score
            curves.append(RunCurve(totals, returns, held_out, done, cell.is_agent))
    return curves
