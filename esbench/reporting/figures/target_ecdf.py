"""The figure of targets: which share of them is reached within which budget.

The targets are evenly spaced between an environment's frozen random score and its frozen reference,
so a curve depends neither on the other algorithms nor on the unit of the returns. The shares are
computed by ``analysis.efficiency``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from esbench.analysis.efficiency import TARGETS, WINDOW, even_targets, share_reached_across
from esbench.analysis.statistics import Floats
from esbench.grids.environment_files import Scores
from esbench.reporting.figures.across import (
    AcrossCurve,
    by_algorithm,
    curve_label,
    make_across_figure,
)
from esbench.reporting.figures.style import as_files
from esbench.store.cells import Cell
from esbench.store.run_curves import RunCurve, run_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS: Final = 400
DECADES: Final = 4  # longest axis of budgets
TICKS: Final = 14


def render(group: Sequence[Cell]) -> dict[str, bytes]:
    """The figure as bytes by file suffix, "png" and "svg"; empty without anything to show.

    Args:
        group: cells of any environments; those without a frozen random and reference score, and
            those without a generation, are left out.

    Raises:
        UsageError: a trial is not readable.
    """
    if not (pairs := scored_runs(group)):
        return {}
    environments = sorted({cell.environment for cell, _ in pairs})
    lines = ecdf_curves(pairs)
    return as_files(lambda: make_figure(environments, lines))


def scored_runs(group: Sequence[Cell]) -> list[tuple[Cell, list[RunCurve]]]:
    """The cells with runs whose environment has both frozen scores, and those runs.

    The runs are those that are done or, if none is, the unfinished ones.

    Raises:
        UsageError: a trial is not readable.
    """
    pairs = [(cell, list(run_curves(cell))) for cell in group if cell.has_scale]
    return [(cell, [run for run in runs if run.done] or runs) for cell, runs in pairs if runs]


def ecdf_curves(pairs: Sequence[tuple[Cell, Sequence[RunCurve]]]) -> list[AcrossCurve]:
    """One curve per algorithm: the share of triples (environment, target, run) reached.

    Args:
        pairs: of ``scored_runs``. A curve ends at the most that one of its runs spent.
    """
    count = len({cell.environment for cell, _ in pairs})
    totals = [(cell, [_first_totals(run, cell.scores) for run in runs]) for cell, runs in pairs]
    first = _first_budget(
        [times for _, found in totals for times in found],
        max(_spent(run) for _, runs in pairs for run in runs),
    )
    curves = []
    for (name, style, own), (_, _, reached) in zip(
        by_algorithm(pairs), by_algorithm(totals), strict=True
    ):
        runs = [run for _, members in own for run in members]
        budgets = np.geomspace(first, max(first, *map(_spent, runs)), POINTS)
        note = "" if all(run.done for run in runs) else ", unfinished"
        none = np.full(POINTS, np.nan)
        curves.append(
            AcrossCurve(
                name=name,
                label=curve_label(name, len(own), count, len(runs), note),
                style=style,
                x=budgets,
                share=share_reached_across([found for _, found in reached], budgets),
                low=none,
                high=none,
            )
        )
    return curves


def make_figure(environments: Sequence[str], curves: Sequence[AcrossCurve]) -> Figure:
    """Make the figure.

    Args:
        environments: names, for the title.
        curves: of ``ecdf_curves``.
    """
    return make_across_figure(
        "Targets reached within a budget",
        environments,
        curves,
        ("environment steps of training (log scale)", "share of targets reached"),
        f"{TARGETS} targets an environment, even from the random policy's score to the reference; "
        f"all runs. Reached\nby the unperturbed policy's mean return over {WINDOW} generations, or "
        "by the final score.",
        _scale_budgets,
    )


def _scale_budgets(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=TICKS))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _first_totals(run: RunCurve, scores: Scores) -> Floats:
    assert scores.random is not None, "a cell with a scale"
    targets = even_targets(scores.random.mean, scores.references[0].score)
    return run.first_totals(targets, costs=("env_steps",))["env_steps"]


def _spent(run: RunCurve) -> float:
    return float(run.totals["env_steps"][-1])


def _first_budget(totals: Sequence[Floats], longest: float) -> float:
    """The start of the axis of budgets: where the first target was reached, above 0.

    The axis spans at least one decade and at most ``DECADES``.
    """
    times = np.concatenate(totals)
    first = float(np.min(times, initial=np.inf, where=times > 0))
    return float(np.clip(first, longest / 10**DECADES, longest / 10))
