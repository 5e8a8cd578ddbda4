"""A chart as scalable vector graphics inside a page, with the numbers that a page reads off it.

Drawn by matplotlib once and for all: it needs no script to be seen or printed. What a page does
with it goes by its classes and variables: colours are variables of the page's style sheet (light
or dark), what belongs to an algorithm is of the class ``curve`` and says whose it is in
``data-algorithm``.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from esbench.analysis.statistics import Floats
from esbench.reporting.figures.style import COLORS, Style, draw_line, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE: Final = (3.6, 2.5)  # inches: about a phone's width, where one inch of print is one of screen
SWATCH: Final = (0.42, 0.16)
# Left, bottom, width and height, with room for numbers of seven characters. All charts alike, so
# that they line up, and drawn in half the time that a layout of each one's own takes.
AXES: Final = (0.165, 0.185, 0.805, 0.785)
UNITS: Final = 72  # of the drawing, an inch
DIGITS: Final = 5  # significant, of the numbers that are read off
ROOM: Final = 0.05  # beyond the values, of a logarithmic axis
LEAST_SPAN: Final = 1.5  # of a logarithmic axis, beyond a constant
SHARE_TICKS: Final = ((0, 0.25, 0.5, 0.75, 1), ("0", "1/4", "1/2", "3/4", "1"))
# Colours nobody would choose: in the drawing they become variables of the page's style sheet. None
# is black, which matplotlib leaves out as the default of a filling.
TEXT, GRID, PAPER, MUTED = "#010203", "#040506", "#070809", "#0a0b0c"
_INKS: Final = {color: f"#0b0b{place:02x}" for place, color in enumerate(COLORS)}
_VARIABLES: Final = {TEXT: "--text", GRID: "--grid", PAPER: "--paper", MUTED: "--muted"} | {
    ink: f"--line-{place}" for place, ink in enumerate(_INKS.values())
}
_RC: Final = {
    "axes.edgecolor": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlesize": 9,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
}

_UNLIKE: Final = re.compile(r" of \d|unfinished|\N{DAGGER}")

Scale = Literal["linear", "log", "symlog"]


@final
@dataclass(frozen=True)
class Place:
    """Where an algorithm stands in the page: its number, and its look."""

    number: int
    style: Style


@final
@dataclass(frozen=True, eq=False)
class Series:
    """One algorithm's line, y over x, and its interval: [points] each, NaN where there is none.

    Attributes:
        place: whose it is.
        label: what it is made of, in words.
    """

    place: Place
    label: str
    x: Floats
    y: Floats
    low: Floats
    high: Floats


@final
@dataclass(frozen=True, eq=False)
class Chart:
    """What to draw.

    Attributes:
        title: what is on the vertical axis.
        x_label: what is on the horizontal one, with its unit.
        series: the lines.
        marks: horizontal lines, each with its name.
        upright: vertical lines.
        chance: a horizontal band, (low, high), to be told from the lines; None for none.
        scale: of the vertical axis.
        linear_below: where a "symlog" axis is linear.
        share: whether the vertical axis goes from 0 to 1.
        x_log: whether the horizontal axis is logarithmic.
        whole: whether the horizontal axis counts something.
    """

    title: str
    x_label: str
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()
    upright: Sequence[float] = ()
    chance: tuple[float, float] | None = None
    scale: Scale = "linear"
    linear_below: float = 1.0
    share: bool = False
    x_log: bool = False
    whole: bool = False


@final
@dataclass(frozen=True)
class Drawing:
    """A chart drawn.

    Attributes:
        title: of the chart.
        notes: labels of lines that are not like the others: unfinished, or of fewer environments.
        svg: to be put into a page as it is.
        data: what is read off it, for JSON: ``x``, the label of the horizontal axis; ``log``,
            whether that is logarithmic; ``bounds``, of the axes in the drawing's units, left, top,
            right and bottom; ``span``, the values of x at left and right; and ``series``, each
            with its ``algorithm``, ``label``, ``x``, ``y``, ``low`` and ``high``, [points] each
            (null where there is none), and ``at``, the heights of y in the drawing.
    """

    title: str
    notes: list[str]
    svg: str
    data: dict[str, Any]


def draw(chart: Chart, name: str) -> Drawing:
    """Return a chart drawn; equal input gives equal bytes.

    Args:
        chart: what to draw.
        name: of this drawing alone on its page, which its parts are named after.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with drawing(_RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=SIZE, dpi=UNITS)
        FigureCanvasSVG(figure)
        axes = figure.add_axes(AXES)
        _scale(axes, chart)
        _draw_lines(axes, chart)
        _draw_marks(axes, chart)
        _number(axes, chart)
        svg = _as_svg(figure, f"{chart.title}, over {chart.x_label}")
        data = _data(axes, figure.bbox.height, chart)
    labels = [series.label for series in chart.series if _UNLIKE.search(series.label)]
    return Drawing(chart.title, labels, svg, data)


def swatch(style: Style, name: str) -> str:
    """Return a short line of this look, for a legend: a symbol that a page can use by its name.

    Args:
        style: the look.
        name: of this drawing alone on its page.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with drawing(_RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=SWATCH, dpi=UNITS)
        FigureCanvasSVG(figure)
        line = Line2D([0.05, 0.5, 0.95], [0.5, 0.5, 0.5], markevery=[1], markeredgewidth=1.2)
        line.set(color=_INKS[style.color], linestyle=style.line, marker=style.marker)
        line.set_markerfacecolor(PAPER)
        figure.add_artist(line)
        svg = _as_svg(figure, "")
    inside = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    width, height = (UNITS * inches for inches in SWATCH)
    return f'<symbol id="{name}" viewBox="0 0 {width:.2f} {height:.2f}">{inside}</symbol>'


def _draw_lines(axes: Axes, chart: Chart) -> None:
    """Draw the bands and, above them, the lines, each named after its algorithm."""
    for index, series in enumerate(chart.series):
        place, known = series.place, len(axes.lines)
        style = replace(place.style, color=_INKS[place.style.color])
        name = f"algorithm-{place.number}"
        if not np.isnan(series.low).all():
            ends = (series.x, series.low, series.high)
            axes.fill_between(*ends, color=style.color, alpha=0.18, linewidth=0, gid=name)
        draw_line(axes, series.x, series.y, style, "", index, len(chart.series))
        for line in axes.lines[known:]:
            line.set_gid(name)
            line.set_markerfacecolor(PAPER)


def _scale(axes: Axes, chart: Chart) -> None:
    """Set the scales: before anything is drawn, so that the room about it is on that scale."""
    axes.margins(x=0.02)
    if chart.x_log:
        axes.set_xscale("log")
    match chart.scale:
        case "log":
            axes.set_yscale("log", nonpositive="mask")
            low, high = _range(chart)  # of a constant the last bits would fill the axis
            room = max((high / low) ** ROOM, LEAST_SPAN if high < LEAST_SPAN * low else 1.0)
            axes.set_ylim(low / room, high * room)
        case "symlog":
            axes.set_yscale("symlog", linthresh=chart.linear_below)


def _range(chart: Chart) -> tuple[float, float]:
    """Return the least and the largest value above 0 of the lines and their intervals."""
    values = np.concatenate([v for one in chart.series for v in (one.y, one.low, one.high)])
    values = values[np.isfinite(values) & (values > 0)]
    return float(values.min()), float(values.max())


def _number(axes: Axes, chart: Chart) -> None:
    """Set labels, ticks and their numbers, for what has been drawn."""
    from matplotlib.ticker import (
        EngFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        StrMethodFormatter,
        SymmetricalLogLocator,
    )

    axes.set_xlabel(chart.x_label)
    axes.grid(visible=True)
    if chart.x_log:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=chart.whole))
    thousands = axes.get_xlim()[1] >= 1000
    axes.xaxis.set_major_formatter(
        EngFormatter(sep="") if thousands else StrMethodFormatter("{x:.5g}")
    )
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.5g}"))
    if chart.share:
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks(*SHARE_TICKS)
    match chart.scale:
        case "log":
            low, high = axes.get_ylim()
            decades = LogLocator(subs=(1,) if high > 1000 * low else (1, 2, 5), numticks=8)
            axes.yaxis.set_major_locator(MaxNLocator(5) if high < 5 * low else decades)
            axes.yaxis.set_minor_formatter(NullFormatter())
        case "symlog":
            locator = SymmetricalLogLocator(axes.yaxis.get_transform())
            locator.set_params(numticks=6)
            axes.yaxis.set_major_locator(locator)


def _draw_marks(axes: Axes, chart: Chart) -> None:
    """Draw what the lines are to be seen against."""
    if chart.chance is not None:
        axes.axhspan(*chart.chance, color=MUTED, alpha=0.15, linewidth=0, zorder=1)
    for value in chart.upright:
        axes.axvline(value, color=MUTED, linestyle=":", linewidth=1.2, zorder=2)
    for value, text in chart.marks:
        axes.axhline(value, color=MUTED, linestyle=":", linewidth=1.2, zorder=2)
        axes.annotate(
            text.replace("\n", " ").replace("$", r"\$"),
            (1, value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 2),
            textcoords="offset points",
            horizontalalignment="right",
            color=MUTED,
            fontsize=7.5,
            zorder=4,
            gid="mark",
        )


def _as_svg(figure: Figure, title: str) -> str:
    """Return a figure as an element of a page, its colours variables of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S
    )
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text)
    text = re.sub(r'<g id="algorithm-(\d+)"', r'<g class="curve" data-algorithm="\1"', text)
    text = text.replace('<g id="mark"', '<g class="mark"')
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub("(?<=: )#[0-9a-f]{6}", lambda found: _variable(found[0]), text)
    text = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda found: _rounded(found[0]), text)
    label = f'role="img" aria-label="{html.escape(title)}"' if title else 'aria-hidden="true"'
    return re.sub(r"\s+", " ", text.replace("<svg", f"<svg {label}", 1))


_METADATA: Final = ("Creator", "Date", "Format", "Type")


def _variable(color: str) -> str:
    return f"var({_VARIABLES[color]})" if color in _VARIABLES else color


def _rounded(coordinates: str) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", coordinates)


def _data(axes: Axes, height: float, chart: Chart) -> dict[str, Any]:
    """Return what is read off a chart that has been drawn: see ``Drawing``."""
    box = axes.get_window_extent()
    bounds = (box.x0, height - box.y1, box.x1, height - box.y0)
    return {
        "x": chart.x_label,
        "log": chart.x_log,
        "bounds": [round(value, 1) for value in bounds],
        "span": [float(value) for value in axes.get_xlim()],
        "series": [_read_off(axes, height, series) for series in chart.series],
    }


def _read_off(axes: Axes, height: float, series: Series) -> dict[str, Any]:
    with np.errstate(all="ignore"):  # what a logarithmic axis cannot show is nowhere
        at = axes.transData.transform(np.column_stack([series.x, series.y]))[:, 1]
    return {
        "algorithm": series.place.number,
        "label": series.label,
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        "low": _numbers(series.low),
        "high": _numbers(series.high),
        "at": [round(height - value, 1) if math.isfinite(value) else None for value in at],
    }


def _numbers(values: Floats) -> list[float | None]:
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
