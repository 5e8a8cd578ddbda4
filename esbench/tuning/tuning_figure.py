"""The figure of a search of settings: the score of each configuration against each setting."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from esbench.core.search_space import SettingSpace
from esbench.grids.trial_spec import value_text
from esbench.integrations.optuna_study import Configuration
from esbench.publish.figures.drawing import Drawing, Size, add_legend
from esbench.publish.figures.style import BLUE, GRAY, VERMILLION
from esbench.tuning.study import objective
from esbench.tuning.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMNS: Final = 3
HEIGHT: Final = 2.1  # of a row [inches]
SHOWN: Final = 4  # times the distance from the best score to the median: the extent of the axis
FEW: Final = 10  # scores, which are all shown
MARGIN: Final = 1.2  # factor beside the ends of a logarithmic axis
EDGE: Final = 0.05  # of the range, beside the ends of a linear axis
MOST_TICKS: Final = 5
LOOKS: Final[dict[str, Any]] = {
    "pruned, at its rung": {"marker": "o", "s": 22, "facecolors": "none", "edgecolors": GRAY},
    "complete": {"marker": "o", "s": 22, "color": BLUE},
    "failed or below the axis": {"marker": "x", "s": 30, "color": VERMILLION},
    "default": {"marker": "D", "s": 60, "facecolors": "white", "edgecolors": "black"},
    "best": {"marker": "*", "s": 130, "color": VERMILLION, "edgecolors": "white"},
}


def draw_tuning(summary: Summary) -> list[Path]:
    """Write the figure to the study's folder, and return its files; none if all have failed."""
    if summary.best is None or not summary.searched:
        return []
    return tuning_drawing(summary).write(summary.study.folder, "scores")


def tuning_drawing(summary: Summary) -> Drawing:
    """The drawing of a study: one panel per setting, with the same axis of scores."""
    rows = math.ceil(len(summary.searched) / COLUMNS)
    return Drawing(HEIGHT * rows, list(LOOKS), partial(_draw, summary))


def _draw(summary: Summary, figure: FigureBase, size: Size) -> None:
    names = summary.searched
    rows = math.ceil(len(names) / COLUMNS)
    columns = min(COLUMNS, len(names))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    lowest = lowest_shown(summary)
    for axes, name in zip(panels, names, strict=False):
        _draw_panel(axes, summary, name, lowest)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    for axes in panels[:: COLUMNS if rows > 1 else columns]:
        axes.set_ylabel("score (IQM over seeds)")
    figure.suptitle(f"{summary.study.name}: score of each configuration", fontsize=10)
    add_legend(figure, size, panels[0], "")


def lowest_shown(summary: Summary) -> float:
    """The lower end of the axis: configurations that diverged would hide all differences."""
    scores = [value for c in summary.configurations if math.isfinite(value := last_score(c))]
    if len(scores) < FEW:
        return min(scores)
    extent = summary.best_score - float(np.median(scores))
    limit = summary.best_score - SHOWN * extent
    return min((score for score in scores if score >= limit), default=summary.best_score)


def last_score(configuration: Configuration) -> float:
    """The objective at the last rung that a configuration reached."""
    return objective(configuration.rungs[-1]) if configuration.rungs else -math.inf


def _draw_panel(axes: Axes, summary: Summary, name: str, lowest: float) -> None:
    space = summary.study.space[name]
    places: dict[str, list[tuple[float, float]]] = {label: [] for label in LOOKS}
    for configuration in summary.configurations:
        chosen = configuration.settings if configuration.number else summary.study.defaults
        if name in chosen and (x := _place(space, chosen[name])) is not None:
            place = x, max(last_score(configuration), lowest)
            for label in _labels(summary, configuration, lowest):
                places[label].append(place)
    for order, (label, look) in enumerate(LOOKS.items()):
        points = np.array(places[label]).reshape(-1, 2)
        axes.scatter(*points.T, label=label, zorder=3 + order, clip_on=False, **look)
    if space.choices:
        axes.set_xticks(range(len(space.choices)), list(map(value_text, space.choices)))
        axes.set_xlim(-0.5, len(space.choices) - 0.5)
    else:
        _numbers(axes, space)
    axes.set_xlabel(name)
    axes.grid(visible=True)


def _numbers(axes: Axes, space: SettingSpace) -> None:
    """An axis over a whole range, with few ticks as plain numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    assert space.low is not None
    assert space.high is not None
    if not space.log:
        margin = EDGE * (space.high - space.low)
        axes.set_xlim(space.low - margin, space.high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS - 1))
        return
    axes.set_xscale("log")
    axes.set_xlim(space.low / MARGIN, space.high * MARGIN)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=MOST_TICKS))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _labels(summary: Summary, configuration: Configuration, lowest: float) -> list[str]:
    """How a configuration is shown; the default settings may be the best."""
    special = ["default"] if not configuration.number else []
    if configuration == summary.best:
        return [*special, "best"]
    if last_score(configuration) < lowest:
        return ["failed or below the axis"]
    state = "complete" if configuration.state == "complete" else "pruned, at its rung"
    return special or [state]


def _place(space: SettingSpace, value: Any) -> float | None:
    """Where a value lies on the axis of its setting; None for one that is no place on it."""
    if space.choices:
        return float(space.choices.index(value)) if value in space.choices else None
    return float(value) if isinstance(value, int | float) and (value > 0 or not space.log) else None
