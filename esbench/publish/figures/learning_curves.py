"""The learning curves of one environment, and the scores that its figure marks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.units import counted
from esbench.grids.environment_files import Scores
from esbench.publish.figures.drawing import Curve, band_curve
from esbench.publish.figures.style import Style, assign_styles
from esbench.results.cell import Cell
from esbench.results.statistics.curves import Band, generation_curve, learning_curve
from esbench.store.trial_folder import TrialFolder

TIME_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))  # as in tables
OF_POPULATION: Final = "\N{DAGGER}"
NOT_EVALUATED: Final = "unperturbed policy not evaluated"
_DRAWN: Final = (
    "env_steps",
    "wall_time_s",
    "center_return",
    "population_return_mean",
    "center_rank_fraction",
)


@final
@dataclass(frozen=True, eq=False)
class LearningCurves:
    """The curves of one environment, one per cell, and the trials drawn by name of the curve.

    A cell whose unperturbed policy was not evaluated has no curve in ``rank`` (rank fraction over
    generations), and its returns are the population's means. The unit of time is h, min or s.
    ``ends`` are the steps and the time of the longest cell's training, mean over seeds as in
    tables. A curve ends before them: at the last policy that was evaluated in every seed.
    """

    over_steps: list[Curve]
    over_time: list[Curve]
    rank: list[Curve]
    time_unit: str
    ends: tuple[float, float]
    trials: dict[str, list[TrialFolder]]
    evaluated: int  # the number of curves that show the unperturbed policy
    cut: bool  # whether returns are of episodes that a limit of training cuts
    short: tuple[str, ...]  # cells without two generations, which have no curve

    @property
    def left_out(self) -> str:
        """The cells without a curve as the end of a title; empty if all have one."""
        return f"; too short for a curve: {', '.join(self.short)}" if self.short else ""

    @property
    def return_label(self) -> str:
        """The label of an axis of returns, which says whose they are."""
        if not self.evaluated:
            return f"mean return of the population\n({NOT_EVALUATED})"
        policy = "return of the unperturbed policy"
        notes = ["training episodes are cut"] if self.cut else []
        if self.evaluated < len(self.over_steps):
            notes.append(f"{OF_POPULATION}: mean of training episodes")
        return f"{policy}\n({'; '.join(notes)})" if notes else policy


def learning_curves(
    group: Sequence[Cell], styles: Mapping[str, Style] | None = None
) -> LearningCurves | None:
    """The curves of one environment's cells; None if no trial has two generations.

    A curve is made of the done seeds, since the shortest run cuts the others, or of all seeds if
    none is done. The label gives their number. Cells without two generations are left out.
    ``styles`` are by the names of the cells, by default those of ``assign_styles``.
    """
    styles = styles or assign_styles({cell.name: cell.algorithm for cell in group})
    centers = [cell.evaluates_policy for cell in group]
    over_steps: list[Curve] = []
    rank: list[Curve] = []
    times: list[Band] = []
    ends: list[list[float]] = []
    trials: dict[str, list[TrialFolder]] = {}
    for cell, center in zip(group, centers, strict=True):
        columns = {trial: _drawn_rows(trial, cell.is_agent and not center) for trial in cell.trials}
        found = [trial for trial in cell.trials if len(columns[trial]["env_steps"]) > 1]
        done = [trial for trial in found if trial.is_done]
        if not found:
            continue
        trials[cell.name] = done or found
        runs = [columns[trial] for trial in trials[cell.name]]
        style = styles[cell.name]
        mark = "" if center or not any(centers) else OF_POPULATION
        label = f"{cell.name}{mark} ({_seeds(len(runs), len(cell.trials), bool(done))})"
        returns = [run["center_return" if center else "population_return_mean"] for run in runs]
        curve = partial(learning_curve, returns=returns, after=cell.is_agent)
        by_steps = curve([run["env_steps"] for run in runs])
        over_steps.append(band_curve(cell.name, label, style, by_steps))
        times.append(curve([run["wall_time_s"] for run in runs]))
        spent = ([float(run[key][-1]) for run in runs] for key in ("env_steps", "wall_time_s"))
        ends.append([*map(fmean, spent)])
        if center and not cell.is_agent:
            ranks = generation_curve([run["center_rank_fraction"] for run in runs])
            rank.append(band_curve(cell.name, label, style, ranks))
    if not times:
        return None
    steps, longest = map(max, zip(*ends, strict=True))
    unit, seconds = next((u for u in TIME_UNITS if longest >= u[1]), TIME_UNITS[-1])
    over_time = [
        band_curve(curve.name, curve.label, curve.style, band, seconds)
        for curve, band in zip(over_steps, times, strict=True)
    ]
    totals = steps, longest / seconds
    evaluated = sum(
        center for cell, center in zip(group, centers, strict=True) if cell.name in trials
    )
    cut = any(cell.cuts_episodes for cell in group if cell.name in trials)
    short = tuple(cell.name for cell in group if cell.name not in trials)
    return LearningCurves(over_steps, over_time, rank, unit, totals, trials, evaluated, cut, short)


def _drawn_rows(trial: TrialFolder, in_training: bool) -> dict[str, npt.NDArray[Any]]:
    """The rows of a trial; for returns ``in_training`` those in which an episode ended."""
    columns = trial.columns(*_DRAWN)
    if not in_training:
        return columns
    known = np.isfinite(columns["population_return_mean"])
    return {name: values[known] for name, values in columns.items()}


def _seeds(drawn: int, total: int, done: bool) -> str:
    count = f"{drawn} of " * (drawn < total) + counted(total, "seed")
    return count if done else f"{count}, unfinished"


def shared_scores(group: Sequence[Cell]) -> Scores:
    """The frozen scores if they are the same for every cell, otherwise none."""
    first, *others = (cell.frozen for cell in group)
    return first if all(other == first for other in others) else Scores()


def smallest_decade(shown: LearningCurves, scores: Scores) -> int:
    """The exponent of the power of ten below which returns are not distinguished.

    It is that of the largest return that is not 0: nearest to the best possible, or noise above it.
    """
    curves = [*shown.over_steps, *shown.over_time]
    drawn = [values for curve in curves for values in (curve.y, curve.low, curve.high)]
    values = np.concatenate([*drawn, [value for value, _ in marks(scores)]])
    values = values[np.isfinite(values) & (values != 0)]
    return math.floor(math.log10(abs(values.max()))) if values.size else 0


def marks(scores: Scores) -> list[tuple[float, str]]:
    """The scores to mark, with their names."""
    found = []
    if scores.random is not None:
        found.append((scores.random.mean, "random\npolicy"))
    if scores.solved is not None:
        found.append((scores.solved, "solved"))
    elif scores.references:
        first = scores.references[0]
        name = "\n".join(textwrap.wrap(first.method, 14))
        found.append((first.score, name if first.comparable else f"{name}\n(not\ncomparable)"))
    return found
