"""Charts: what they show, and how matplotlib draws one alone or several beside each other."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.units import counted, format_number, power_of_ten
from esbench.publish.figures.drawing import Drawing, Size, is_stacked, legend_lines
from esbench.publish.figures.style import MARK, NOTE, Style
from esbench.results.statistics.curves import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

MARKERS: Final = 5  # on a line
FILLED: Final = 0.5  # least share of an axis that the data take
SHARES: Final = ((0, 0.25, 0.5, 0.75, 1), ("none", "1/4", "half", "3/4", "all"))
MOST_NAMES: Final = 3  # environments in a heading; more are counted
NOT_EVALUATED: Final = "unperturbed policy not evaluated"
HEIGHT: Final = 2.95  # inches, without the legend
ALONE: Final = 3.4  # that of a chart alone
OPACITY: Final = 0.18  # of a band; those of many curves are lighter, since they add up
COLUMNS: Final = 3  # of a grid of charts
ROW_HEIGHT: Final = 1.9  # inches
MOST_NAMED: Final = 24  # ticks with names
MOST_TICKS: Final = 4  # on the horizontal axis of one of several charts
TICK_WIDTH: Final = 0.4  # least width of an axis per tick [inches]
LABELS: Final = 0.6  # width of what stands beside an axis [inches]
LOG_TICKS: Final = 14
DECADES: Final = 6  # most ticks of a logarithmic vertical axis
BAR_WIDTH: Final = 0.06  # inches


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """The curve of one algorithm.

    Arrays are [points]. ``y`` is NaN in a gap. ``low`` and ``high`` bound the pointwise 95 %
    interval, NaN without one.

    Attributes:
        title: its text in the legend, without the ``count`` of what it is made of.
        end: the place of the final score, if there is one.
        is_open: whether the marker of each point is open.
        notes: what a page says about each point besides its value.

    The style has no line where no line joins the points, and no marker where the values are levels.
    """

    name: str
    title: str
    style: Style
    x: Floats
    y: Floats
    low: Floats
    high: Floats
    count: str = ""
    end: tuple[float, float] | None = None
    is_open: Sequence[bool] = ()
    notes: Sequence[str] = ()

    @property
    def label(self) -> str:
        """Its text in a legend, with the count."""
        return f"{self.title} ({self.count})" if self.count else self.title

    @property
    def values(self) -> Floats:
        """All values of y, with the ends of their intervals."""
        return np.concatenate([self.y, self.low, self.high])


def band_curve(name: str, title: str, style: Style, band: Band) -> Curve:
    """The curve of a band."""
    return Curve(name, title, style, band.x, band.iqm, band.low, band.high)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Chart:
    """Curves, marks and axes.

    Attributes:
        title: what it shows, without the environments.
        reading: how to read its curves.
        environments: those that the curves are about.
        levels: values of y to mark, with their names.
        places: values of x to mark, with their names.
        chance: a range of y to shade.
        is_share: y goes from none to all.
        is_whole: x counts something.
        is_square: both axes have the same ends, and a line where x and y are equal.
        from_zero: y begins at zero.
        log_x, log_y: the axis is logarithmic.
        nearest_zero: y is logarithmic below this negative number, and not distinguished above it.
        x_range: the ends of x, by default those of the curves.
        ticks: names of the values of x; intervals are bars.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    reading: str = ""
    environments: Sequence[str] = ()
    levels: Sequence[tuple[float, str]] = ()
    places: Sequence[tuple[float, str]] = ()
    chance: tuple[float, float] | None = None
    is_share: bool = False
    is_whole: bool = False
    is_square: bool = False
    from_zero: bool = False
    log_x: bool = False
    log_y: bool = False
    nearest_zero: float | None = None
    x_range: tuple[float, float] | None = None
    ticks: Mapping[float, str] | None = None

    @property
    def is_history(self) -> bool:
        """Whether it has points and their levels."""
        return any(not curve.style.marker for curve in self.curves)

    @property
    def shown_ticks(self) -> dict[float, str]:
        """The ticks with their names, which have room."""
        ticks = self.ticks or {}
        return dict(list(ticks.items())[:: math.ceil(len(ticks) / MOST_NAMED)])

    @property
    def heading(self) -> str:
        """The title with the environments."""
        many = len(self.environments) > MOST_NAMES
        names = ", ".join(self.environments)
        return f"{self.title}: {counted(len(self.environments), 'environment') if many else names}"

    @property
    def caption(self) -> str:
        """How to read its curves, with what all of them are made of."""
        return "; ".join(filter(None, [*self._shared_count, self.reading]))

    @property
    def labels(self) -> list[str]:
        """The texts of its curves in the legend."""
        return [curve.title if self._shared_count else curve.label for curve in self.curves]

    @property
    def _shared_count(self) -> list[str]:
        counts = {curve.count for curve in self.curves}
        return list(counts) if len(counts) == 1 else []

    @property
    def values(self) -> Floats:
        """All values of y, with the ends of their intervals."""
        return np.concatenate([np.zeros(0), *(curve.values for curve in self.curves)])


def is_banded(curves: Iterable[Curve]) -> bool:
    """Whether some curve has an interval."""
    return any(not np.isnan(curve.low).all() for curve in curves)


def fitting(values: Iterable[float], data: npt.ArrayLike) -> list[float]:
    """The values that an axis can show while the data, of any shape, take at least half of it.

    All of them if the data are constant.
    """
    finite = np.asarray(data, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    ends = [finite.min(), finite.max()] if finite.size else [0.0, 0.0]
    extent, kept = ends[1] - ends[0], []
    for value in sorted(values, key=lambda value: max(ends[0] - value, value - ends[1])):
        if extent >= FILLED * (max(*ends, value) - min(*ends, value)) or not extent:
            ends.append(value)
            kept.append(value)
    return kept


def chart_drawing(chart: Chart) -> Drawing:
    """The drawing of one chart, with its heading."""
    return charts_drawing(chart.heading, [chart], ALONE)


def charts_drawing(heading: str, charts: Sequence[Chart], height: float = HEIGHT) -> Drawing:
    """The drawing of charts, below each other in a figure that is higher than wide.

    The legend is that of the first one. Successive charts with equal labels share the vertical
    axis. Beside each other, the last of them has the names of their levels.
    """
    first, draw = charts[0], partial(_draw, heading, charts)
    return Drawing(height, first.labels, draw, len(charts), first.caption)


def grid_drawing(charts: Sequence[Chart], caption: str) -> Drawing:
    """The drawing of charts with one label of y in rows of ``COLUMNS``, with one legend of all."""
    names = sorted({name for chart in charts for name in chart.labels})
    columns = min(COLUMNS, len(charts))
    rows = -(-len(charts) // columns)

    def draw(figure: FigureBase, size: Size) -> dict[str, Any]:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        lines: dict[str, Any] = {}
        for axes, chart in zip(panels, charts, strict=False):
            _draw_chart(axes, chart, MOST_TICKS if chart.is_square else 3)
            _mark_levels([axes], chart)
            axes.set(title=chart.title, ylabel="")
            lines |= legend_lines(axes)
        for axes in panels[len(charts) :]:
            axes.set_visible(False)
        figure.supylabel(charts[0].y_label, fontsize=9)
        return {name: lines[name] for name in names if name in lines}

    return Drawing(0.5 + ROW_HEIGHT * rows, names, draw, caption=caption)


def _draw(heading: str, charts: Sequence[Chart], figure: FigureBase, size: Size) -> dict[str, Any]:
    stacked = is_stacked(size) or charts[0].is_history
    shape = (len(charts), 1) if stacked else (1, len(charts))
    of_history = charts[0].is_history
    panels = list(figure.subplots(*shape, squeeze=False, sharex=of_history).flat)
    width = size[0] / shape[1] - LABELS
    ticks = int(np.clip(width / TICK_WIDTH, 2, MOST_TICKS if len(charts) > 1 else 2 * MOST_TICKS))
    pairs = zip(panels, charts, strict=True)
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[1].y_label):
        sharing: list[Axes] = []
        for axes, chart in group:
            if sharing:
                axes.sharey(sharing[0])
            _draw_chart(axes, chart, ticks)
            if sharing and not stacked:
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
            sharing.append(axes)
        for marked in [[each] for each in sharing] if stacked else [sharing]:
            _mark_levels(marked, chart)
    figure.suptitle(heading)
    for axes in panels if of_history else ():
        axes.label_outer()
        lines = {name: line for name, line in legend_lines(axes).items() if name != "level"}
        if axes is not panels[0] and len(lines) > 1:
            axes.legend(lines.values(), lines, fontsize=7, loc="lower left")
    return legend_lines(panels[0])


def _draw_chart(axes: Axes, chart: Chart, ticks: int) -> None:
    if chart.ticks is None:
        opacity = min(OPACITY, 1 / max(1, len(chart.curves)))
        draw_curves(axes, chart.curves, chart.labels, opacity)
    elif chart.is_history:
        _draw_history(axes, chart)
    else:
        _draw_bars(axes, chart)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.grid(visible=True)
    if chart.ticks is None:
        axes.margins(x=0.02)
    _scale_x(axes, chart, ticks)
    if chart.is_share:
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks(*SHARES)
    if chart.nearest_zero is not None:
        _scale_y(axes, -chart.nearest_zero)
    for place, name in chart.places:
        axes.axvline(place, **MARK)
        at = axes.get_xaxis_transform()
        is_late = chart.is_history and place > len(chart.ticks or ()) / 2
        side = ("right" if is_late else "left") if chart.is_history else "center"
        axes.annotate(name, (place, 1), (0, 2), at, horizontalalignment=side, **NOTE)
    if chart.is_square and chart.curves:
        _make_square(axes, ticks)
    if not chart.curves:
        axes.set_xticks([])
        text = "\n".join(textwrap.wrap(NOT_EVALUATED, 20))
        axes.annotate(text, (0.5, 0.75), xycoords="axes fraction", ha="center", va="center")


def draw_curves(axes: Axes, curves: Sequence[Curve], labels: Sequence[str], opacity: float) -> None:
    """Draw curves and bands; each line has a few markers, shifted so that none coincide.

    A filled marker is the final score, of a curve without a line too.
    """
    for index, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        every = max(1, len(curve.x) // MARKERS)
        shown = (index * every // len(curves), every)
        look = {**_look(curve, label), "markevery": shown, "markeredgewidth": 1.2, "zorder": 3}
        if curve.x.size:
            axes.plot(curve.x, curve.y, **look)
        if is_banded([curve]):
            band = (curve.x, curve.low, curve.high)
            axes.fill_between(*band, color=curve.style.color, alpha=opacity, linewidth=0)
        if curve.end is not None:
            look = {"color": curve.style.color, "label": "" if curve.x.size else label}
            axes.plot(*curve.end, curve.style.marker, zorder=4, clip_on=False, **look)


def _look(curve: Curve, label: str) -> dict[str, Any]:
    style = curve.style
    look = {"color": style.color, "linestyle": style.line, "marker": style.marker}
    return {**look, "markerfacecolor": "white", "label": label}


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Draw curves with bars, beside each other so that all bars are seen."""
    from matplotlib.transforms import offset_copy

    for number, (curve, label) in enumerate(zip(chart.curves, chart.labels, strict=True)):
        shift = BAR_WIDTH * (number - (len(chart.curves) - 1) / 2)
        beside = offset_copy(axes.transData, axes.get_figure(root=True), x=shift)
        # Rounding can put the IQM of equal scores just outside of its interval.
        bars = np.maximum((curve.y - curve.low, curve.high - curve.y), 0.0)
        look = {**_look(curve, label), "capsize": 3, "elinewidth": 1, "transform": beside}
        axes.errorbar(curve.x, curve.y, yerr=bars, **look)
        for values in (curve.y, curve.low, curve.high):  # matplotlib ignores shifted data
            axes.update_datalim(np.column_stack([curve.x, values]))
    axes.autoscale_view()


def _draw_history(axes: Axes, chart: Chart) -> None:
    """Draw points with their intervals, and lines of levels."""
    for curve in chart.curves:
        color, marker = curve.style.color, curve.style.marker
        if marker:
            faces = ["white" if each else color for each in curve.is_open]
            axes.vlines(curve.x, curve.low, curve.high, colors=color, linewidth=1)
            look: dict[str, Any] = {"marker": marker, "c": faces, "edgecolors": color}
            axes.scatter(curve.x, curve.y, 20, zorder=3, label=curve.label, **look)
        else:
            first = np.flatnonzero(np.diff(curve.y, prepend=np.nan))
            last = np.append(first[1:], len(curve.y)) - 1
            places = curve.y[first], curve.x[first] - 0.4, curve.x[last] + 0.4
            axes.hlines(*places, colors=color, linewidth=1, label=curve.label)
    if chart.from_zero:
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: _tick(value))


def _scale_x(axes: Axes, chart: Chart, ticks: int) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if chart.log_x:
        axes.set_xscale("log")
    if chart.x_range is not None:
        axes.set_xlim(*chart.x_range)
    if chart.ticks is not None:
        axes.minorticks_off()
        axes.autoscale_view()
        axes.set_xticks(list(chart.shown_ticks), list(chart.shown_ticks.values()))
        axes.tick_params(axis="x", rotation=60 if chart.is_history else 0)
        return
    if chart.log_x:
        subs = (1, 2, 5) if ticks > MOST_TICKS else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=LOG_TICKS))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=chart.is_whole))
    axes.xaxis.set_major_formatter(lambda value, _: _tick(value))


def _make_square(axes: Axes, ticks: int) -> None:
    """Give both axes the same ends, and mark where x and y are equal."""
    from matplotlib.ticker import MaxNLocator

    limits = [*axes.dataLim.intervalx, *axes.dataLim.intervaly]
    margin = 0.1 * (max(limits) - min(limits) or abs(max(limits)) or 1.0)
    both = min(limits) - margin, max(limits) + margin
    axes.set(xlim=both, ylim=both)
    axes.axline((0, 0), slope=1, **MARK)
    axes.yaxis.set_major_locator(MaxNLocator(ticks))
    axes.yaxis.set_major_formatter(lambda value, _: _tick(value))


def _tick(value: float) -> str:
    """A number, from 1,000 on with the prefix of its unit."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter()(value) if value >= 1000 else f"{value:g}"


def _scale_y(axes: Axes, smallest: float) -> None:
    """Make the vertical axis logarithmic, and linear between 0 and minus ``smallest``."""
    from matplotlib.ticker import SymmetricalLogLocator

    axes.set_yscale("symlog", linthresh=smallest)
    axes.autoscale(axis="y")  # with the margins of this scale
    locator = SymmetricalLogLocator(axes.yaxis.get_transform())
    locator.set_params(numticks=DECADES)
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(lambda value, _: power_of_ten(value))


def _mark_levels(panels: Sequence[Axes], chart: Chart) -> None:
    """Mark the levels of a chart by dotted lines, with their names beside the last axes.

    One that would squeeze the curves has no line; its name stands at the end of the axis.
    """
    if not chart.levels:
        return
    last = panels[-1]
    scale = last.yaxis.get_transform()
    values = [value for value, _ in chart.levels]
    levels = scale.transform(values).tolist()
    shown = fitting(levels, scale.transform(panels[0].dataLim.intervaly))
    for value, level in zip(values, levels, strict=True):
        if level in shown or chart.is_share:
            for axes in panels:
                axes.axhline(value, **MARK)
    ends = last.get_ylim()
    places = np.clip(values, *ends).tolist()
    low, high, *heights = scale.transform([*ends, *places])
    close = len(values) > 1 and max(heights) - min(heights) < 0.3 * (high - low)
    for (value, text), level, place in zip(chart.levels, levels, places, strict=True):
        if not text:
            continue
        apart = "bottom" if value == max(values) else "top"
        arrow = "\N{UPWARDS ARROW}" if value > place else "\N{DOWNWARDS ARROW}"
        last.annotate(
            text if level in shown else f"{text}\n{format_number(value)} {arrow}",
            (1, place),
            xycoords=last.get_yaxis_transform(),
            xytext=(3, 0),
            verticalalignment=apart if close else "center",
            annotation_clip=False,
            linespacing=1.0,
            **NOTE,
        )
