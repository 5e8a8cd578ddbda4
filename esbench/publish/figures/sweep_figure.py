"""The figure of a sweep: score against a setting of the algorithm, in one environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from esbench.grids.trial_spec import swept_keys, value_text, without_setting
from esbench.publish.figures.drawing import Curve, Drawing, Size, add_legend
from esbench.publish.figures.style import assign_styles
from esbench.publish.tables.score_table import value_order
from esbench.results.cell import Cell, seed_scores
from esbench.results.statistics.estimates import bootstrap_interval, iqm

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

HEIGHT: Final = 2.95  # inches, without the legend
BAR_WIDTH: Final = 0.06  # inches
LOG_RATIO: Final = 4  # of the largest and smallest value, from which the axis is logarithmic


@final
@dataclass(frozen=True, eq=False)
class SweepFigure:
    """One curve per algorithm.

    ``ticks`` are the names of the values by their ``x``: the value, or its place if some value is
    not a number. The axis is logarithmic for positive values that differ much.
    """

    environment: str
    setting: str
    ticks: dict[float, str]
    is_logarithmic: bool
    curves: Sequence[Curve]


def sweep_figures(group: Sequence[Cell], chosen: Sequence[Cell] | None = None) -> list[SweepFigure]:
    """The figures of one environment's cells, one for each swept setting with two scores.

    They show the ``chosen`` cells, by default all; a run that diverged has the worst score of all.
    """
    scores_of = dict(zip([cell.name for cell in group], seed_scores(group), strict=True))
    own = group if chosen is None else chosen
    keys = dict.fromkeys(key for cell in own for key in swept_keys(cell.algorithm, cell.settings))
    return [shown for key in keys if (shown := _sweep(own, key, scores_of))]


def _sweep(
    group: Sequence[Cell], key: str, scores_of: Mapping[str, Sequence[float]]
) -> SweepFigure | None:
    families: dict[str, list[Cell]] = {}
    for cell in group:
        if key in swept_keys(cell.algorithm, cell.settings) and scores_of[cell.name]:
            name = without_setting(cell.name, key, cell.settings[key])
            families.setdefault(name, []).append(cell)
    found = {value_text(v): v for own in families.values() for v in _values(own, key)}
    values = sorted(found.values(), key=value_order)
    if len(values) < 2:
        return None
    numeric = all(isinstance(value, int | float) for value in values)
    places = [float(v) if numeric else float(n) for n, v in enumerate(values)]
    texts = list(map(value_text, values))
    place = dict(zip(texts, places, strict=True))
    curves = []
    for name, style in assign_styles({name: name for name in sorted(families)}).items():
        own = sorted(families[name], key=lambda cell: value_order(cell.settings[key]))
        scores = [scores_of[cell.name] for cell in own]
        x = np.array([place[value_text(value)] for value in _values(own, key)])
        y = np.array([float(iqm(each)) for each in scores])
        low, high = np.array([bootstrap_interval(each) for each in scores]).T
        curves.append(Curve(name, name, style, x, y, low, high))
    log = numeric and 0 < LOG_RATIO * places[0] <= places[-1]
    return SweepFigure(
        group[0].environment, key, dict(zip(places, texts, strict=True)), log, curves
    )


def sweep_drawing(shown: SweepFigure) -> Drawing:
    """The drawing of a sweep; positive values that differ much have a logarithmic axis."""
    return Drawing(HEIGHT, [curve.label for curve in shown.curves], partial(_draw, shown))


def _draw(shown: SweepFigure, figure: FigureBase, size: Size) -> None:
    from matplotlib.transforms import offset_copy

    axes = figure.subplots()
    for number, curve in enumerate(shown.curves):  # beside each other, so that all bars are seen
        shift = BAR_WIDTH * (number - (len(shown.curves) - 1) / 2)
        axes.errorbar(
            curve.x,
            curve.y,
            # Rounding can put the IQM of equal scores just outside of its interval.
            yerr=np.maximum((curve.y - curve.low, curve.high - curve.y), 0.0),
            color=curve.style.color,
            linestyle=curve.style.line,
            marker=curve.style.marker,
            markerfacecolor="white",
            capsize=3,
            elinewidth=1,
            label=curve.label,
            transform=offset_copy(axes.transData, axes.get_figure(root=True), x=shift),
        )
        for values in (curve.y, curve.low, curve.high):  # matplotlib ignores shifted data
            axes.update_datalim(np.column_stack([curve.x, values]))
    if shown.is_logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.autoscale_view()
    axes.set_xticks(list(shown.ticks), list(shown.ticks.values()))
    axes.set_xlabel(shown.setting)
    axes.set_ylabel("score")
    axes.grid(visible=True)
    figure.suptitle(f"{shown.environment}: score against {shown.setting}", fontsize=10)
    add_legend(figure, size, axes, "IQM over seeds; bars: 95 % bootstrap interval")


def _values(own: Sequence[Cell], key: str) -> list[Any]:
    return [cell.settings[key] for cell in own]
