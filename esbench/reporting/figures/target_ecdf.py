"""The figure across environments: which share of targets was reached within which budget.

Targets stand evenly between an environment's frozen random score and its frozen reference, so that
a line moves neither with the other algorithms nor with the unit of the returns. Nothing is computed
here: see ``analysis.efficiency``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from esbench.analysis.efficiency import TARGETS, WINDOW, even_targets, share_reached_across
from esbench.analysis.statistics import Floats
from esbench.grids.environment_files import Scores
from esbench.reporting.figures.style import (
    Style,
    add_legend,
    as_files,
    assign_styles,
    draw_line,
    new_figure,
)
from esbench.store.run_curves import Run, runs_of
from esbench.store.seed_groups import Cell
from esbench.units import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT: Final = 3.4  # inches, without the legend
POINTS: Final = 400
NAMED: Final = 3  # environments in the title
DECADES: Final = 4  # of the axis of budgets, at most
TICKS: Final = 14


@final
@dataclass(frozen=True, eq=False)
class Ecdf:
    """One algorithm's line.

    Attributes:
        name: of the algorithm, with its policy.
        label: its text in the legend.
        style: its look.
        env_steps: [points], up to the most that one of its runs spent.
        share: [points], of the triples (environment, target, run) reached by then.
    """

    name: str
    label: str
    style: Style
    env_steps: Floats
    share: Floats


def render(group: Sequence[Cell]) -> dict[str, bytes]:
    """Return the figure as bytes by file suffix, "png" and "svg"; empty if it would show nothing.

    Args:
        group: cells of any environments; those without a frozen random and reference score, and
            those without a generation, are left out.

    Raises:
        UsageError: a trial is not readable.
    """
    if not (pairs := scored_runs(group)):
        return {}
    environments = sorted({cell.environment for cell, _ in pairs})
    lines = ecdf_lines(pairs)
    return as_files(lambda: make_figure(environments, lines))


def scored_runs(group: Sequence[Cell]) -> list[tuple[Cell, list[Run]]]:
    """Return the cells whose environment has a scale and that have runs, with their runs.

    Raises:
        UsageError: a trial is not readable.
    """
    scored = [cell for cell in group if cell.has_scale]
    runs = [_drawn(runs_of(cell)) for cell in scored]
    return [(cell, members) for cell, members in zip(scored, runs, strict=True) if members]


def ecdf_lines(pairs: Sequence[tuple[Cell, Sequence[Run]]]) -> list[Ecdf]:
    """Return a line for each algorithm, from cells of any environments and their runs."""
    count = len({cell.environment for cell, _ in pairs})
    totals = [[_first_totals(run, cell.scores) for run in runs] for cell, runs in pairs]
    ends = [max(run.totals["env_steps"][-1] for run in runs) for _, runs in pairs]
    first = _first_budget(totals, ends)
    members = {
        name: list(indices)
        for name, indices in itertools.groupby(
            sorted(range(len(pairs)), key=lambda index: pairs[index][0].name),
            key=lambda index: pairs[index][0].name,
        )
    }
    styles = assign_styles([(pairs[own[0]][0].algorithm, name) for name, own in members.items()])
    lines = []
    for (name, own), style in zip(members.items(), styles, strict=True):
        budgets = np.geomspace(first, max(first, *(ends[index] for index in own)), POINTS)
        drawn = [runs for index in own for runs in pairs[index][1]]
        lines.append(
            Ecdf(
                name=name,
                label=f"{name} ({_size(len(own), count, drawn)})",
                style=style,
                env_steps=budgets,
                share=share_reached_across([totals[index] for index in own], budgets),
            )
        )
    return lines


def make_figure(environments: Sequence[str], lines: Sequence[Ecdf]) -> Figure:
    """Return the figure.

    Args:
        environments: those that the lines are of, for the title.
        lines: of ``ecdf_lines``.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    figure = new_figure(HEIGHT, [line.label for line in lines])
    axes = figure.subplots()
    for index, line in enumerate(lines):
        draw_line(axes, line.env_steps, line.share, line.style, line.label, index, len(lines))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=TICKS))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("environment steps of training (log scale)")
    axes.set_ylabel("share of targets reached")
    axes.set_ylim(-0.03, 1.03)
    axes.margins(x=0.02)
    axes.grid(visible=True)
    many = len(environments) > NAMED
    where = counted(len(environments), "environment") if many else ", ".join(environments)
    figure.suptitle(f"Targets reached within a budget: {where}", fontsize=10)
    add_legend(
        figure,
        axes,
        f"{TARGETS} targets an environment, even from the random policy's score to the reference; "
        f"all runs. Reached\nby the unperturbed policy's mean return over {WINDOW} generations, or "
        "by the final score.",
    )
    return figure


def _drawn(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that are done or, without any, those at work, as learning curves do."""
    return [run for run in runs if run.done] or list(runs)


def _first_totals(run: Run, scores: Scores) -> Floats:
    assert scores.random is not None, "a cell with a scale"
    targets = even_targets(scores.random.mean, scores.references[0].score)
    return run.first_totals(targets, costs=("env_steps",))["env_steps"]


def _first_budget(totals: Sequence[Sequence[Floats]], ends: Sequence[float]) -> float:
    """Return where the axis of budgets begins: where the first target was reached, above 0.

    The axis has one decade at least, and ``DECADES`` at most.
    """
    times = np.concatenate([run for cell in totals for run in cell])
    first = float(np.min(times, initial=np.inf, where=times > 0))
    return float(np.clip(first, max(ends) / 10**DECADES, max(ends) / 10))


def _size(environments: int, count: int, runs: Sequence[Run]) -> str:
    """Return in words what a line is made of; of ``count`` environments it may lack some."""
    some = f"{environments} of {counted(count, 'environment')}, " if environments < count else ""
    unfinished = ", unfinished" if any(not run.done for run in runs) else ""
    return f"{some}{counted(len(runs), 'run')}{unfinished}"
