"""Tables of sample efficiency: trials to typed rows, and rows to cells and footnotes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.analysis.efficiency import (
    WINDOW,
    expected_running_time,
    mean_return,
    median_total,
    share_interval,
)
from esbench.analysis.statistics import bootstrap_interval, iqm, normalized
from esbench.errors import UsageError, suggestion
from esbench.grids.environment_files import Scores
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.reporting.tables.render_table import INTERVAL, Sheet, makers_notes, seeds_notes
from esbench.store.run_curves import COSTS, Run, runs_of
from esbench.store.seed_groups import Cell, cell_name, cells
from esbench.units import NONE, counted, format_duration, format_number, format_steps

EVERY: Final = ""
"""The name in a table of targets that stands for every environment without its own."""


@final
@dataclass(frozen=True)
class EfficiencyRow:
    """One line of a table. Numbers that do not exist are NaN; what is never reached, infinite.

    Attributes:
        environment, algorithm, policy: labels, as in ``Cell``.
        target: the score to reach; NaN if there is none, and then so is what depends on it.
        reached: runs that reached it, of ``runs``.
        runs: trials with at least one generation.
        share, low, high: of the runs that reached it, with Wilson's 95 % interval; NaN below three
            runs.
        env_steps, episodes, cpu_time_s, wall_time_s: what was spent by then, median over all runs.
        expected_env_steps: COCO's expected running time.
        area, area_low, area_high: the mean return up to ``area_env_steps``, where random actions
            have 0 and the reference 1: IQM over the runs that spent so much, and its 95 % bootstrap
            interval; NaN without frozen scores.
        mean_return: the same IQM in the environment's own unit.
        area_env_steps: the same for all rows of an environment.
        unfinished: runs without a result, which count up to what they have spent.
        empty: trials without a generation, left out.
        center: whether the unperturbed policy was evaluated in every generation.
        commands: what made the trials, each once.
        differs: the settings that set it apart from rows of the same labels, as "key=value".
    """

    environment: str
    algorithm: str
    policy: str
    target: float
    reached: int
    runs: int
    share: float
    low: float
    high: float
    env_steps: float
    episodes: float
    cpu_time_s: float
    wall_time_s: float
    expected_env_steps: float
    area: float
    area_low: float
    area_high: float
    mean_return: float
    area_env_steps: float
    unfinished: int
    empty: int
    center: bool
    commands: tuple[str, ...]
    differs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Algorithm and policy in words; the default policy has no name."""
        return cell_name(self.algorithm, self.policy)


def parse_targets(texts: Sequence[str]) -> dict[str, float]:
    """Return targets by environment, of "ENVIRONMENT=SCORE" and "SCORE" (for every other one).

    Raises:
        UsageError: a score is not a finite number, or an environment has two.
    """
    targets: dict[str, float] = {}
    for text in texts:
        environment, _, number = text.rpartition("=")
        try:
            score = float(number)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise UsageError(
                f"--target {text}: expected a score, as 475, or an environment's, as "
                "CartPole-v1=475"
            )
        if environment in targets:
            which = environment or "every environment"
            raise UsageError(f"--target {text}: {which} has a target already; expected one")
        targets[environment] = score
    return targets


def efficiency_table(
    root: Path, targets: Mapping[str, float], window: int = WINDOW
) -> list[EfficiencyRow]:
    """Return a row for each cell below ``root``, by environment, the cheapest first.

    Args:
        root: folder with trials.
        targets: scores to reach by environment, as ``parse_targets`` returns them; an environment
            that has none takes its frozen reference score.
        window: generations over which the unperturbed policy's return is averaged.

    Raises:
        UsageError: there is no trial, one is not readable, an environment of ``targets`` is not
            there, or ``window`` is below 1.
    """
    if window < 1:
        raise UsageError(f"--window {window}: expected at least 1 generation")
    found = cells(root)
    present = {cell.environment for cell in found}
    for name in targets:
        if name != EVERY and name not in present:
            raise UsageError(
                f"--target {name}=...: no trial of it in {str(root)!r}; {suggestion(name, present)}"
            )
    rows = [
        row
        for _, members in itertools.groupby(found, lambda cell: cell.environment)
        for row in _rows(list(members), targets, window)
    ]
    return sorted(rows, key=_cheapest_first)


def sheet(rows: Sequence[EfficiencyRow], window: int = WINDOW, *, terminal: bool = False) -> Sheet:
    """Return the table for reading, with the sentences below it.

    ``terminal``: for 80 columns, with the policy's name in the algorithm's, and no intervals.
    """
    texts = [_texts(row, terminal) for row in rows]
    optional = {"Policy"} if terminal or all(row.policy == DEFAULT_LABEL for row in rows) else set()
    optional |= {INTERVAL} if terminal else set()
    if all(math.isnan(row.area) for row in rows):
        optional.add("Area")
    header = [name for name in _COLUMNS if name not in optional]
    body = [[text[name] for name in header] for text in texts]
    return Sheet(header, body, _footnotes(rows, window))


_JUDGED: Final = (
    "Reached: runs in which the unperturbed policy's mean return over {window} generations, or at "
    "the end the score of the final policy, came to the target; interval: Wilson's, of their "
    "share. The target is the environment's frozen reference score, unless --target gives it."
)
_SPENT: Final = (
    "Steps, episodes, CPU time (of all processes): what training had spent by then, median over "
    "all runs (Kaplan-Meier: one that did not reach the target takes longer than what it spent); "
    f"{NONE} if fewer than half did."
)
_EXPECTED: Final = (
    "ERT (expected running time, as in COCO): steps of all runs until the target or their end, "
    "over the number of runs that reached it."
)
_COLUMNS: Final = (
    "Environment",
    "Algorithm",
    "Policy",
    "Target",
    "Reached",
    INTERVAL,
    "Steps",
    "Episodes",
    "CPU time",
    "ERT",
    "Area",
)


def _rows(group: Sequence[Cell], targets: Mapping[str, float], window: int) -> list[EfficiencyRow]:
    """Return the rows of one environment's cells."""
    runs = [runs_of(cell) for cell in group]
    ends = [run.totals["env_steps"][-1] for members in runs for run in members if run.done]
    budgets = [cell.descriptions[0]["spec"]["budget"]["env_steps"] for cell in group]
    budget = float(min([*ends, *budgets])) if ends else math.nan
    return [
        _row(cell, members, _target(cell, targets), budget, window)
        for cell, members in zip(group, runs, strict=True)
    ]


def _target(cell: Cell, targets: Mapping[str, float]) -> float:
    references = cell.scores.references
    frozen = references[0].score if references else math.nan
    return targets.get(cell.environment, targets.get(EVERY, frozen))


def _row(
    cell: Cell, runs: Sequence[Run], target: float, budget: float, window: int
) -> EfficiencyRow:
    found = [run.first_totals(np.array([target]), window) for run in runs]
    totals = {cost: [run[cost][0] for run in found] for cost in COSTS}
    ends = {cost: [run.totals[cost][-1] for run in runs] for cost in COSTS}
    known = bool(runs) and not math.isnan(target)
    medians = {
        cost: median_total(totals[cost], ends[cost]) if known else math.nan for cost in COSTS
    }
    reached = int(np.isfinite(totals["env_steps"]).sum()) if known else 0
    low, high = share_interval(reached, len(runs)) if known else (math.nan, math.nan)
    steps = totals["env_steps"], ends["env_steps"]
    mean, low_mean, high_mean = _mean_return(runs, budget)
    return EfficiencyRow(
        environment=cell.environment,
        algorithm=cell.algorithm,
        policy=cell.policy,
        target=target,
        reached=reached,
        runs=len(runs),
        share=reached / len(runs) if known else math.nan,
        low=low,
        high=high,
        **medians,
        expected_env_steps=expected_running_time(*steps) if known else math.nan,
        area=_normalized(mean, cell.scores),
        area_low=_normalized(low_mean, cell.scores),
        area_high=_normalized(high_mean, cell.scores),
        mean_return=mean,
        area_env_steps=budget,
        unfinished=sum(not run.done for run in runs),
        empty=len(cell.trials) - len(runs),
        center=bool(cell.descriptions[0]["spec"]["evaluation"]["center"]),
        commands=tuple(
            dict.fromkeys(text for item in cell.descriptions if (text := item.get("command", "")))
        ),
        differs=cell.differs,
    )


def _mean_return(runs: Sequence[Run], budget: float) -> tuple[float, float, float]:
    """Return the IQM of the mean return of the runs that spent the budget, and its interval."""
    returns = [
        mean_return(run.totals["env_steps"], run.returns, budget)
        for run in runs
        if run.totals["env_steps"][-1] >= budget
    ]
    if not returns:
        return math.nan, math.nan, math.nan
    low, high = bootstrap_interval(returns)
    return float(iqm(returns)), float(low), float(high)


def _normalized(value: float, scores: Scores) -> float:
    if scores.random is None or not scores.references:
        return math.nan
    return normalized(value, scores.random.mean, scores.references[0].score)


def _cheapest_first(row: EfficiencyRow) -> tuple[str, float, float, str]:
    expected = math.inf if math.isnan(row.expected_env_steps) else row.expected_env_steps
    return row.environment, expected, math.inf if math.isnan(row.area) else -row.area, row.name


def _footnotes(rows: Sequence[EfficiencyRow], window: int) -> list[str]:
    """Return the sentences below a table: how to read it, what to beware of, and who made it."""
    lines = [_JUDGED.format(window=window), _SPENT, _EXPECTED]
    if any(not math.isnan(row.area) for row in rows):
        budgets = {row.environment: row.area_env_steps for row in rows if not math.isnan(row.area)}
        listed = ", ".join(f"{format_steps(steps)} on {name}" for name, steps in budgets.items())
        lines.append(
            "Area: under the learning curve: the mean of the unperturbed policy's return over the "
            f"first steps ({listed}), where random actions have 0 and the reference 1; IQM over "
            "seeds, 95 % percentile bootstrap interval."
        )
    return (
        lines
        + _warnings(rows)
        + makers_notes([(f"{row.name} on {row.environment}", row.commands) for row in rows])
    )


def _warnings(rows: Sequence[EfficiencyRow]) -> list[str]:
    lines = [
        f"{name}: no target, since no reference score is frozen for it; give one with "
        f"--target {name}=SCORE."
        for name in dict.fromkeys(row.environment for row in rows if math.isnan(row.target))
    ]
    lines += seeds_notes([row.runs for row in rows])
    if unfinished := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(unfinished, 'run')} without a result (partial, running or failed), counted "
            "as far as they went: see 'esbench status'."
        )
    if empty := sum(row.empty for row in rows):
        lines.append(f"{counted(empty, 'trial')} without a generation left out.")
    lines += [
        f"{row.name} on {row.environment}: the unperturbed policy was not evaluated, so only the "
        "score at the end tells whether the target was reached."
        for row in rows
        if not row.center
    ]
    return lines + [
        f"{row.name} on {row.environment}: {', '.join(row.differs)}" for row in rows if row.differs
    ]


def _texts(row: EfficiencyRow, terminal: bool) -> dict[str, str]:
    """Return a row's cells for reading, by column."""
    known = not math.isnan(row.target)
    area = NONE if math.isnan(row.area) else f"{row.area:.2f}"
    if not terminal and not math.isnan(row.area_low):
        area += f" [{row.area_low:.2f}, {row.area_high:.2f}]"
    return {
        "Environment": row.environment,
        "Algorithm": row.name if terminal else row.algorithm,
        "Policy": row.policy,
        "Target": format_number(row.target),
        "Reached": f"{row.reached} of {row.runs}" if known else NONE,
        INTERVAL: NONE if math.isnan(row.low) else f"[{row.low:.2f}, {row.high:.2f}]",
        "Steps": format_steps(row.env_steps),
        "Episodes": format_steps(row.episodes),
        "CPU time": format_duration(row.cpu_time_s),
        "ERT": format_steps(row.expected_env_steps),
        "Area": area,
    }
