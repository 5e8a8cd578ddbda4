"""Figures over several environments, with one curve per algorithm.

The ECDF is the share of targets reached within a budget. Targets are evenly spaced from an
environment's frozen random score to its reference, so a curve depends neither on the other
algorithms nor on the unit of the returns. The performance profile is the share of runs that score
above a threshold on this scale. With one environment the table already shows every score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import counted
from esbench.grids.trial_spec import NamedCell
from esbench.publish.figures.drawing import Curve, Drawing, Size, add_legend, draw_curves
from esbench.publish.figures.style import MARK, NOTE, Style, assign_styles
from esbench.results.cell import Cell
from esbench.results.run import Run
from esbench.results.statistics import estimates
from esbench.results.statistics.curves import TARGETS, WINDOW, even_targets, share_reached

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

T = TypeVar("T")

HEIGHT: Final = 3.4  # inches, without the legend
TITLE_ENVIRONMENTS: Final = 3  # more are counted instead of named
OPACITY: Final = 0.15
POINTS: Final = 400
DECADES: Final = 4  # longest axis of budgets
TICKS: Final = 14
LOWEST: Final = -0.5  # limits of the axis of scores
HIGHEST: Final = 2.0
MARKS: Final = {0.0: "random policy", 1.0: "reference"}


@final
@dataclass(frozen=True, eq=False)
class AcrossFigure:
    """A figure with the title ``reading`` above its legend; ``decorate`` marks its axes."""

    title: str
    x_label: str
    y_label: str
    reading: str
    environments: Sequence[str]
    curves: Sequence[Curve]
    decorate: Callable[[Axes], None]


def target_ecdf(
    group: Sequence[Cell], styles: Mapping[str, Style] | None = None
) -> AcrossFigure | None:
    """The share of triples (environment, target, run) reached within a budget.

    A curve is made of the done runs of each cell or, if there is none, of the unfinished ones. It
    ends at the most that one of its runs spent. None if no cell has a scale and a generation.
    ``styles`` are by the names of the cells, by default those of ``assign_styles``.
    """
    pairs = []
    for cell in group:
        if cell.has_scale and (found := cell.started):
            runs = [run for run in found if run.done] or found
            pairs.append((cell, [(run, _first_totals(run, cell)) for run in runs]))
    if not pairs:
        return None
    environments = _environments(pairs)
    members = [member for _, own in pairs for member in own]
    first = _first_budget([times for _, times in members], max(_spent(run) for run, _ in members))
    curves = []
    for name, style, own in _by_algorithm(pairs, styles):
        runs = [run for cell_members in own for run, _ in cell_members]
        budgets = np.geomspace(first, max(first, *map(_spent, runs)), POINTS)
        note = "" if all(run.done for run in runs) else ", unfinished"
        label = _label(name, len(own), len(environments), len(runs), note)
        times = [[found for _, found in cell_members] for cell_members in own]
        none = np.full(POINTS, np.nan)
        share = share_reached(times, budgets)
        curves.append(Curve(name, label, style, budgets, share, none, none))
    return AcrossFigure(
        "Targets reached within a budget",
        "environment steps of training (log scale)",
        "share of targets reached",
        f"{TARGETS} targets per environment, evenly spaced from the random policy's score to the "
        f"reference; all runs. Reached by the unperturbed policy's mean return over {WINDOW} "
        "generations, or by the final score.",
        environments,
        curves,
        _scale_budgets,
    )


def performance_profile(
    group: Sequence[Cell], styles: Mapping[str, Style] | None = None
) -> AcrossFigure | None:
    """The share of runs above each normalized score.

    None if fewer than two environments have frozen random and reference scores and a done run.
    """
    return profile_of([(cell, cell_scores(cell)) for cell in group if cell.has_scale], styles)


def profile_of(
    found: Sequence[tuple[NamedCell, Floats]], styles: Mapping[str, Style] | None = None
) -> AcrossFigure | None:
    """The performance profile of cells with their normalized scores, [runs]; None as above."""
    pairs = [(cell, scores) for cell, scores in found if scores.size]
    environments = _environments(pairs)
    if len(environments) < 2:
        return None
    curves = profile_curves(pairs, styles)
    banded = any(not np.isnan(curve.low).all() for curve in curves)
    shaded = "; shaded: pointwise 95 % stratified bootstrap interval" if banded else ""
    return AcrossFigure(
        "Runs above a score",
        "normalized score",
        "share of runs above it",
        f"Final scores of all runs, every environment alike{shaded}",
        environments,
        curves,
        _mark_scale,
    )


def cell_scores(cell: Cell) -> Floats:
    """The normalized scores [runs] of the done runs; minus infinity for one that diverged."""
    scores = [run.score for run in cell.done]
    return np.array([-math.inf if score is None else cell.normalized(score) for score in scores])


def profile_curves(
    pairs: Sequence[tuple[NamedCell, Floats]], styles: Mapping[str, Style] | None = None
) -> list[Curve]:
    """The curves of a performance profile, from cells with their scores [runs]."""
    total = len(_environments(pairs))
    thresholds = _thresholds(np.concatenate([scores for _, scores in pairs]))
    curves = []
    for name, style, strata in _by_algorithm(pairs, styles):
        label = _label(name, len(strata), total, sum(map(len, strata)))
        share = estimates.performance_profile(strata, thresholds)
        low, high = estimates.profile_interval(strata, thresholds)
        curves.append(Curve(name, label, style, thresholds, share, low, high))
    return curves


def across_drawing(shown: AcrossFigure) -> Drawing:
    """The drawing of a figure over several environments."""
    return Drawing(HEIGHT, [curve.label for curve in shown.curves], partial(_draw, shown))


def _draw(shown: AcrossFigure, figure: FigureBase, size: Size) -> None:
    axes = figure.subplots()
    draw_curves(axes, shown.curves, min(OPACITY, 1 / len(shown.curves)))  # overlapping bands add up
    shown.decorate(axes)
    axes.set_xlabel(shown.x_label)
    axes.set_ylabel(shown.y_label)
    axes.set_ylim(-0.03, 1.03)
    axes.margins(x=0.02)
    axes.grid(visible=True)
    many = len(shown.environments) > TITLE_ENVIRONMENTS
    names = ", ".join(shown.environments)
    where = counted(len(shown.environments), "environment") if many else names
    figure.suptitle(f"{shown.title}: {where}", fontsize=10)
    add_legend(figure, size, axes, shown.reading)


def _environments(pairs: Sequence[tuple[NamedCell, object]]) -> list[str]:
    return sorted({cell.environment for cell, _ in pairs})


def _by_algorithm(
    pairs: Sequence[tuple[NamedCell, T]], styles: Mapping[str, Style] | None
) -> list[tuple[str, Style, list[T]]]:
    """The data of the cells grouped by algorithm and policy, sorted."""
    groups: dict[str, list[T]] = {}
    for cell, values in pairs:
        groups.setdefault(cell.name, []).append(values)
    algorithms = {cell.name: cell.algorithm for cell, _ in pairs}
    styles = styles or assign_styles({name: algorithms[name] for name in sorted(groups)})
    return [(name, styles[name], groups[name]) for name in sorted(groups)]


def _label(name: str, environments: int, total: int, runs: int, note: str = "") -> str:
    some = f"{environments} of {counted(total, 'environment')}, " if environments < total else ""
    return f"{name} ({some}{counted(runs, 'run')}{note})"


def _first_totals(run: Run, cell: Cell) -> Floats:
    targets = even_targets(cell.random_score, cell.reference_score)
    return run.first_totals(targets, costs=("env_steps",))["env_steps"]


def _spent(run: Run) -> float:
    return float(run.curve["env_steps"][-1])


def _first_budget(totals: Sequence[Floats], longest: float) -> float:
    """Where the first target was reached; the axis spans from 1 to ``DECADES`` decades."""
    times = np.concatenate(totals)
    first = float(np.min(times, initial=np.inf, where=times > 0))
    return float(np.clip(first, longest / 10**DECADES, longest / 10))


def _thresholds(scores: Floats) -> Floats:
    """Thresholds [points] from the random policy to the reference, wider if scores are."""
    finite = scores[np.isfinite(scores)]
    first = max(LOWEST, min(0.0, *finite)) if finite.size else 0.0
    last = min(HIGHEST, max(1.0, *finite)) if finite.size else 1.0
    return np.linspace(first, last, POINTS)


def _scale_budgets(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=TICKS))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _mark_scale(axes: Axes) -> None:
    for score, name in MARKS.items():
        axes.axvline(score, **MARK)
        axes.annotate(
            name,
            (score, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 2),
            horizontalalignment="center",
            **NOTE,
        )
