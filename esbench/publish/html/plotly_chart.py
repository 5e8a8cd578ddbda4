"""One chart as a Plotly figure.

A figure is plain JSON: ``data`` and ``layout`` of Plotly's schema. A color is the name of a
variable of the page's style sheet, which the page replaces by the color for light or dark.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.json_text import Json
from esbench.core.units import format_number
from esbench.publish.figures.drawing import MARKERS, Curve, fitting
from esbench.publish.figures.style import COLORS, WINE, Style

DIGITS: Final = 5  # significant digits of the numbers in the page
SHARE_AXIS: Final = {
    "range": [-0.03, 1.03],
    "tickvals": [0, 0.25, 0.5, 0.75, 1],
    "ticktext": ["0", "1/4", "1/2", "3/4", "1"],
}
DASHES: Final = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS: Final = {
    "o": "circle", "X": "x", "s": "square", "^": "triangle-up", "v": "triangle-down",
    "D": "diamond", "d": "diamond-tall", "P": "cross", "<": "triangle-left",
    ">": "triangle-right", "8": "octagon", "p": "pentagon", "*": "star", "H": "hexagon2",
}  # fmt: skip
DOTTED: Final = {"color": "var(--muted)", "dash": "dot", "width": 1.2}
ACROSS: Final = {"xref": "paper", "x0": 0, "x1": 1}
UPRIGHT: Final = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": DOTTED}
SHADED: Final = {
    "type": "rect",
    "layer": "below",
    "fillcolor": "var(--muted)",
    "opacity": 0.15,
    "line": {"width": 0},
}
LEFT: Final = {"x": 0, "xanchor": "left", "xref": "paper", "yanchor": "bottom"}
ABOVE: Final = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
RIGHT: Final = LEFT | {"x": 1, "xanchor": "right"}
_PARTIAL: Final = re.compile(r" of \d|unfinished|\N{DAGGER}")


@final
@dataclass(frozen=True)
class _VerticalScale:
    """Where a value stands on the vertical axis; ``nearest_zero`` as in ``make_chart``."""

    log: bool
    nearest_zero: float | None

    @property
    def is_linear(self) -> bool:
        return self.nearest_zero is None and not self.log

    def place(self, values: Floats) -> Floats:
        """The coordinates that a trace has."""
        nearest = self.nearest_zero
        return values if nearest is None else np.maximum(-values, -nearest)

    def height(self, values: Floats) -> Floats:
        """The coordinates that an annotation has, logarithms on a logarithmic axis."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.place(values) if self.is_linear else np.log10(self.place(values))


@final
@dataclass(frozen=True)
class _Level:
    """A value of y to mark: its height, and whether the axis reaches it or the curves do."""

    value: float
    name: str
    height: float
    is_inside: bool
    is_above: bool


def make_chart(
    title: str,
    x_label: str,
    curves: Sequence[Curve],
    *,
    horizontal: Sequence[tuple[float, str]] = (),
    vertical: Sequence[float] = (),
    chance: tuple[float, float] | None = None,
    share: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    nearest_zero: float | None = None,
    end: float | None = None,
    ticks: Mapping[float, str] | None = None,
) -> Json:
    """Make a chart; its title names the vertical axis.

    ``horizontal`` and ``vertical`` are values of y, with their names, and of x to mark; ``chance``
    is a band of y to shade. With ``share`` the vertical axis runs from 0 to 1. With
    ``nearest_zero`` it is logarithmic below 0, and values above this one are drawn at it. The
    horizontal axis ends at ``end``. With ``ticks``, the names of the values of x, intervals are
    bars and the chart has a legend of its own.

    Returns:
        ``title``, ``figure`` (``data`` and ``layout`` for Plotly) and ``notes``, the labels of
        curves with fewer runs or environments than the others.
    """
    scale = _VerticalScale(log_y, nearest_zero)
    levels = _levels(horizontal, curves, scale)
    layout: Json = {
        "xaxis": _x_axis(x_label, curves, log_x, end, ticks),
        "yaxis": _y_axis(curves, scale, share),
        "shapes": [
            *([{**ACROSS, **SHADED, "y0": chance[0], "y1": chance[1]}] if chance else []),
            *({**UPRIGHT, "x0": x, "x1": x} for x in vertical),
            *(_line(level, scale) for level in levels if level.is_inside),
        ],
        # A curve starts near the lowest mark: the names of the others stand on the left.
        "annotations": [
            _name(level, RIGHT if level.value == min(horizontal)[0] else LEFT) for level in levels
        ],
        **({} if ticks is None else {"showlegend": True, "legend": ABOVE}),
    }
    data = [trace for curve in curves for trace in _traces(curve, x_label, scale, ticks)]
    notes = [curve.label for curve in curves if _PARTIAL.search(curve.label)]
    return {"title": title, "notes": notes, "figure": {"data": data, "layout": layout}}


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


def _levels(
    marked: Sequence[tuple[float, str]], curves: Sequence[Curve], scale: _VerticalScale
) -> list[_Level]:
    heights = scale.height(np.array([value for value, _ in marked])).tolist()
    drawn = np.concatenate([part for curve in curves for part in (curve.y, curve.low, curve.high)])
    inside, highest = fitting(heights, scale.height(drawn)), np.nanmax(drawn, initial=-np.inf)
    return [
        _Level(value, name, height, height in inside, bool(value > highest))
        for (value, name), height in zip(marked, heights, strict=True)
    ]


def _x_axis(
    label: str,
    curves: Sequence[Curve],
    log: bool,
    end: float | None,
    ticks: Mapping[float, str] | None,
) -> Json:
    axis: Json = {"title": {"text": label}}
    if end is not None:
        axis["range"] = [-0.02 * end, 1.02 * end]
    if ticks is not None:
        axis |= {"type": "log" if log else "linear"}
        axis |= {"tickvals": list(ticks), "ticktext": list(map(html.escape, ticks.values()))}
    elif log:
        axis |= {"type": "log", "tickformat": "~s"} | _log_ticks([curve.x for curve in curves])
    return axis


def _y_axis(curves: Sequence[Curve], scale: _VerticalScale, share: bool) -> Json:
    axis: Json = {"type": "linear" if scale.is_linear else "log"}
    if scale.nearest_zero is not None:
        axis |= {"autorange": "reversed", "tickprefix": "\N{MINUS SIGN}"}
    if share:
        axis |= SHARE_AXIS
    elif scale.log:
        axis |= _log_ticks([curve.y for curve in curves])
    return axis


def _line(level: _Level, scale: _VerticalScale) -> Json:
    """A dotted line at a level."""
    y = level.height if scale.is_linear else 10**level.height
    return {**ACROSS, "type": "line", "y0": y, "y1": y, "line": DOTTED}


def _name(level: _Level, side: Json) -> Json:
    """The name of a level at its line, or at the end of the axis if it lies beyond."""
    end: Json = {"yref": "paper", "y": float(level.is_above)}
    beyond = "" if level.is_inside else f": {format_number(level.value)}, beyond the axis"
    return {
        **side,
        **({"y": level.height} if level.is_inside else end),
        "text": html.escape(" ".join(level.name.split())) + beyond,
        "font": {"color": "var(--muted)", "size": 11},
        "showarrow": False,
    }


def _traces(
    curve: Curve, x_label: str, scale: _VerticalScale, ticks: Mapping[float, str] | None
) -> list[Json]:
    """The band of a curve, if it has one, and above it the line itself."""
    color, dash = _color(curve.style), DASHES[curve.style.line]
    read = [
        f"{value} [{least}, {most}]" if least is not None else str(value)
        for value, least, most in zip(*map(_numbers, (curve.y, curve.low, curve.high)), strict=True)
    ]
    label = html.escape(curve.label)
    head = f"<b>{label}</b><br>{html.escape(x_label)}"
    at = "%{x:,.4~r}" if ticks is None else "%{customdata}"
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "meta": curve.name,
        "name": label,
        "x": _numbers(curve.x),
        "y": _numbers(scale.place(curve.y)),
        "text": read,
        "hovertemplate": f"{head}: {at}<br>%{{text}}<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 1.6},
        "marker": {
            "symbol": SYMBOLS[curve.style.marker],
            "color": "var(--raised)",
            "size": 7,
            "line": {"color": color, "width": 1.4},
            "maxdisplayed": MARKERS,
        },
    }
    if ticks is not None:
        return [line | _bars(curve, ticks)]
    return [*_band(curve, scale), line]


def _bars(curve: Curve, ticks: Mapping[float, str]) -> Json:
    """The interval at each named value of x."""
    above, below = _numbers(curve.high - curve.y), _numbers(curve.y - curve.low)
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    names = [html.escape(ticks[x]) for x in curve.x]
    return {"customdata": names, "error_y": bars | {"thickness": 1, "width": 3}}


def _band(curve: Curve, scale: _VerticalScale) -> list[Json]:
    """The filled interval, with one closed outline for each stretch without a gap."""
    known = np.flatnonzero(np.isfinite(curve.low) & np.isfinite(curve.high))
    if not known.size:
        return []
    low, high = _numbers(scale.place(curve.low)), _numbers(scale.place(curve.high))
    x: list[float | None] = []
    y: list[float | None] = []
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        back = part[::-1]
        x += [*_numbers(curve.x[part]), *_numbers(curve.x[back]), None]
        y += [*(high[n] for n in part), *(low[n] for n in back), None]
    band = {
        "type": "scatter",
        "mode": "none",
        "meta": curve.name,
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": _color(curve.style),
        "opacity": 0.18,
        "hoverinfo": "skip",
    }
    return [band]


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
