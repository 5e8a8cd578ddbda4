"""The figure of a cell's past checks: score and speed against the commit, with their changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from esbench.core.files import safe_name
from esbench.core.units import format_steps
from esbench.publish.figures.drawing import Drawing, Size, legend_lines
from esbench.publish.figures.style import BLUE, GRAY, GREEN, NOTE, ORANGE, VERMILLION
from esbench.publish.history import CellHistory, PastCheck, by_processor, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

HEIGHT: Final = 4.2  # inches, without the legend
MOST_LABELS: Final = 24  # on the axis of commits
COLORS: Final = {"regression": VERMILLION, "improvement": GREEN, "inconclusive": ORANGE}
SPEEDS: Final[Any] = [
    {"marker": "o", "color": GRAY},
    {"marker": "^", "color": BLUE},
    {"marker": "s", "color": GREEN},
]
CHANGE: Final[Any] = {"color": VERMILLION, "linestyle": "--", "linewidth": 1.0, "zorder": 1}


def draw_history(found: Sequence[CellHistory], out: Path) -> list[Path]:
    """Write the figure of every cell that was measured; UsageError if a file cannot be written."""
    paths: list[Path] = []
    names: Counter[str] = Counter()
    for cell in found:
        if any(check.scores.size for check in cell.checks):
            name = safe_name(f"history-{cell.title.replace(' on ', '-')}")
            names[name] += 1
            number = f"-{names[name]}" if names[name] > 1 else ""
            paths += history_drawing(cell).write(out, name + number)
    return paths


def history_drawing(cell: CellHistory) -> Drawing:
    """The drawing of a cell: the score of each check above, its speed below."""
    labels = {_label(check): None for check in cell.checks if check.scores.size}
    return Drawing(HEIGHT, [*labels, "level", "change"], partial(_draw, cell))


def _draw(cell: CellHistory, figure: FigureBase, size: Size) -> dict[str, Any]:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    checks = cell.checks
    _draw_scores(above, checks)
    _draw_levels(above, checks, range(len(checks)), "score", signed)
    statistic = cell.episode_statistic
    above.set_ylabel("score" if statistic == "mean" else f"score ({statistic})")
    _draw_speeds(below, checks)
    below.yaxis.set_major_formatter(lambda value, _: format_steps(value))
    below.set_ylabel("steps / s (CPU)")
    below.margins(y=0.15)
    below.set_ylim(bottom=0)
    below.set_xlabel(f"commit, {checks[0].date} to {checks[-1].date}")
    shown = range(0, len(checks), math.ceil(len(checks) / MOST_LABELS))
    below.set_xticks(list(shown), [checks[n].commit or checks[n].date for n in shown])
    below.tick_params(axis="x", rotation=60)
    for axes in (above, below):
        axes.grid(visible=True, axis="y")
        axes.margins(x=0.02)
    figure.suptitle(cell.title)
    return legend_lines(above)


def _label(check: PastCheck) -> str:
    if check.verdict in COLORS:
        return check.verdict
    return "same digests" if check.digests == "same" else "digests changed"


def _draw_scores(axes: Axes, checks: Sequence[PastCheck]) -> None:
    """One marker per check, open if its digests are those of the check before."""
    for place, check in enumerate(checks):
        if check.scores.size:
            color = COLORS.get(check.verdict, BLUE)
            axes.plot([place, place], [check.low, check.high], color=color, linewidth=1, zorder=2)
            face = "white" if check.digests == "same" else color
            look: dict[str, Any] = {"color": color, "markerfacecolor": face, "zorder": 3}
            axes.plot(place, check.score, "o", label=_label(check), **look)


def _draw_speeds(axes: Axes, checks: Sequence[PastCheck]) -> None:
    """Speeds with levels for each type of processor, which are named if there are several."""
    found = by_processor(checks)
    for look, (processor, places) in zip(cycle(SPEEDS), found.items()):
        speeds = [checks[place].speed for place in places]
        axes.plot(places, speeds, **look, linestyle="", markersize=4, label=processor or "unknown")
        _draw_levels(axes, checks, places, "speed", "{:+.0%}".format)
    if len(found) > 1:
        lines = [line for line in axes.get_lines() if line.get_marker() != "None"]
        axes.legend(handles=lines, fontsize=7, loc="lower left")


def _draw_levels(
    axes: Axes,
    checks: Sequence[PastCheck],
    places: Sequence[int],
    name: str,
    words: Callable[[float], str],
) -> None:
    """A horizontal line per level, and before each a dashed one with the change and the commit."""
    levels = np.array([getattr(checks[place], f"{name}_level") for place in places])
    starts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
    for start, end in pairwise(starts):
        ends = (places[start] - 0.4, places[end - 1] + 0.4)
        axes.plot(ends, [levels[start]] * 2, color="black", linewidth=1, zorder=4, label="level")
    for place in places:
        check, change = checks[place], getattr(checks[place], f"{name}_change")
        if not math.isnan(change):
            axes.axvline(place - 0.5, **CHANGE, label="change")
            late = place > len(checks) / 2
            axes.annotate(
                f"{words(change)} at {check.commit or check.date}",
                (place - 0.5, 1.0),
                (3 if late else -3, 2),
                ("data", "axes fraction"),
                horizontalalignment="right" if late else "left",
                **NOTE,
            )
