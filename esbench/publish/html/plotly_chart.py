"""One chart as a Plotly figure.

A figure is plain JSON: ``data`` and ``layout`` of Plotly's schema. A color is the name of a
variable of the page's style sheet, which the page replaces by the color for light or dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.escape import plotly
from esbench.core.json_text import Json
from esbench.core.units import format_number
from esbench.publish.figures.chart import MARKERS, SHARES, Chart, Curve, fitting
from esbench.publish.figures.style import COLORS, WINE, Style

DIGITS: Final = 5  # significant digits of the numbers in the page
DASHES: Final = {"": "solid", "-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS: Final = {
    "o": "circle", "X": "x", "s": "square", "^": "triangle-up", "v": "triangle-down",
    "D": "diamond", "d": "diamond-tall", "P": "cross", "<": "triangle-left",
    ">": "triangle-right", "8": "octagon", "p": "pentagon", "*": "star", "H": "hexagon2",
}  # fmt: skip
DOTTED: Final = {"type": "line", "line": {"color": "var(--muted)", "dash": "dot", "width": 1.2}}
ACROSS: Final = {"xref": "paper", "x0": 0, "x1": 1}
UPRIGHT: Final = {"yref": "paper", "y0": 0, "y1": 1}
SHADED: Final = {
    "type": "rect", "layer": "below", "fillcolor": "var(--muted)", "opacity": 0.15,
    "line": {"width": 0},
}  # fmt: skip
MUTED: Final = {"color": "var(--muted)", "size": 11}
NOTE: Final = {"font": MUTED, "showarrow": False, "yanchor": "bottom"}
BESIDE: Final = {**NOTE, "x": 1, "xref": "paper", "xanchor": "left", "align": "left", "xshift": 3}
CLOSE: Final = 0.12  # names nearer than this share of the axis would overlap
LETTER: Final = 6.5  # width [px]
ABOVE: Final = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
HIGHER: Final = 1.14  # above the names of places
_PARTIAL: Final = re.compile(r" of \d|unfinished|\N{DAGGER}")


def make_chart(chart: Chart) -> Json:
    """Make a chart, whose title names the vertical axis.

    With ``ticks``, it has a legend of its own.

    Returns:
        ``title``, ``figure`` (``data`` and ``layout`` for Plotly) and ``notes``, the labels of
        curves with fewer runs or environments than the others.
    """
    shapes, names = _levels(chart)
    if chart.chance:
        low, high = chart.chance
        shapes.insert(0, {**ACROSS, **SHADED, "y0": low, "y1": high})
    for x, name in chart.places:
        shapes.append({**UPRIGHT, **DOTTED, "x0": x, "x1": x})
        names.append({**NOTE, "x": x, "y": 1, "yref": "paper", "text": plotly(name)})
    layout: Json = {"xaxis": _x_axis(chart), "yaxis": _y_axis(chart)}
    layout |= {"shapes": shapes, "annotations": names}
    if beside := [
        part for note in names if "xshift" in note for part in note["text"].split("<br>")
    ]:
        layout["margin"] = {"b": 40, "l": 40, "r": 12 + LETTER * max(map(len, beside)), "t": 16}
    if chart.ticks is not None:
        above = {**ABOVE, "y": HIGHER} if chart.places else ABOVE
        layout |= {"showlegend": True, "legend": above}
    data = [trace for curve in chart.curves for trace in _traces(curve, chart)]
    for before, trace in pairwise(data if chart.is_history else ()):
        trace["showlegend"] = trace["name"] != before["name"]
    notes = [curve.label for curve in chart.curves if _PARTIAL.search(curve.label)]
    return {"title": chart.title, "notes": notes, "figure": {"data": data, "layout": layout}}


def swatch(style: Style) -> Json:
    """A marker's SVG path, within -1 to 1 with y pointing down, its color and its dashes."""
    from matplotlib.markers import MarkerStyle

    marker = MarkerStyle(style.marker)
    path: Any = marker.get_path().transformed(marker.get_transform())
    size = np.abs(path.vertices).max()
    outlines = [
        "M" + "L".join(f"{x / size:.2f} {-y / size:.2f}" for x, y in polygon) + "Z"
        for polygon in path.to_polygons()
    ]
    return {"path": "".join(outlines), "color": _color(style), "dash": DASHES[style.line]}


def _placed(values: Floats, chart: Chart) -> Floats:
    """The coordinates of values on the vertical axis: distances from 0 if it is below 0."""
    nearest = chart.nearest_zero
    return values if nearest is None else np.maximum(-values, -nearest)


def _levels(chart: Chart) -> tuple[list[Json], list[Json]]:
    """Dotted lines at the levels, and their names, in the margin or where the axis ends."""
    is_log = chart.log_y or chart.nearest_zero is not None
    values = np.array([value for value, _ in chart.levels])
    with np.errstate(divide="ignore", invalid="ignore"):
        heights, drawn = (
            np.log10(_placed(each, chart)) if is_log else each for each in (values, chart.values)
        )
    inside, highest = fitting(heights.tolist(), drawn), np.nanmax(chart.values, initial=-np.inf)
    lines, names = [], []
    shown = np.concatenate([inside, drawn])
    shown = shown[np.isfinite(shown)]
    spread = np.ptp(shown) if shown.size else 0.0
    for (value, name), height in zip(chart.levels, heights.tolist(), strict=True):
        text = "<br>".join(map(plotly, name.split("\n")))
        if height in inside or chart.is_share:  # the name stands beside the line
            y = 10**height if is_log else height
            lines.append({**ACROSS, **DOTTED, "y0": y, "y1": y})
            close = [other for other in inside if 0 < abs(other - height) < CLOSE * spread]
            anchor = "middle" if not close else "top" if height < close[0] else "bottom"
            note: Json = {**BESIDE, "y": height, "yanchor": anchor, "text": text}
        else:
            note = {**NOTE, "x": 0, "xref": "paper", "xanchor": "left", "yref": "paper"}
            note |= {"y": float(value > highest)}
            note["text"] = f"{plotly(name)}: {format_number(value)}, beyond the axis"
        if name:
            names.append(note)
    return lines, names


def _x_axis(chart: Chart) -> Json:
    axis: Json = {"title": {"text": plotly(chart.x_label)}}
    if chart.log_x:
        axis["type"] = "log"
    if chart.x_range is not None:
        axis["range"] = list(np.log10(chart.x_range) if chart.log_x else chart.x_range)
    if chart.ticks is not None:
        axis.setdefault("type", "linear")
        shown = chart.shown_ticks
        axis |= {"tickvals": [*shown], "ticktext": [*map(plotly, shown.values())]}
    elif chart.log_x:
        axis |= {"tickformat": "~s"} | _log_ticks([curve.x for curve in chart.curves])
    return axis


def _y_axis(chart: Chart) -> Json:
    if chart.is_share:
        return {"range": [-0.03, 1.03], "tickvals": SHARES[0], "ticktext": SHARES[1]}
    if chart.nearest_zero is not None:
        return {"type": "log", "autorange": "reversed", "tickprefix": "\N{MINUS SIGN}"}
    if chart.log_y:
        return {"type": "log", **_log_ticks([curve.y for curve in chart.curves])}
    if chart.is_history:
        return {"type": "linear", "exponentformat": "SI", "minexponent": 3}
    return {"type": "linear"}


def _traces(curve: Curve, chart: Chart) -> list[Json]:
    """The band of a curve, if it has one, above it the line itself, and the final score."""
    color, dash = _color(curve.style), DASHES[curve.style.line]
    read = [
        f"{value} [{least}, {most}]" if least is not None else str(value)
        for value, least, most in zip(*map(_numbers, (curve.y, curve.low, curve.high)), strict=True)
    ]
    if curve.notes:
        read = [
            "<br>".join([n, *map(plotly, note.split("\n"))])
            for n, note in zip(read, curve.notes, strict=True)
        ]
    label = plotly(curve.label)
    head = f"<b>{label}</b><br>{plotly(chart.x_label)}"
    at = "%{x:,.4~r}" if chart.ticks is None else "%{customdata}"
    line: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "meta": curve.name,
        "name": label,
        "x": _numbers(curve.x),
        "y": _numbers(_placed(curve.y, chart)),
        "text": read,
        "hovertemplate": f"{head}: {at}<br>%{{text}}<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 1.6},
        "marker": {
            "symbol": SYMBOLS.get(curve.style.marker),
            "color": "var(--raised)",
            "size": 7,
            "line": {"color": color, "width": 1.4},
            "maxdisplayed": MARKERS,
        },
    }
    if chart.ticks is None:
        return [*_band(curve, chart), line, *_end(curve, chart)]
    y, *ends = (_placed(values, chart) for values in (curve.y, curve.low, curve.high))
    above, below = np.maximum(*ends) - y, y - np.minimum(*ends)
    bars = {"type": "data", "symmetric": False}
    bars |= {"array": _numbers(above), "arrayminus": _numbers(below)}
    line["customdata"] = [plotly(chart.ticks[x]) for x in curve.x]
    line["error_y"] = bars | {"thickness": 1, "width": 3}
    if not curve.style.marker:
        line |= {"mode": "lines", "hoverinfo": "skip"}
        line["line"]["shape"] = "hvh"
        del line["hovertemplate"], line["error_y"]
    elif not curve.style.line:
        line["mode"] = "markers"
        del line["marker"]["maxdisplayed"]
        line["marker"]["color"] = ["var(--raised)" if each else color for each in curve.is_open]
        line["error_y"]["color"] = color
    return [line]


def _band(curve: Curve, chart: Chart) -> list[Json]:
    """The filled interval, with one closed outline for each stretch without a gap."""
    known = np.flatnonzero(np.isfinite(curve.low) & np.isfinite(curve.high))
    if not known.size:
        return []
    low, high = _placed(curve.low, chart), _placed(curve.high, chart)
    x: list[float | None] = []
    y: list[float | None] = []
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        x += [*_numbers(np.concatenate([curve.x[part], curve.x[part[::-1]]])), None]
        y += [*_numbers(np.concatenate([high[part], low[part[::-1]]])), None]
    filled = {"fill": "toself", "fillcolor": _color(curve.style), "opacity": 0.18}
    kind = {"type": "scatter", "mode": "none", "meta": curve.name}
    return [{**kind, "x": x, "y": y, **filled, "hoverinfo": "skip"}]


def _end(curve: Curve, chart: Chart) -> list[Json]:
    """The filled marker of the final score."""
    if curve.end is None:
        return []
    x, score = curve.end
    y = _numbers(_placed(np.array([score]), chart))
    look = {"symbol": SYMBOLS[curve.style.marker], "color": _color(curve.style), "size": 8}
    text = f"<b>{plotly(curve.label)}</b><br>score: {format_number(score)}<extra></extra>"
    kind = {"type": "scatter", "mode": "markers", "meta": curve.name}
    return [{**kind, "x": [x], "y": y, "marker": look, "hovertemplate": text}]


def _color(style: Style) -> str:
    return f"var(--line-{(*COLORS, WINE).index(style.color)})"


def _log_ticks(lines: Sequence[Floats]) -> Json:
    """Ticks at 1, 2 and 5 of each decade where Plotly's own would be too close or too few."""
    values = np.concatenate(lines)
    values = values[np.isfinite(values) & (values > 0)]
    decades = np.log10(values.max() / values.min())
    return {"dtick": "D2"} if 0.5 < decades < 3 else {}


def _numbers(values: Floats) -> list[float | None]:
    """Numbers of ``DIGITS`` significant digits for JSON; null where one is not finite."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
