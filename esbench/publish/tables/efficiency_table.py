"""Tables of sample efficiency: what training spends until it reaches a target score."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.core.errors import UsageError, suggestion
from esbench.core.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_share,
    format_steps,
)
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.tables.render_table import (
    INTERVAL,
    Column,
    Sheet,
    interval_text,
    make_sheet,
    nan_last,
)
from esbench.publish.tables.table_notes import (
    NAME,
    TUNED_NOTE,
    command_notes,
    grouped,
    marked,
    seeds_notes,
)
from esbench.results.cell import Cell
from esbench.results.run import COSTS
from esbench.results.sources import read_folder
from esbench.results.statistics.curves import (
    WINDOW,
    expected_running_time,
    median_total,
    share_interval,
)
from esbench.results.statistics.estimates import diverged_as_worst
from esbench.results.statistics.significance import Estimate


@final
@dataclass(frozen=True)
class Efficiency:
    """The cost of a cell's runs up to a target score. NaN: missing; infinite: not reached.

    Attributes:
        cell: its scores are the mean returns of its runs up to ``area_env_steps``, which an
            environment's cells share.
        target: the score to reach; NaN if there is none, as are the numbers that depend on it.
        window: the generations whose mean return must reach it.
        reached, runs: the number of runs that reached it, and of those that are done.
        share: their quotient, with Wilson's interval, NaN with fewer than three runs.
        costs: by then, median over all runs, by the names of ``COSTS``.
        expected_env_steps: COCO's expected running time.
        diverged: the number of these runs with a return that is not finite.
    """

    cell: Cell
    target: float
    window: int
    reached: float
    runs: int
    share: Estimate
    costs: Mapping[str, float]
    expected_env_steps: float
    area_env_steps: float
    diverged: int

    @property
    def area(self) -> float:
        """The mean return, where random actions are 0 and the reference is 1."""
        return self.cell.normalized(self.cell.score)

    @property
    def area_interval(self) -> tuple[float, float]:
        """The interval of ``area``."""
        low, high = map(self.cell.normalized, self.cell.interval)
        return low, high


def _cost(name: str) -> Callable[[Efficiency], float]:
    return lambda row: row.costs[name]


def _reached(row: Efficiency) -> str:
    return NONE if math.isnan(row.target) else f"{row.reached} of {row.runs}"


def _shares(ends: tuple[float, float]) -> str:
    return interval_text(ends, format_share)


def _area(row: Efficiency) -> str:
    area, interval = format_share(row.area), _shares(row.area_interval)
    return area if interval == NONE else f"{area} {interval}"


COLUMNS: Final[tuple[Column[Efficiency], ...]] = (
    Column("environment", attrgetter("cell.environment"), "Environment"),
    Column("algorithm", attrgetter("cell.algorithm")),
    Column("", lambda row: marked(row.cell.algorithm, row.cell.inherited), NAME),
    Column("policy", attrgetter("cell.policy"), "Policy"),
    Column("target", None, "Target", format_number),
    Column("reached"),
    Column("runs"),
    Column("", None, "Reached", _reached),
    Column("share", attrgetter("share.value")),
    Column("low", attrgetter("share.low")),
    Column("high", attrgetter("share.high")),
    Column("", attrgetter("share.low", "share.high"), INTERVAL, _shares),
    Column("env_steps", _cost("env_steps"), "Steps", format_steps),
    Column("episodes", _cost("episodes"), "Episodes", format_steps),
    Column("cpu_time_s", _cost("cpu_time_s"), "CPU time", format_duration),
    Column("wall_time_s", _cost("wall_time_s")),
    Column("expected_env_steps", None, "ERT", format_steps),
    Column("area"),
    Column("area_low", lambda row: row.area_interval[0]),
    Column("area_high", lambda row: row.area_interval[1]),
    Column("", None, "Area", _area, optional=True),
    Column("mean_return", attrgetter("cell.score")),
    Column("area_env_steps"),
    Column("unfinished", attrgetter("cell.unfinished")),
    Column("center", attrgetter("cell.evaluates_policy")),
    Column("cut", attrgetter("cell.cuts_episodes")),
    Column("commands", attrgetter("cell.commands")),
    Column("differs", attrgetter("cell.differs")),
    Column("inherited", attrgetter("cell.inherited")),
    Column("diverged"),
)


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
) -> list[Efficiency]:
    """One row per environment and algorithm, sorted by environment, the lowest cost first.

    Without a target, the reference score of the environment is used. ``window`` is the number of
    generations over which the unperturbed policy's return is averaged.

    Raises:
        UsageError: there is no trial, a trial is not readable, an environment of ``targets`` has
            no trial, or ``window`` is less than 1.
    """
    if window < 1:
        raise UsageError(f"--window {window}: expected at least 1 generation")
    found = read_folder(root)
    present = {cell.environment for cell in found}
    for name in targets:
        if name and name not in present:
            raise UsageError(
                f"--target {name}=...: no trial of it in {str(root)!r}; {suggestion(name, present)}"
            )
    rows: list[Efficiency] = []
    for _, members in itertools.groupby(found, lambda cell: cell.environment):
        rows += _rows(list(members), targets, window)

    def place(row: Efficiency) -> tuple[str, float, float, str]:
        cost, area = nan_last(row.expected_env_steps), nan_last(-row.area)
        return row.cell.environment, cost, area, row.cell.name

    return sorted(rows, key=place)


def sheet(rows: Sequence[Efficiency], window: int = WINDOW, *, terminal: bool = False) -> Sheet:
    """The table; with ``terminal``, it has no intervals, and the policy is part of the name."""
    hidden = {INTERVAL, "Policy"} if terminal else set()
    if all(row.cell.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    short: dict[str, Column[Efficiency]] = {
        NAME: Column("", lambda row: marked(row.cell.name, row.cell.inherited), NAME),
        "Area": Column("area", None, "Area", format_share, optional=True),
    }
    columns = [short.get(each.heading, each) if terminal else each for each in COLUMNS]
    table = make_sheet(columns, rows, hidden)
    return replace(table, notes=_footnotes(rows, window, table.header))


def _rows(group: Sequence[Cell], targets: Mapping[str, float], window: int) -> list[Efficiency]:
    searches = [cell for cell in group if not cell.is_agent]
    budgets = [float(cell.budget) for cell in searches]
    budgets += [run.budget for cell in searches for run in cell.done]
    budget = min(budgets, default=math.nan)
    rows = []
    for cell in group:
        target = targets.get(cell.environment, targets.get("", cell.reference_score))
        rows.append(_row(cell, target, budget, window))
    return rows


def _row(cell: Cell, target: float, budget: float, window: int) -> Efficiency:
    runs, limits = cell.done, cell.spec["budget"]
    if limits["target_return"] == target:  # the runs have stopped at it, by their own window
        window = min(window, limits["target_window"])
    found = [run.first_totals(np.array([target]), window) for run in runs]
    totals = {cost: [run[cost][0] for run in found] for cost in COSTS}
    ends = [run.curve["env_steps"][-1] for run in runs]
    known = bool(runs) and not math.isnan(target)
    reached = int(np.isfinite(totals["env_steps"]).sum()) if known else 0
    low, high = share_interval(reached, len(runs)) if known else (math.nan, math.nan)
    means = [run.mean_return(budget) for run in runs if not run.is_agent]
    return Efficiency(
        cell=replace(cell, statistic="area", scores=tuple(_with_worst(means, cell))),
        target=target,
        window=window,
        reached=math.nan if math.isnan(target) else reached,
        runs=len(runs),
        share=Estimate(reached / len(runs) if known else math.nan, low, high),
        costs={cost: median_total(totals[cost]) if known else math.nan for cost in COSTS},
        expected_env_steps=expected_running_time(totals["env_steps"], ends) if known else math.nan,
        area_env_steps=budget,
        diverged=sum(map(math.isnan, means)) if cell.evaluates_policy else 0,
    )


def _with_worst(means: Sequence[float], cell: Cell) -> list[float]:
    """The mean returns of runs, those that diverged as in ``seed_scores``."""
    known = [None if math.isnan(mean) else mean for mean in means]
    random = cell.frozen.random.mean if cell.frozen.random else math.inf
    return diverged_as_worst([known], random)[0] if any(k is not None for k in known) else []


def _footnotes(rows: Sequence[Efficiency], window: int, header: Sequence[str]) -> list[str]:
    used = max((row.window for row in rows), default=window)
    budgets = {row.cell.environment: row.area_env_steps for row in rows if not math.isnan(row.area)}
    listed = ", ".join(f"{format_steps(steps)} on {name}" for name, steps in budgets.items())
    notes = [
        f"Reached: runs whose return over {used} generations, or score, reached the target.",
        "Steps, episodes, CPU time: the cost of training until then, median over all runs.",
        "ERT: expected running time, the steps of all runs per run that reached the target.",
    ]
    if INTERVAL in header:
        notes.append(f"{INTERVAL}: Wilson's interval of the share of runs that reached the target.")
    if "Area" in header:
        notes.append(
            "Area: mean return of the unperturbed policy over the first steps of training "
            f"({listed}), where 0 is the random policy and 1 the reference; IQM over seeds."
        )
    notes += [TUNED_NOTE] * any(row.cell.inherited for row in rows)
    notes += seeds_notes([row.runs for row in rows])
    if unfinished := sum(row.cell.unfinished for row in rows):
        notes.append(f"{counted(unfinished, 'trial')} without a result left out.")
    notes += grouped((row.cell.title, text) for row in rows for text in _of_row(row, used))
    return notes + command_notes({row.cell.title: row.cell.commands for row in rows})


def _of_row(row: Efficiency, window: int) -> Iterator[str]:
    if row.window < window:
        number = counted(row.window, "generation")
        yield f"its return over {number} counts, at which training stopped. That is reached sooner."
    if math.isnan(row.target):
        yield f"no target; set one with --target {row.cell.environment}=SCORE."
    if row.diverged and not math.isnan(row.area):
        runs = counted(row.diverged, "run")
        yield f"{runs} diverged. In the area, each counts as the worst of row and random policy."
    if not row.cell.evaluates_policy:
        yield "the policy was not evaluated in training. Only the final score can reach the target."
    if row.cell.cuts_episodes:
        yield "max_episode_steps cuts the episodes of training, whose returns may stay low."
    if row.cell.differs:
        yield ", ".join(row.cell.differs)
