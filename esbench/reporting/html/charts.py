"""The charts of the report as Plotly figures.

A figure is plain JSON: ``data`` and ``layout`` of Plotly's schema. A colour is the name of a
variable of the page's style sheet, which the page replaces by the colour for light or dark.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.analysis.curves import GENERATION_POINTS, Band, generation_curve
from esbench.analysis.efficiency import TARGETS
from esbench.analysis.generations import uniform_curve_band
from esbench.analysis.health import RunMeasurements
from esbench.analysis.statistics import Floats
from esbench.files import Json
from esbench.grids.environment_files import environment_kind
from esbench.reporting.diagnosis import run_measurements
from esbench.reporting.figures import performance_profile, target_ecdf
from esbench.reporting.figures.across import AcrossCurve
from esbench.reporting.figures.learning_curves import (
    MIN_GENERATIONS,
    LearningCurve,
    curves,
    marks,
    return_label,
    shared_scores,
    smallest_decade,
    time_unit,
)
from esbench.reporting.figures.style import COLORS, MARKERS, Style
from esbench.store.cells import Cell
from esbench.units import counted

POINTS: Final = 100  # of a line across environments
DIGITS: Final = 5  # significant digits of the numbers in the page
SHARE_AXIS: Final = {
    "range": [-0.03, 1.03],
    "tickvals": [0, 0.25, 0.5, 0.75, 1],
    "ticktext": ["0", "1/4", "1/2", "3/4", "1"],
}
DASHES: Final = {"-": "solid", "--": "dash", "-.": "dashdot"}
SYMBOLS: Final = {
    "o": "circle", "X": "x", "s": "square", "^": "triangle-up", "v": "triangle-down",
    "D": "diamond", "d": "diamond-tall", "P": "cross", "<": "triangle-left",
    ">": "triangle-right", "8": "octagon", "p": "pentagon", "*": "star", "h": "hexagon",
    "H": "hexagon2",
}  # fmt: skip
DOTTED: Final = {"color": "var(--muted)", "dash": "dot", "width": 1.2}
_PARTIAL: Final = re.compile(r" of \d|unfinished|\N{DAGGER}")

AxisScale: TypeAlias = Literal["linear", "log", "log below 0"]


@final
@dataclass(frozen=True)
class ChartKey:
    """The number of an algorithm in the page and the look of its lines."""

    number: int
    style: Style


@final
@dataclass(frozen=True, eq=False)
class ChartLine:
    """One algorithm's line: [points] each, NaN for a gap or where there is no interval."""

    key: ChartKey
    label: str
    x: Floats
    y: Floats
    low: Floats
    high: Floats


@final
@dataclass(frozen=True)
class ReportChart:
    """A chart of the page.

    Attributes:
        title: names the vertical axis.
        notes: labels of lines with fewer runs or environments than the others.
        figure: ``data`` and ``layout`` for Plotly.
    """

    title: str
    notes: list[str]
    figure: Json


@final
@dataclass(frozen=True)
class HealthMeasure:
    """A measurement of a run's health, and the scale of its axis."""

    title: str
    values: Callable[[RunMeasurements], Floats]
    scale: AxisScale = "linear"
    share: bool = False


HEALTH_MEASURES: Final = (
    HealthMeasure(
        "Length of the updates above 0 (radii of the population)",
        lambda run: np.where(run.update_norm > 0, run.update_norm, np.nan) / run.radius,
        "log",
    ),
    HealthMeasure("Cosine of the updates of two halves", lambda run: run.split_half_cosine),
    HealthMeasure("Cosine of successive updates", lambda run: run.update_cosine),
    HealthMeasure("Share of tied returns", lambda run: run.tied_returns, share=True),
    HealthMeasure("Deviation of the population (sigma)", lambda run: run.sigma, "log"),
    HealthMeasure("Distance from the start", lambda run: run.distance),
    HealthMeasure("Drift of observation statistics", lambda run: run.observation_drift, "log"),
)


def make_chart(
    title: str,
    x_label: str,
    lines: Sequence[ChartLine],
    *,
    horizontal: Sequence[tuple[float, str]] = (),
    vertical: Sequence[float] = (),
    chance: tuple[float, float] | None = None,
    scale: AxisScale = "linear",
    nearest_zero: float = -1.0,
    share: bool = False,
    log_x: bool = False,
) -> ReportChart:
    """Make a chart.

    Args:
        title: names the vertical axis.
        x_label: names the horizontal axis.
        lines: the curves.
        horizontal: values of y to mark, each with its name.
        vertical: values of x to mark.
        chance: a band of y to shade.
        scale: of the vertical axis.
        nearest_zero: on the scale "log below 0", values above it are drawn at it.
        share: whether the vertical axis runs from 0 to 1.
        log_x: whether the horizontal axis is logarithmic.
    """
    below = scale == "log below 0"

    def place(values: Floats) -> Floats:
        return np.maximum(-values, -nearest_zero) if below else values

    data = [trace for line in lines for trace in _traces(line, x_label, place)]
    across = {"xref": "paper", "x0": 0, "x1": 1}
    shapes: list[Json] = []
    if chance is not None:
        ends = {"type": "rect", "y0": chance[0], "y1": chance[1], "layer": "below"}
        shaded = {"fillcolor": "var(--muted)", "opacity": 0.15, "line": {"width": 0}}
        shapes.append(across | ends | shaded)
    for x in vertical:
        ends = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
        shapes.append(ends | {"line": DOTTED})
    annotations = []
    lowest = min((value for value, _ in horizontal), default=0.0)
    for value, text in horizontal:
        y = float(place(np.array(value)))
        shapes.append(across | {"type": "line", "y0": y, "y1": y, "line": DOTTED})
        # A curve starts near the lowest mark: the names of the others stand on the left.
        side = {"x": 1, "xanchor": "right"} if value == lowest else {"x": 0, "xanchor": "left"}
        where = side | {"xref": "paper", "yanchor": "bottom"}
        height = y if scale == "linear" else math.log10(y)
        name = html.escape(" ".join(text.split()))
        font = {"color": "var(--muted)", "size": 11}
        annotations.append(where | {"y": height, "text": name, "showarrow": False, "font": font})
    vertical_axis: Json = {"type": "linear" if scale == "linear" else "log"}
    if below:
        vertical_axis |= {"autorange": "reversed", "tickprefix": "\N{MINUS SIGN}"}
    if share:
        vertical_axis |= SHARE_AXIS
    elif scale == "log":
        vertical_axis |= _log_ticks([line.y for line in lines])
    horizontal_axis: Json = {"title": {"text": x_label}}
    if log_x:
        ticks = _log_ticks([line.x for line in lines])
        horizontal_axis |= {"type": "log", "tickformat": "~s"} | ticks
    layout = {
        "xaxis": horizontal_axis,
        "yaxis": vertical_axis,
        "shapes": shapes,
        "annotations": annotations,
    }
    notes = [line.label for line in lines if _PARTIAL.search(line.label)]
    return ReportChart(title, notes, {"data": data, "layout": layout})


def charts_across(found: Sequence[Cell], keys: Mapping[str, ChartKey]) -> list[ReportChart]:
    """Make the charts over all environments with frozen scores.

    Args:
        found: all cells.
        keys: by the name of a cell.

    Raises:
        UsageError: a trial is not readable.
    """
    charts = []
    runs = target_ecdf.scored_runs(found)
    if len({cell.environment for cell, _ in runs}) > 1:
        title = f"Share of {TARGETS} targets per environment reached within a budget"
        lines = [_thinned(curve, keys) for curve in target_ecdf.ecdf_curves(runs)]
        charts.append(make_chart(title, "environment steps", lines, share=True, log_x=True))
    if scored := performance_profile.final_scores(found):
        title = "Share of runs above a score (0: random policy, 1: reference)"
        lines = [_thinned(curve, keys) for curve in performance_profile.profile_curves(scored)]
        charts.append(make_chart(title, "normalized score", lines, vertical=(0.0, 1.0), share=True))
    return charts


def environment_charts(
    group: Sequence[Cell], keys: Mapping[str, ChartKey]
) -> tuple[list[ReportChart], list[ReportChart]]:
    """Make the charts of one environment: of learning, and of the health of the runs.

    Args:
        group: the cells of the environment.
        keys: by the name of a cell.

    Returns:
        Two empty lists if no trial has two generations.

    Raises:
        UsageError: a trial is not readable.
    """
    lines = curves(group, [keys[cell.name].style for cell in group])
    if not lines:
        return [], []
    runs = {cell.name: _drawn_runs(cell) for cell in group}
    learning = [*_return_charts(lines, group, keys), *_rank_chart(lines, runs, keys)]
    return learning, _health_charts(runs, keys)


def swatch(style: Style) -> Json:
    """The path of a style's marker and its dashes, for a legend drawn as SVG.

    The path lies within -1 to 1 in both directions, y pointing down.
    """
    from matplotlib.markers import MarkerStyle

    marker = MarkerStyle(style.marker)
    path: Any = marker.get_path().transformed(marker.get_transform())
    size = np.abs(path.vertices).max()
    outlines = [
        "M" + "L".join(f"{x / size:.2f} {-y / size:.2f}" for x, y in polygon) + "Z"
        for polygon in path.to_polygons()
    ]
    return {"path": "".join(outlines), "color": _color(style), "dash": DASHES[style.line]}


def _traces(line: ChartLine, x_label: str, place: Callable[[Floats], Floats]) -> list[Json]:
    """Make the traces of a line: its band, if it has one, and above it the line itself."""
    color, number = _color(line.key.style), line.key.number
    x, y, low, high = map(_numbers, (line.x, line.y, line.low, line.high))
    read = [
        f"{value} [{least}, {most}]" if least is not None else str(value)
        for value, least, most in zip(y, low, high, strict=True)
    ]
    label = html.escape(line.label)
    head = f"<b>{label}</b><br>{html.escape(x_label)}"
    return [
        *_bands(line, color, place),
        {
            "type": "scatter",
            "mode": "lines+markers",
            "meta": number,
            "name": label,
            "x": x,
            "y": _numbers(place(line.y)),
            "text": read,
            "hovertemplate": f"{head}: %{{x:,.4~r}}<br>%{{text}}<extra></extra>",
            "line": {"color": color, "dash": DASHES[line.key.style.line], "width": 1.6},
            "marker": {
                "symbol": SYMBOLS[line.key.style.marker],
                "color": "var(--raised)",
                "size": 7,
                "line": {"color": color, "width": 1.4},
                "maxdisplayed": MARKERS,
            },
        },
    ]


def _bands(line: ChartLine, color: str, place: Callable[[Floats], Floats]) -> list[Json]:
    """Make the filled interval of a line: one closed outline for each stretch without a gap."""
    known = np.flatnonzero(np.isfinite(line.low) & np.isfinite(line.high))
    if not known.size:
        return []
    x: list[float | None] = []
    y: list[float | None] = []
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        x += [*_numbers(line.x[part]), *_numbers(line.x[part][::-1]), None]
        y += [*_numbers(place(line.high[part])), *_numbers(place(line.low[part])[::-1]), None]
    return [
        {
            "type": "scatter",
            "mode": "none",
            "meta": line.key.number,
            "x": x,
            "y": y,
            "fill": "toself",
            "fillcolor": color,
            "opacity": 0.18,
            "hoverinfo": "skip",
        }
    ]


def _return_charts(
    lines: Sequence[LearningCurve], group: Sequence[Cell], keys: Mapping[str, ChartKey]
) -> list[ReportChart]:
    """Make the charts of the return against steps and against time."""
    scores = shared_scores(group)
    function = environment_kind(group[0].environment) == "function"
    unit, seconds = time_unit(lines)
    title = " ".join(return_label(lines).split()).capitalize()
    nearest_zero = -(10.0 ** smallest_decade(lines, scores)) if function else -1.0
    if function:
        title += f" (log scale; values above {nearest_zero:g} are drawn at it)"
    axes = {
        "environment steps": [line.over_steps for line in lines],
        f"wall-clock time ({unit})": [_in_unit(line.over_time, seconds) for line in lines],
    }
    return [
        make_chart(
            title,
            x_label,
            [_line(keys[c.name], c.label, b) for c, b in zip(lines, bands, strict=True)],
            horizontal=marks(scores),
            scale="log below 0" if function else "linear",
            nearest_zero=nearest_zero,
        )
        for x_label, bands in axes.items()
    ]


def _rank_chart(
    lines: Sequence[LearningCurve],
    runs: Mapping[str, Sequence[RunMeasurements]],
    keys: Mapping[str, ChartKey],
) -> list[ReportChart]:
    """Make the chart of the rank, with the band where a rank without information would lie."""
    ranked = [(line, line.rank) for line in lines if line.rank is not None]
    if not ranked:
        return []
    bands = [_chance(runs[line.name]) for line, _ in ranked]
    return [
        make_chart(
            "Rank of the unperturbed policy (share of members beating it)",
            "generation",
            [_line(keys[line.name], line.label, rank) for line, rank in ranked],
            chance=(min(low for low, _ in bands), max(high for _, high in bands)),
            share=True,
        )
    ]


def _chance(runs: Sequence[RunMeasurements]) -> tuple[float, float]:
    """The 95 % band of a point of the rank curve if the ranks carry no information."""
    members = int(min(run.population_size.min() for run in runs))
    generations = max(1, min(run.generations for run in runs) // GENERATION_POINTS)
    return uniform_curve_band(members, len(runs), generations)


def _health_charts(
    runs: Mapping[str, Sequence[RunMeasurements]], keys: Mapping[str, ChartKey]
) -> list[ReportChart]:
    """Make a chart of each measurement that has a line to draw."""
    charts = []
    for measure in HEALTH_MEASURES:
        lines = []
        for name, members in runs.items():
            if not members:
                continue
            band = generation_curve([measure.values(run) for run in members], gaps=True)
            visible = np.isfinite(band.iqm) & ((band.iqm > 0) | (measure.scale != "log"))
            if visible.sum() > 1:
                label = f"{name} ({counted(len(members), 'seed')})"
                lines.append(_line(keys[name], label, band))
        if lines:
            scale, share = measure.scale, measure.share
            charts.append(make_chart(measure.title, "generation", lines, scale=scale, share=share))
    return charts


def _drawn_runs(cell: Cell) -> list[RunMeasurements]:
    """The runs behind a cell's curves: those that are done or, without any, all."""
    runs = {trial: run_measurements(trial) for trial in cell.trials}
    long = {trial: run for trial, run in runs.items() if run.generations >= MIN_GENERATIONS}
    return [run for trial, run in long.items() if trial.is_done] or list(long.values())


def _in_unit(band: Band, seconds: float) -> Band:
    return Band(band.x / seconds, band.iqm, band.low, band.high, band.runs)


def _line(key: ChartKey, label: str, band: Band) -> ChartLine:
    return ChartLine(key, label, band.x, band.iqm, band.low, band.high)


def _thinned(curve: AcrossCurve, keys: Mapping[str, ChartKey]) -> ChartLine:
    """A curve across environments with fewer points, its ends among them."""
    kept = np.unique(np.linspace(0, len(curve.x) - 1, POINTS).round().astype(np.int64))
    values = (curve.x, curve.share, curve.low, curve.high)
    return ChartLine(keys[curve.name], curve.label, *(array[kept] for array in values))


def _color(style: Style) -> str:
    return f"var(--line-{COLORS.index(style.color)})"


def _log_ticks(lines: Sequence[Floats]) -> Json:
    """Ticks at 1, 2 and 5 of each decade where Plotly's own would be too close or too few."""
    values = np.concatenate(lines)
    values = values[np.isfinite(values) & (values > 0)]
    decades = np.log10(values.max() / values.min())
    return {"dtick": "D2"} if 0.5 < decades < 3 else {}


def _numbers(values: Floats) -> list[float | None]:
    """Numbers of ``DIGITS`` significant digits for JSON; null where one is not finite."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
