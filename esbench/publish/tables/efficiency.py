"""Tables of sample efficiency: what training spends until it reaches a target score."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.core.errors import UsageError, suggestion
from esbench.core.units import NONE, counted, format_duration, format_number, format_steps
from esbench.grids.trial_spec import DEFAULT_LABEL, NamedCell
from esbench.publish.tables.render_table import (
    INTERVAL,
    Sheet,
    command_notes,
    nan_last,
    seeds_notes,
    settings_notes,
)
from esbench.publish.tables.score_table import commands_of, normalized_score
from esbench.results.cells import Cell, cells, run_budget
from esbench.results.run_curves import COSTS, RunCurve, run_curves
from esbench.results.statistics.curves import (
    WINDOW,
    expected_running_time,
    mean_return,
    median_total,
    share_interval,
)
from esbench.results.statistics.estimates import bootstrap_interval, diverged_as_worst, iqm


@final
@dataclass(frozen=True)
class EfficiencyRow(NamedCell):
    """The cost of one algorithm in one environment. NaN: missing; infinite: not reached.

    Attributes:
        target: the score to reach; NaN if there is none, as are the numbers that depend on it.
        reached, runs: the number of runs that reached it, and of trials with a generation.
        share, low, high: their quotient, and Wilson's interval, NaN with fewer than three runs.
        env_steps, episodes, cpu_time_s, wall_time_s: the cost by then, median over all runs.
        expected_env_steps: COCO's expected running time.
        area, area_low, area_high: the mean return up to ``area_env_steps``, which an environment's
            rows share, where random actions are 0 and the reference is 1: IQM over the runs that
            spent this budget, and its 95 % bootstrap interval.
        mean_return: the same IQM in the unit of the environment.
        diverged: the number of these runs with a return that is not finite.
        unfinished: the number of runs without a result, for which only what they reached counts.
        empty: the number of trials without a training step, which are left out.
        center: whether the unperturbed policy was evaluated in every generation.
        cut: whether ``max_episode_steps`` cuts the episodes of training.
    """

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
    cut: bool
    commands: tuple[str, ...]
    differs: tuple[str, ...]
    diverged: int = 0


def parse_targets(texts: Sequence[str]) -> dict[str, float]:
    """Targets by environment, from "ENVIRONMENT=SCORE", or "SCORE" for the others (key "").

    Raises:
        UsageError: a score is not a finite number, or an environment has two targets.
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
                f"--target {text}: expected a score such as 475, or an environment and its score "
                "such as CartPole-v1=475"
            )
        if environment in targets:
            which = environment or "every environment"
            raise UsageError(f"--target {text}: {which} already has a target; expected one")
        targets[environment] = score
    return targets


def efficiency_table(
    root: Path, targets: Mapping[str, float], window: int = WINDOW
) -> list[EfficiencyRow]:
    """One row per environment and algorithm, sorted by environment, the lowest cost first.

    Without a target, the reference score of the environment is used. ``window`` is the number of
    generations over which the unperturbed policy's return is averaged.

    Raises:
        UsageError: there is no trial, a trial is not readable, an environment of ``targets`` has
            no trial, or ``window`` is less than 1.
    """
    if window < 1:
        raise UsageError(f"--window {window}: expected at least 1 generation")
    found = cells(root)
    present = {cell.environment for cell in found}
    for name in targets:
        if name and name not in present:
            raise UsageError(
                f"--target {name}=...: no trial of it in {str(root)!r}; {suggestion(name, present)}"
            )
    rows: list[EfficiencyRow] = []
    for _, members in itertools.groupby(found, lambda cell: cell.environment):
        rows += _rows(list(members), targets, window)
    return sorted(
        rows,
        key=lambda r: (r.environment, nan_last(r.expected_env_steps), nan_last(-r.area), r.name),
    )


def sheet(rows: Sequence[EfficiencyRow], window: int = WINDOW, *, terminal: bool = False) -> Sheet:
    """The table; with ``terminal``, it has no intervals, and the policy is part of the name."""
    texts = [_texts(row, terminal) for row in rows]
    hidden = {INTERVAL, "Policy"} if terminal else set()
    if all(row.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    if all(math.isnan(row.area) for row in rows):
        hidden.add("Area")
    header = [name for name in texts[0] if name not in hidden]
    body = [[text[name] for name in header] for text in texts]
    return Sheet(header, body, _footnotes(rows, window, terminal))


_REACHED: Final = (
    "Reached: runs in which the unperturbed policy's mean return over {window} generations (fewer "
    "if the runs stop at the target by a smaller target_window), or the final policy's score, is "
    "at least the target. {interval}The target is the reference score of "
    "the environment, or the score given with --target."
)
_COST: Final = (
    "Steps, episodes, CPU time (of all processes): the cost of training until then, median over "
    f"all runs; {NONE} if fewer than half of them reached the target."
)
_EXPECTED: Final = (
    "ERT (expected running time, as in COCO): steps of all runs until the target or their end, "
    "divided by the number of runs that reached it."
)


def _rows(group: Sequence[Cell], targets: Mapping[str, float], window: int) -> list[EfficiencyRow]:
    runs = [[run for run in run_curves(cell) if run.totals["env_steps"][-1]] for cell in group]
    budget = _common_budget(group, runs)
    rows = []
    for cell, members in zip(group, runs, strict=True):
        references = cell.scores.references
        frozen = references[0].score if references else math.nan
        target = targets.get(cell.environment, targets.get("", frozen))
        rows.append(_row(cell, members, target, budget, window))
    return rows


def _common_budget(group: Sequence[Cell], runs: Sequence[Sequence[RunCurve]]) -> float:
    """The smallest budget of the searches and their runs; NaN if there is none."""
    ends: list[float] = []
    for cell, members in zip(group, runs, strict=True):
        if not cell.is_agent:
            budget = cell.spec["budget"]
            ends.append(budget["env_steps"])
            ends += [run_budget(budget, run.totals["env_steps"]) for run in members if run.done]
    return float(min(ends, default=math.nan))


def _row(
    cell: Cell, runs: Sequence[RunCurve], target: float, budget: float, window: int
) -> EfficiencyRow:
    own = _window(cell, target, window)
    found = [run.first_totals(np.array([target]), own) for run in runs]
    totals = {cost: [run[cost][0] for run in found] for cost in COSTS}
    ends = {cost: [run.totals[cost][-1] for run in runs] for cost in COSTS}
    known = bool(runs) and not math.isnan(target)
    medians = dict.fromkeys(COSTS, math.nan)
    if known:
        medians = {cost: median_total(totals[cost]) for cost in COSTS}
    reached = int(np.isfinite(totals["env_steps"]).sum()) if known else 0
    low, high = share_interval(reached, len(runs)) if known else (math.nan, math.nan)
    expected = expected_running_time(totals["env_steps"], ends["env_steps"]) if known else math.nan
    means = _mean_returns(runs, budget)
    mean, low_mean, high_mean = _iqm_with_interval(means, cell)
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
        expected_env_steps=expected,
        area=normalized_score(mean, cell.scores),
        area_low=normalized_score(low_mean, cell.scores),
        area_high=normalized_score(high_mean, cell.scores),
        mean_return=mean,
        area_env_steps=budget,
        unfinished=sum(not run.done for run in runs),
        empty=len(cell.trials) - len(runs),
        center=cell.evaluates_policy,
        cut=cell.cuts_episodes,
        commands=commands_of(cell),
        differs=cell.differs,
        diverged=means.count(None) if cell.evaluates_policy else 0,
    )


def _window(cell: Cell, target: float, window: int) -> int:
    """The window, or that with which the runs have stopped at this target if it is smaller."""
    budget = cell.spec["budget"]
    stops = budget["target_return"] == target
    return min(window, budget["target_window"]) if stops else window


def _mean_returns(runs: Sequence[RunCurve], budget: float) -> list[float | None]:
    """The mean return of each run of a search; None if it is not finite.

    The score fills the rest of the budget of a run that ended before it. A run that is not done
    counts only if it has spent the budget.
    """
    means: list[float | None] = []
    for run in runs:
        spent = run.totals["env_steps"]
        if not run.is_agent and (run.done or spent[-1] >= budget):
            mean = mean_return(spent, run.returns, run.score, budget)
            means.append(mean if math.isfinite(mean) else None)
    return means


def _iqm_with_interval(means: Sequence[float | None], cell: Cell) -> tuple[float, float, float]:
    """The IQM of the mean returns of runs, and its interval; NaN if none is finite.

    A run that diverged counts as in ``seed_scores``.
    """
    if all(mean is None for mean in means):
        return math.nan, math.nan, math.nan
    random = cell.scores.random.mean if cell.scores.random else math.inf
    (values,) = diverged_as_worst([means], random)
    low, high = bootstrap_interval(values)
    return float(iqm(values)), float(low), float(high)


def _footnotes(rows: Sequence[EfficiencyRow], window: int, terminal: bool) -> list[str]:
    interval = "" if terminal else "Interval: Wilson's interval of their share. "
    lines = [_REACHED.format(window=window, interval=interval), _COST, _EXPECTED]
    if any(not math.isnan(row.area) for row in rows):
        budgets = {row.environment: row.area_env_steps for row in rows if not math.isnan(row.area)}
        listed = ", ".join(f"{format_steps(steps)} on {name}" for name, steps in budgets.items())
        lines.append(
            "Area: area under the learning curve: the mean of the unperturbed policy's return over "
            f"the first steps ({listed}), where 0 is the random policy and 1 the reference; IQM "
            "over seeds, with its 95 % percentile bootstrap interval. The final score fills the "
            "rest of a run that ended earlier. An agent has none, because its first policy is not "
            "evaluated."
        )
    lines += [
        f"{name}: no target, because it has no reference score; set one with --target {name}=SCORE."
        for name in dict.fromkeys(row.environment for row in rows if math.isnan(row.target))
    ]
    lines += seeds_notes([row.runs for row in rows], best=False)
    if unfinished := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(unfinished, 'run')} without a result (partial, running or failed): see "
            "'esbench status'. The steps so far count in ERT, and a target that is not reached yet "
            "counts as not reached."
        )
    lines += [
        f"{row.title}: {counted(row.diverged, 'run')} diverged; in the area they count as the "
        "row's worst, or as the random policy if it is lower."
        for row in rows
        if row.diverged and not math.isnan(row.area)
    ]
    if empty := sum(row.empty for row in rows):
        lines.append(f"{counted(empty, 'trial')} without a training step left out.")
    lines += [
        f"{row.title}: the unperturbed policy was not evaluated during "
        "training, so only the final score can reach the target."
        for row in rows
        if not row.center
    ]
    lines += [
        f"{row.title}: max_episode_steps cuts the episodes of training, so their returns may stay "
        "below the target and the reference."
        for row in rows
        if row.cut
    ]
    lines += settings_notes({row.title: row.differs for row in rows})
    return lines + command_notes({row.title: row.commands for row in rows})


def _texts(row: EfficiencyRow, terminal: bool) -> dict[str, str]:
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
