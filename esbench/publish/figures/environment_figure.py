"""The figure of one environment: learning curves and the rank of the unperturbed policy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from esbench.core.units import format_number, power_of_ten
from esbench.grids.environment_files import Scores, environment_kind
from esbench.publish.figures.drawing import (
    Curve,
    Drawing,
    Size,
    add_legend,
    draw_curves,
    fitting,
    is_stacked,
)
from esbench.publish.figures.learning_curves import (
    NOT_EVALUATED,
    LearningCurves,
    marks,
    smallest_decade,
)
from esbench.publish.figures.style import MARK, NOTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

OPACITY: Final = 0.18
HEIGHT: Final = 2.95  # inches, without the legend
MOST_TICKS: Final = 4  # on the horizontal axis
TICK_WIDTH: Final = 0.4  # least width of an axis per tick [inches]
LABELS: Final = 0.6  # width of what stands beside an axis [inches]
DECADES: Final = 6  # most ticks of a logarithmic axis
SLOWEST: Final = 10.0  # times as long as the fastest row: from there on, times are logarithmic
Panel: TypeAlias = Literal["steps", "time", "rank"]
PANELS: Final[tuple[Panel, ...]] = ("steps", "time", "rank")
SHARES: Final = ((0, 0.25, 0.5, 0.75, 1), ("none", "1/4", "half", "3/4", "all"))


def curves_drawing(
    environment: str, shown: LearningCurves, scores: Scores, panels: Sequence[Panel] = PANELS
) -> Drawing:
    """Return against steps and against time, with marked scores, and rank over generations.

    The returns of a function have a logarithmic axis, since the best possible is 0.
    """
    labels = [curve.label for curve in _drawn(shown, panels)]
    draw = partial(_draw, environment, shown, scores, panels)
    return Drawing(HEIGHT, labels, draw, len(panels))


def _draw(
    environment: str,
    shown: LearningCurves,
    scores: Scores,
    panels: Sequence[Panel],
    figure: FigureBase,
    size: Size,
) -> None:
    stacked = is_stacked(size)
    shape = (len(panels), 1) if stacked else (1, len(panels))
    axes_of = dict(zip(panels, figure.subplots(*shape, squeeze=False).flat, strict=True))
    width = size[0] / shape[1] - LABELS
    ticks = int(np.clip(width / TICK_WIDTH, 2, MOST_TICKS))
    returns = _draw_returns(axes_of, shown, ticks)
    if returns and environment_kind(environment) == "function":
        _scale_returns(returns[0], smallest_decade(shown, scores))
    if returns:
        _mark_scores(returns, marks(scores))
    if "rank" in axes_of:
        _draw_rank(axes_of["rank"], shown.rank, ticks)
    for axes in axes_of.values():
        axes.grid(visible=True)
        axes.margins(x=0.02)
    for panel, end in zip(("steps", "time"), shown.ends, strict=True):
        if panel in axes_of:
            axes_of[panel].set_xlim(-0.02 * end, 1.02 * end)
    if "time" in axes_of:
        _scale_times(axes_of["time"], [float(curve.x[-1]) for curve in shown.over_time])
    for axes in returns[1:]:
        if stacked:
            axes.set_ylabel(returns[0].get_ylabel())
        axes.tick_params(labelleft=stacked)
    figure.suptitle(environment, fontsize=10)
    drawn = _drawn(shown, panels)
    banded = any(not np.isnan(curve.low).all() for curve in drawn)
    title = "IQM over seeds" + ", shaded: 95 % bootstrap interval" * banded
    if missing := {c.name for c in shown.over_steps} - {c.name for c in drawn}:
        title += f"; {NOT_EVALUATED}: {', '.join(sorted(missing))}"
    title += shown.left_out
    add_legend(figure, size, (returns or list(axes_of.values()))[0], title)


def _drawn(shown: LearningCurves, panels: Sequence[Panel]) -> list[Curve]:
    """The curves of the panel that has most of them."""
    return shown.rank if set(panels) == {"rank"} else shown.over_steps


def _draw_returns(axes_of: Mapping[Panel, Axes], shown: LearningCurves, ticks: int) -> list[Axes]:
    """Draw the panels of returns, which share an axis, and return them."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    found = [axes_of[panel] for panel in ("steps", "time") if panel in axes_of]
    if steps := axes_of.get("steps"):
        draw_curves(steps, shown.over_steps, OPACITY)
        steps.set_xlabel("environment steps")
        steps.xaxis.set_major_formatter(EngFormatter())
    if seconds := axes_of.get("time"):
        draw_curves(seconds, shown.over_time, OPACITY)
        seconds.set_xlabel(f"wall-clock time ({shown.time_unit})")
    for axes in found:
        axes.xaxis.set_major_locator(MaxNLocator(ticks))
        if axes is not found[0]:
            axes.sharey(found[0])
    if found:
        found[0].set_ylabel(shown.return_label)
    return found


def _scale_times(axes: Axes, ends: Sequence[float]) -> None:
    """Make the axis of times logarithmic if the slowest row would squeeze the fastest one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if max(ends) < SLOWEST * min(ends):
        return
    axes.set_xscale("log")
    axes.set_xlim(left=min(ends) / SLOWEST)
    axes.xaxis.set_major_locator(LogLocator(subs=(1,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"{axes.get_xlabel()}\n(log scale)")


def _scale_returns(axes: Axes, exponent: int) -> None:
    """Make the axis of returns logarithmic, and linear between 0 and minus 10 ** exponent."""
    from matplotlib.ticker import SymmetricalLogLocator

    axes.set_yscale("symlog", linthresh=10.0**exponent)
    locator = SymmetricalLogLocator(axes.yaxis.get_transform())
    locator.set_params(numticks=DECADES)
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(lambda value, _: power_of_ten(value))
    linear = f"log scale, linear above {power_of_ten(-(10.0**exponent))}"
    axes.set_ylabel(f"{axes.get_ylabel()}\n({linear})")


def _draw_rank(axes: Axes, curves: Sequence[Curve], ticks: int) -> None:
    """Draw rank fractions; at one half, perturbations make no difference."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("generation")
    axes.set_ylabel("rank of the unperturbed policy\n(share of members beating it)")
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks(*SHARES)
    axes.axhline(0.5, **MARK)
    if not curves:
        axes.set_xticks([])
        text = "\n".join(textwrap.wrap(NOT_EVALUATED, 20))
        axes.annotate(text, (0.5, 0.75), xycoords="axes fraction", ha="center", va="center")
        return
    draw_curves(axes, curves, OPACITY)
    if any(curve.x[0] > 1 for curve in curves):  # the mean of a first block of several
        axes.set_xlabel("generation\n(averaged in blocks)")
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True))


def _mark_scores(panels: Sequence[Axes], found: Sequence[tuple[float, str]]) -> None:
    """Mark the random policy and the goal by dotted lines, with their names beside the last axes.

    One that would squeeze the curves has no line; its name stands at the end of the axis.
    """
    last = panels[-1]
    scale = last.yaxis.get_transform()
    values = [value for value, _ in found]
    levels = scale.transform(values).tolist()
    shown = fitting(levels, scale.transform(panels[0].dataLim.intervaly))
    for value, level in zip(values, levels, strict=True):
        if level in shown:
            for axes in panels:
                axes.axhline(value, **MARK)
    ends = last.get_ylim()
    places = np.clip(values, *ends).tolist()
    low, high, *heights = scale.transform([*ends, *places])
    close = len(found) > 1 and max(heights) - min(heights) < 0.3 * (high - low)
    for (value, text), level, place in zip(found, levels, places, strict=True):
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
