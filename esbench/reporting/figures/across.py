"""Curves of algorithms over several environments, and the figures that show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final

from esbench.analysis.statistics import Floats
from esbench.reporting.figures.style import (
    Style,
    add_legend,
    assign_styles,
    draw_curve,
    new_figure,
)
from esbench.store.cells import Cell
from esbench.units import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

HEIGHT: Final = 3.4  # inches, without the legend
TITLE_ENVIRONMENTS: Final = 3  # more are counted instead of named
OPACITY: Final = 0.15


@final
@dataclass(frozen=True, eq=False)
class AcrossCurve:
    """The curve of one algorithm over several environments.

    Attributes:
        name: algorithm and policy.
        label: text in the legend.
        style: look of the line.
        x, share: [points] of the curve.
        low, high: [points] pointwise 95 % interval; NaN without one.
    """

    name: str
    label: str
    style: Style
    x: Floats
    share: Floats
    low: Floats
    high: Floats


def by_algorithm(pairs: Sequence[tuple[Cell, T]]) -> list[tuple[str, Style, list[tuple[Cell, T]]]]:
    """Group cells and their data by algorithm and policy, sorted, each with a style."""
    groups: dict[str, list[tuple[Cell, T]]] = {}
    for cell, values in sorted(pairs, key=lambda pair: pair[0].name):
        groups.setdefault(cell.name, []).append((cell, values))
    styles = assign_styles([(own[0][0].algorithm, name) for name, own in groups.items()])
    return [(name, style, own) for (name, own), style in zip(groups.items(), styles, strict=True)]


def curve_label(name: str, environments: int, total: int, runs: int, note: str = "") -> str:
    """The text of a legend: the algorithm, its environments if some are missing, and its runs."""
    some = f"{environments} of {counted(total, 'environment')}, " if environments < total else ""
    return f"{name} ({some}{counted(runs, 'run')}{note})"


def make_across_figure(
    title: str,
    environments: Sequence[str],
    curves: Sequence[AcrossCurve],
    labels: tuple[str, str],
    legend_title: str,
    decorate: Callable[[Axes], None],
) -> Figure:
    """Make a figure with one line per algorithm.

    Args:
        title: what the figure shows.
        environments: names, for the title.
        curves: the lines.
        labels: of the horizontal and the vertical axis.
        legend_title: how to read the lines.
        decorate: adds scales and marks to the axes.
    """
    figure = new_figure(HEIGHT, [curve.label for curve in curves])
    axes = figure.subplots()
    opacity = min(OPACITY, 1 / len(curves))  # overlapping bands add up
    for index, curve in enumerate(curves):
        band = (curve.x, curve.share, curve.low, curve.high)
        draw_curve(axes, *band, curve.style, curve.label, index, len(curves), opacity)
    decorate(axes)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_ylim(-0.03, 1.03)
    axes.margins(x=0.02)
    axes.grid(visible=True)
    many = len(environments) > TITLE_ENVIRONMENTS
    where = counted(len(environments), "environment") if many else ", ".join(environments)
    figure.suptitle(f"{title}: {where}", fontsize=10)
    add_legend(figure, axes, legend_title)
    return figure
