"""The charts of a cell's past checks: score and speed against the commit, with their changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final, Literal

import numpy as np

from esbench.core.files import distinct_names
from esbench.publish.figures.chart import Chart, Curve, charts_drawing
from esbench.publish.figures.drawing import Drawing
from esbench.publish.figures.style import BLACK, BLUE, GRAY, GREEN, ORANGE, VERMILLION, Style
from esbench.publish.history import CellHistory, PastCheck, by_processor, signed

HEIGHT: Final = 4.6  # inches, without the legend
SPEED_TITLES: Final = "Training steps per second of CPU time", "steps / s (CPU)"
COLORS: Final = {"regression": VERMILLION, "improvement": GREEN, "inconclusive": ORANGE}
LEVEL: Final = Style(BLACK, "-", "")
SPEEDS: Final = (Style(GRAY, "", "o"), Style(BLUE, "", "^"), Style(GREEN, "", "s"))


def draw_history(found: Sequence[CellHistory], out: Path) -> list[Path]:
    """Write the figure of every cell that was measured; UsageError if a file cannot be written."""
    shown = [cell for cell in found if any(check.scores.size for check in cell.checks)]
    names = distinct_names(f"history-{cell.title.replace(' on ', '-')}" for cell in shown)
    drawings = zip(map(history_drawing, shown), names.values(), strict=True)
    return [path for drawing, name in drawings for path in drawing.write(out, name)]


def history_drawing(cell: CellHistory) -> Drawing:
    """The drawing of a cell: the score of each check above, its speed below."""
    dates = f"{cell.checks[0].date} to {cell.checks[-1].date}"
    return charts_drawing(f"{cell.title}, {dates}", history_charts(cell), HEIGHT)


def history_charts(cell: CellHistory, key: str = "") -> list[Chart]:
    """The charts of scores and of speeds, if there are any, with curves of the name ``key``.

    A line shows the levels of all scores, and one the speeds on each type of processor.
    """
    groups: dict[str, list[int]] = {}
    for place, check in enumerate(cell.checks):
        if check.scores.size:
            groups.setdefault(_label(check), []).append(place)
    scores = [
        _curve(cell, key, name, Style(COLORS.get(name, BLUE), "", "o"), own, "score")
        for name, own in groups.items()
    ]
    judged = "" if cell.episode_statistic == "mean" else f" ({cell.episode_statistic})"
    titles = f"Score{judged}", f"score{judged}"
    charts = [_chart(cell, key, *titles, "score", scores, [range(len(cell.checks))])]
    if found := by_processor(cell.checks):
        speeds = [
            _curve(cell, key, name or "unknown processor", look, own, "speed")
            for look, (name, own) in zip(cycle(SPEEDS), found.items(), strict=False)
        ]
        charts.append(_chart(cell, key, *SPEED_TITLES, "speed", speeds, [*found.values()]))
    return charts


def _label(check: PastCheck) -> str:
    if check.verdict in COLORS:
        return check.verdict
    return "same digests" if check.digests == "same" else "digests changed"


def _chart(
    cell: CellHistory,
    key: str,
    title: str,
    label: str,
    name: Literal["score", "speed"],
    points: Sequence[Curve],
    series: Sequence[Sequence[int]],
) -> Chart:
    """Points, a line of the levels of each series of checks, and a mark for each change."""
    words = signed if name == "score" else "{:+.0%}".format
    ticks: dict[float, str] = {n: c.commit or c.date for n, c in enumerate(cell.checks)}
    changes = [(n, getattr(check, f"{name}_change")) for n, check in enumerate(cell.checks)]
    lines = [_curve(cell, key, "level", LEVEL, own, f"{name}_level") for own in series]
    return Chart(
        title=title,
        x_label="commit",
        y_label=label,
        curves=[*points, *lines],
        places=[
            (n - 0.5, f"{words(change)} at {ticks[n]}")
            for n, change in changes
            if not math.isnan(change)
        ],
        ticks=ticks,
        from_zero=name == "speed",
    )


def _curve(
    cell: CellHistory, key: str, label: str, style: Style, places: Sequence[int], name: str
) -> Curve:
    """The values of checks by their places, with the intervals of scores."""
    checks = [cell.checks[place] for place in places]
    y, low, high = (
        np.array([getattr(check, each) for check in checks]) for each in (name, "low", "high")
    )
    if name != "score":
        low, high = np.full((2, len(checks)), math.nan)
    return Curve(
        *(key, label, style, np.array(places, dtype=np.float64), y, low, high),
        is_open=[check.digests == "same" for check in checks],
        notes=[f"{each.date}, {each.verdict}\ndigests: {each.digests}" for each in checks],
    )
