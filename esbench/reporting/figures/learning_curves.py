"""Figures: for each environment the learning curves and the rank of the unperturbed policy.

Those across environments are in ``ecdf`` and ``profiles``, and how all of them look in ``figures``.
Nothing is computed here: curves come from ``analysis``, groups of trials and frozen scores from
``cells``. A figure is a function of the trials alone, down to its bytes.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np

from esbench.analysis.curves import Band, generation_curve, learning_curve
from esbench.analysis.statistics import Floats
from esbench.errors import UsageError
from esbench.files import write_bytes
from esbench.grids.environment_files import Kind, Scores, environment_kind
from esbench.reporting.figures import performance_profile as profiles
from esbench.reporting.figures import target_ecdf as ecdf
from esbench.reporting.figures.style import (
    Style,
    add_legend,
    as_files,
    assign_styles,
    draw_line,
    new_figure,
)
from esbench.store.seed_groups import Cell, cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT: Final = 2.95  # inches, without the legend
DECADES: Final = 6  # ticks of a logarithmic axis, at most
TIME_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
OF_POPULATION: Final = "\N{DAGGER}"
NOT_EVALUATED: Final = "unperturbed policy not evaluated"
SHARES: Final = ((0, 0.25, 0.5, 0.75, 1), ("none", "1/4", "half", "3/4", "all"))
REFERENCE_COLOR: Final = "#888888"
MIN_GENERATIONS: Final = 2
ACROSS: Final = {"ecdf": ecdf.render, "profile": profiles.render}
STEPS: Final = "env_steps"
_DRAWN: Final = (
    STEPS,
    "wall_time_s",
    "center_return",
    "population_return_mean",
    "center_rank_fraction",
)


@final
@dataclass(frozen=True)
class Line:
    """The curves of one cell.

    Attributes:
        name: of the cell.
        label: its text in the legend.
        style: its look.
        over_steps, over_time: return against environment steps and seconds of training.
        rank: rank fraction over generations; None if the unperturbed policy was not evaluated,
            and then the returns are the population's means.
    """

    name: str
    label: str
    style: Style
    over_steps: Band
    over_time: Band
    rank: Band | None


def draw(root: Path, out: Path | None = None) -> list[Path]:
    """Draw a figure for each environment below ``root`` and two across them, as PNG and SVG.

    Args:
        root: folder with trials; unfinished ones are drawn where no seed of theirs is done.
        out: where the figures go; by default ``root / "figures"``.

    Returns:
        The files, two for each environment; two named "ecdf" if an environment has frozen random
        and reference scores, and two named "profile" if two environments have.

    Raises:
        UsageError: no trial has two generations yet, or a file cannot be written.
    """
    folder = root / "figures" if out is None else out
    found, written = cells(root), []
    for environment, members in itertools.groupby(found, lambda cell: cell.environment):
        group = list(members)
        if not (lines := curves(group)):
            continue
        stem = re.sub(r"[^\w.+-]", "_", environment)
        scores, kind = shared_scores(group), environment_kind(environment)
        written += _write(folder / stem, render(environment, lines, scores, kind))
    if not written:
        raise UsageError(
            f"nothing to draw in {str(root)!r}: no trial has {MIN_GENERATIONS} generations yet"
        )
    for name, render_across in ACROSS.items():
        written += _write(folder / name, render_across(found))
    return written


def _write(stem: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write a figure's files, and return them."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_bytes(path, content)
    return paths


def render(
    environment: str, lines: Sequence[Line], scores: Scores, kind: Kind = "environment"
) -> dict[str, bytes]:
    """Return the figure as bytes by file suffix, "png" and "svg"; equal input gives equal bytes."""
    return as_files(lambda: make_figure(environment, lines, scores, kind))


def make_figure(
    environment: str, lines: Sequence[Line], scores: Scores, kind: Kind = "environment"
) -> Figure:
    """Return the figure: return against steps, return against time, and rank over generations.

    Args:
        environment: the title.
        lines: of ``curves``.
        scores: the environment's frozen numbers; random and solved (or the first reference).
        kind: a function's returns stand on a logarithmic axis: the best possible is 0.
    """
    figure = new_figure(HEIGHT, [line.label for line in lines])
    steps, seconds, rank = figure.subplots(1, 3)
    seconds.sharey(steps)
    _draw_over_steps(steps, lines)
    _draw_over_time(seconds, lines)
    _draw_rank(rank, lines)
    if kind == "function":
        _scale_returns(steps, lines, scores)
    _mark_scores(steps, seconds, scores)
    for axes in (steps, seconds, rank):
        axes.grid(visible=True)
        axes.margins(x=0.02)
    figure.suptitle(environment, fontsize=10)
    add_legend(figure, steps, _legend_title(lines))
    return figure


def curves(group: Sequence[Cell], styles: Sequence[Style] | None = None) -> list[Line]:
    """Return the lines of one environment's cells; cells without two generations have none.

    Seeds that are done make the curve, since the shortest cuts the others; without any, those at
    work do. The legend says how many.

    Args:
        group: the cells.
        styles: of each; by default told apart within the group.
    """
    if styles is None:
        styles = assign_styles([(cell.algorithm, cell.name) for cell in group])
    mixed = len({_evaluates_center(cell) for cell in group}) > 1
    lines = []
    for cell, style in zip(group, styles, strict=True):
        runs = {trial: trial.columns(*_DRAWN) for trial in cell.trials}
        runs = {trial: run for trial, run in runs.items() if len(run[STEPS]) >= MIN_GENERATIONS}
        done = {trial: run for trial, run in runs.items() if trial.is_done}
        if not runs:
            continue
        center = _evaluates_center(cell)
        mark = OF_POPULATION if mixed and not center else ""
        label = f"{cell.name}{mark} ({_seeds(len(done or runs), len(cell.trials), bool(done))})"
        lines.append(_line(cell.name, label, style, list((done or runs).values()), center))
    return lines


def _evaluates_center(cell: Cell) -> bool:
    return bool(cell.descriptions[0]["spec"]["evaluation"]["center"])


def _line(
    name: str, label: str, style: Style, runs: Sequence[dict[str, Floats]], center: bool
) -> Line:
    returns = [run["center_return" if center else "population_return_mean"] for run in runs]
    return Line(
        name=name,
        label=label,
        style=style,
        over_steps=learning_curve([run[STEPS] for run in runs], returns),
        over_time=learning_curve([run["wall_time_s"] for run in runs], returns),
        rank=generation_curve([run["center_rank_fraction"] for run in runs]) if center else None,
    )


def _seeds(drawn: int, total: int, done: bool) -> str:
    noun = "seed" if total == 1 else "seeds"
    count = f"{drawn} {noun}" if drawn == total else f"{drawn} of {total} {noun}"
    return count if done else f"{count}, unfinished"


def shared_scores(group: Sequence[Cell]) -> Scores:
    """Return the frozen scores, if they hold for every cell."""
    first, *others = (cell.scores for cell in group)
    return first if all(other == first for other in others) else Scores()


def _draw_band(axes: Axes, line: Line, band: Band, x: Floats, index: int, count: int) -> None:
    """Draw one curve with its band."""
    style = line.style
    draw_line(axes, x, band.iqm, style, line.label, index, count)
    if not np.isnan(band.low).all():
        axes.fill_between(x, band.low, band.high, color=style.color, alpha=0.18, linewidth=0)


def _draw_over_steps(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    for index, line in enumerate(lines):
        _draw_band(axes, line, line.over_steps, line.over_steps.x, index, len(lines))
    axes.set_xlabel("environment steps")
    axes.set_ylabel(return_label(lines))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter())


def _draw_over_time(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import MaxNLocator

    longest = max(line.over_time.x[-1] for line in lines)
    unit, seconds = next((pair for pair in TIME_UNITS if longest >= 3 * pair[1]), TIME_UNITS[-1])
    for index, line in enumerate(lines):
        _draw_band(axes, line, line.over_time, line.over_time.x / seconds, index, len(lines))
    axes.set_xlabel(f"wall-clock time ({unit})")
    axes.tick_params(labelleft=False)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _scale_returns(axes: Axes, lines: Sequence[Line], scores: Scores) -> None:
    """Make the axis of returns logarithmic, and linear about 0."""
    from matplotlib.ticker import SymmetricalLogLocator

    exponent = smallest_decade(lines, scores)
    axes.set_yscale("symlog", linthresh=10.0**exponent)
    locator = SymmetricalLogLocator(axes.yaxis.get_transform())
    locator.set_params(numticks=DECADES)
    axes.yaxis.set_major_locator(locator)
    linear = f"log scale, linear above $-10^{{{exponent}}}$"
    axes.set_ylabel(f"{return_label(lines)}\n({linear})")


def smallest_decade(lines: Sequence[Line], scores: Scores) -> int:
    """Return the exponent of the power of ten below which returns are not told apart.

    It is that of the return nearest to 0; but since 0 is the best possible, a return above it comes
    of noise, and what is as near to 0 as the largest of those means nothing either.
    """
    drawn = [values for line in lines for values in _drawn(line)]
    values = np.concatenate([*drawn, [value for value, _ in marks(scores)]])
    values = values[np.isfinite(values) & (values != 0)]
    return math.floor(math.log10(abs(values.max()))) if values.size else 0


def _drawn(line: Line) -> list[Floats]:
    """Return the curves and the edges of the bands that are drawn of a line's returns."""
    bands = (line.over_steps, line.over_time)
    return [values for band in bands for values in (band.iqm, band.low, band.high)]


def _draw_rank(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw rank fractions; half way stands a centre whose perturbations make no difference."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("generation")
    axes.set_ylabel("rank of the unperturbed policy\n(share of members beating it)")
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks(*SHARES)
    axes.axhline(0.5, color=REFERENCE_COLOR, linestyle=":", linewidth=1.2, zorder=2)
    bands = [(index, line, line.rank) for index, line in enumerate(lines) if line.rank is not None]
    if not bands:
        axes.set_xticks([])
        text = "\n".join(textwrap.wrap(NOT_EVALUATED, 20))
        axes.annotate(text, (0.5, 0.75), xycoords="axes fraction", ha="center", va="center")
        return
    for index, line, band in bands:
        _draw_band(axes, line, band, band.x, index, len(lines))
    if any(band.x[0] > 1 for *_, band in bands):  # the mean of a first block of several
        axes.set_xlabel("generation\n(averaged in blocks)")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _mark_scores(steps: Axes, seconds: Axes, scores: Scores) -> None:
    """Mark random actions and the goal; their names stand beside, clear of the curves."""
    found = marks(scores)
    for value, _ in found:
        for axes in (steps, seconds):
            axes.axhline(value, color=REFERENCE_COLOR, linestyle=":", linewidth=1.2, zorder=2)
    values = [value for value, _ in found]
    scale = seconds.yaxis.get_transform()
    low, high, *heights = scale.transform([*seconds.get_ylim(), *values])
    close = len(found) > 1 and max(heights) - min(heights) < 0.3 * (high - low)
    for value, text in found:
        apart = "bottom" if value == max(values) else "top"
        seconds.annotate(
            text,
            (1, value),
            xycoords=seconds.get_yaxis_transform(),
            xytext=(3, 0),
            textcoords="offset points",
            verticalalignment=apart if close else "center",
            annotation_clip=False,
            fontsize=8,
            color="#444444",
            linespacing=1.0,
        )


def marks(scores: Scores) -> list[tuple[float, str]]:
    """Return the scores to mark, with their names."""
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


def return_label(lines: Sequence[Line]) -> str:
    """Return whose returns the lines are, for an axis."""
    without = sum(line.rank is None for line in lines)
    if without == len(lines):
        return f"mean return of the population\n({NOT_EVALUATED})"
    policy = "return of the unperturbed policy"
    return f"{policy}\n({OF_POPULATION}: mean of the population)" if without else policy


def _legend_title(lines: Sequence[Line]) -> str:
    banded = any(not np.isnan(line.over_steps.low).all() for line in lines)
    return "IQM over seeds" + (", shaded: 95 % bootstrap interval" if banded else "")
