"""The figure of a cell's past checks: score and speed against the commit, with their changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.files import safe_name
from esbench.core.units import format_steps
from esbench.publish.figures.drawing import Drawing, Size, place_legend
from esbench.publish.figures.style import BLUE, GRAY, GREEN, NOTE, ORANGE, VERMILLION
from esbench.publish.history import CellHistory, PastCheck, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

HEIGHT: Final = 4.2  # inches, without the legend
MOST_LABELS: Final = 24  # on the axis of commits
COLORS: Final = {"regression": VERMILLION, "improvement": GREEN, "inconclusive": ORANGE}
LABELS: Final = ("digests changed", "same digests", "level", "change")
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
    verdicts = {check.verdict for check in cell.checks}
    labels = [*LABELS, *(verdict for verdict in COLORS if verdict in verdicts)]
    return Drawing(HEIGHT, labels, partial(_draw, cell))


def _draw(cell: CellHistory, figure: FigureBase, size: Size) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    checks = cell.checks
    _draw_scores(above, checks)
    speeds = np.array([check.speed for check in checks])
    below.plot(np.arange(len(checks)), speeds, ".", color=GRAY, markersize=6, zorder=3)
    _draw_levels(below, [check.speed_level for check in checks])
    _mark_changes(below, checks, [check.speed_change for check in checks], "{:+.0%}".format)
    below.yaxis.set_major_formatter(lambda value, _: format_steps(value))
    statistic = cell.episode_statistic
    above.set_ylabel("score" if statistic == "mean" else f"score ({statistic})")
    below.set_ylabel("steps / s (CPU)")
    below.margins(y=0.15)
    below.set_ylim(bottom=0)
    below.set_xlabel(f"commit, {checks[0].date} to {checks[-1].date}")
    every = math.ceil(len(checks) / MOST_LABELS)
    shown = range(0, len(checks), every)
    below.set_xticks(list(shown), [checks[n].commit or checks[n].date for n in shown])
    below.tick_params(axis="x", rotation=60)
    for axes in (above, below):
        axes.grid(visible=True, axis="y")
        axes.margins(x=0.02)
    figure.suptitle(cell.title, fontsize=10)
    place_legend(figure, size, _handles(checks), "")


def _draw_scores(axes: Axes, checks: Sequence[PastCheck]) -> None:
    """One marker per check, open if its digests are those of the check before."""
    for place, check in enumerate(checks):
        if not check.scores.size:
            continue
        color = COLORS.get(check.verdict, BLUE)
        if not math.isnan(check.low):
            axes.plot([place, place], [check.low, check.high], color=color, linewidth=1, zorder=2)
        face = "white" if check.digests == "same" else color
        axes.plot(place, check.score, "o", color=color, markerfacecolor=face, zorder=3)
    _draw_levels(axes, [check.score_level for check in checks])
    _mark_changes(axes, checks, [check.score_change for check in checks], signed)


def _draw_levels(axes: Axes, levels: Sequence[float]) -> None:
    """A horizontal line for each run of equal levels."""
    values: Floats = np.array(levels)
    starts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for start, end in pairwise(starts):
        ends = (start - 0.4, end - 0.6)
        axes.plot(ends, [values[start]] * 2, color="black", linewidth=1, zorder=4)


def _mark_changes(
    axes: Axes,
    checks: Sequence[PastCheck],
    changes: Sequence[float],
    words: Callable[[float], str],
) -> None:
    """A vertical line before each check with a change, and above it the change and the commit."""
    for place, (check, change) in enumerate(zip(checks, changes, strict=True)):
        if not math.isnan(change):
            axes.axvline(place - 0.5, **CHANGE)
            late = place > len(checks) / 2
            axes.annotate(
                f"{words(change)} at {check.commit or check.date}",
                (place - 0.5, 1.0),
                (3 if late else -3, 2),
                ("data", "axes fraction"),
                horizontalalignment="right" if late else "left",
                **NOTE,
            )


def _handles(checks: Sequence[PastCheck]) -> dict[str, Any]:
    """The entries of the legend by their labels."""
    from matplotlib.lines import Line2D

    marker: dict[str, Any] = {"linestyle": "", "marker": "o"}
    handles = [
        Line2D([], [], color=BLUE, **marker),
        Line2D([], [], color=BLUE, markerfacecolor="white", **marker),
        Line2D([], [], color="black", linewidth=1),
        Line2D([], [], **{key: value for key, value in CHANGE.items() if key != "zorder"}),
    ]
    verdicts = {check.verdict for check in checks}
    named = {v: Line2D([], [], color=c, **marker) for v, c in COLORS.items() if v in verdicts}
    return {**dict(zip(LABELS, handles, strict=True)), **named}
