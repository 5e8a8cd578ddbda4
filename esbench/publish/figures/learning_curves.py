"""Learning curves of one environment, and their figure with the rank of the unperturbed policy."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.units import counted, format_number, power_of_ten
from esbench.grids.environment_files import Scores, environment_kind
from esbench.publish.figures.drawing import (
    Curve,
    Drawing,
    Size,
    add_legend,
    band_curve,
    draw_curves,
    fitting,
    is_stacked,
)
from esbench.publish.figures.style import MARK, NOTE, Style, assign_styles
from esbench.results.cell import Cell
from esbench.results.statistics.curves import Band, generation_curve, learning_curve
from esbench.store.trial_folder import TrialFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

TIME_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))  # as in tables
OF_POPULATION: Final = "\N{DAGGER}"
NOT_EVALUATED: Final = "unperturbed policy not evaluated"
_DRAWN: Final = (
    "env_steps",
    "wall_time_s",
    "center_return",
    "population_return_mean",
    "center_rank_fraction",
)
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


@final
@dataclass(frozen=True, eq=False)
class LearningCurves:
    """The curves of one environment, one per cell, and the trials drawn by name of the curve.

    A cell whose unperturbed policy was not evaluated has no curve in ``rank`` (rank fraction over
    generations), and its returns are the population's means. The unit of time is h, min or s.
    ``ends`` are the steps and the time of the longest cell's training, mean over seeds as in
    tables. A curve ends before them: at the last policy that was evaluated in every seed.
    """

    over_steps: list[Curve]
    over_time: list[Curve]
    rank: list[Curve]
    time_unit: str
    ends: tuple[float, float]
    trials: dict[str, list[TrialFolder]]
    evaluated: int  # the number of curves that show the unperturbed policy
    cut: bool  # whether returns are of episodes that a limit of training cuts
    short: tuple[str, ...]  # cells without two generations, which have no curve

    @property
    def left_out(self) -> str:
        """The cells without a curve as the end of a title; empty if all have one."""
        return f"; too short for a curve: {', '.join(self.short)}" if self.short else ""

    @property
    def return_label(self) -> str:
        """The label of an axis of returns, which says whose they are."""
        if not self.evaluated:
            return f"mean return of the population\n({NOT_EVALUATED})"
        policy = "return of the unperturbed policy"
        notes = ["training episodes are cut"] if self.cut else []
        if self.evaluated < len(self.over_steps):
            notes.append(f"{OF_POPULATION}: mean of training episodes")
        return f"{policy}\n({'; '.join(notes)})" if notes else policy


def learning_curves(
    group: Sequence[Cell], styles: Mapping[str, Style] | None = None
) -> LearningCurves | None:
    """The curves of one environment's cells; None if no trial has two generations.

    A curve is made of the done seeds, since the shortest run cuts the others, or of all seeds if
    none is done. The label gives their number. Cells without two generations are left out.
    ``styles`` are by the names of the cells, by default those of ``assign_styles``.
    """
    styles = styles or assign_styles({cell.name: cell.algorithm for cell in group})
    centers = [cell.evaluates_policy for cell in group]
    over_steps: list[Curve] = []
    rank: list[Curve] = []
    times: list[Band] = []
    ends: list[list[float]] = []
    trials: dict[str, list[TrialFolder]] = {}
    for cell, center in zip(group, centers, strict=True):
        columns = {trial: _drawn_rows(trial, cell.is_agent and not center) for trial in cell.trials}
        found = [trial for trial in cell.trials if len(columns[trial]["env_steps"]) > 1]
        done = [trial for trial in found if trial.is_done]
        if not found:
            continue
        trials[cell.name] = done or found
        runs = [columns[trial] for trial in trials[cell.name]]
        style = styles[cell.name]
        mark = "" if center or not any(centers) else OF_POPULATION
        label = f"{cell.name}{mark} ({_seeds(len(runs), len(cell.trials), bool(done))})"
        returns = [run["center_return" if center else "population_return_mean"] for run in runs]
        curve = partial(learning_curve, returns=returns, after=cell.is_agent)
        by_steps = curve([run["env_steps"] for run in runs])
        over_steps.append(band_curve(cell.name, label, style, by_steps))
        times.append(curve([run["wall_time_s"] for run in runs]))
        spent = ([float(run[key][-1]) for run in runs] for key in ("env_steps", "wall_time_s"))
        ends.append([*map(fmean, spent)])
        if center and not cell.is_agent:
            ranks = generation_curve([run["center_rank_fraction"] for run in runs])
            rank.append(band_curve(cell.name, label, style, ranks))
    if not times:
        return None
    steps, longest = map(max, zip(*ends, strict=True))
    unit, seconds = next((u for u in TIME_UNITS if longest >= u[1]), TIME_UNITS[-1])
    over_time = [
        band_curve(curve.name, curve.label, curve.style, band, seconds)
        for curve, band in zip(over_steps, times, strict=True)
    ]
    totals = steps, longest / seconds
    evaluated = sum(
        center for cell, center in zip(group, centers, strict=True) if cell.name in trials
    )
    cut = any(cell.cuts_episodes for cell in group if cell.name in trials)
    short = tuple(cell.name for cell in group if cell.name not in trials)
    return LearningCurves(over_steps, over_time, rank, unit, totals, trials, evaluated, cut, short)


def _drawn_rows(trial: TrialFolder, in_training: bool) -> dict[str, npt.NDArray[Any]]:
    """The rows of a trial; for returns ``in_training`` those in which an episode ended."""
    columns = trial.columns(*_DRAWN)
    if not in_training:
        return columns
    known = np.isfinite(columns["population_return_mean"])
    return {name: values[known] for name, values in columns.items()}


def _seeds(drawn: int, total: int, done: bool) -> str:
    count = f"{drawn} of " * (drawn < total) + counted(total, "seed")
    return count if done else f"{count}, unfinished"


def shared_scores(group: Sequence[Cell]) -> Scores:
    """The frozen scores if they are the same for every cell, otherwise none."""
    first, *others = (cell.frozen for cell in group)
    return first if all(other == first for other in others) else Scores()


def smallest_decade(shown: LearningCurves, scores: Scores) -> int:
    """The exponent of the power of ten below which returns are not distinguished.

    It is that of the largest return that is not 0: nearest to the best possible, or noise above it.
    """
    curves = [*shown.over_steps, *shown.over_time]
    drawn = [values for curve in curves for values in (curve.y, curve.low, curve.high)]
    values = np.concatenate([*drawn, [value for value, _ in marks(scores)]])
    values = values[np.isfinite(values) & (values != 0)]
    return math.floor(math.log10(abs(values.max()))) if values.size else 0


def marks(scores: Scores) -> list[tuple[float, str]]:
    """The scores to mark, with their names."""
    found = []
    if scores.random is not None:
        found.append((scores.random.mean, "random\npolicy"))
    if scores.solved is not None:
        found.append((scores.solved, "solved"))
    elif scores.references:
        first = scores.references[0]
        name = "\n".join(textwrap.wrap(first.method, 14))
        found.append((first.score, name if first.comparable else f"{name}\n(not\ncomparable)"))
    return found


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
