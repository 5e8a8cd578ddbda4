"""Figures of one environment: learning curves and the rank of the unperturbed policy.

The curves are computed by ``analysis.curves``. Equal trials give equal bytes.
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
from esbench.reporting.figures import performance_profile, target_ecdf
from esbench.reporting.figures.style import (
    MARK_COLOR,
    TEXT_COLOR,
    Style,
    add_legend,
    as_files,
    assign_styles,
    draw_curve,
    new_figure,
)
from esbench.store.cells import Cell, cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OPACITY: Final = 0.18
HEIGHT: Final = 2.95  # inches, without the legend
DECADES: Final = 6  # most ticks of a logarithmic axis
TIME_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
OF_POPULATION: Final = "\N{DAGGER}"
NOT_EVALUATED: Final = "unperturbed policy not evaluated"
SHARES: Final = ((0, 0.25, 0.5, 0.75, 1), ("none", "1/4", "half", "3/4", "all"))
MIN_GENERATIONS: Final = 2
ACROSS: Final = {"ecdf": target_ecdf.render, "profile": performance_profile.render}
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
class LearningCurve:
    """The curves of one cell.

    Attributes:
        name: name of the cell.
        label: text in the legend.
        style: look of the lines.
        over_steps, over_time: return against environment steps and seconds of training.
        rank: rank fraction over generations; None if the unperturbed policy was not evaluated.
            The returns are then the population's means.
    """

    name: str
    label: str
    style: Style
    over_steps: Band
    over_time: Band
    rank: Band | None


def draw(root: Path, out: Path | None = None) -> list[Path]:
    """Write a figure for each environment below ``root`` and two across them, as PNG and SVG.

    Args:
        root: folder with trials; a cell without any done seed is drawn from its unfinished seeds.
        out: folder for the figures; by default ``root / "figures"``.

    Returns:
        The files: two for each environment, two named "ecdf" if an environment has frozen random
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
    """Write the files of a figure and return their paths."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_bytes(path, content)
    return paths


def render(
    environment: str, lines: Sequence[LearningCurve], scores: Scores, kind: Kind = "environment"
) -> dict[str, bytes]:
    """The figure as bytes by file suffix, "png" and "svg"; equal input gives equal bytes."""
    return as_files(lambda: make_figure(environment, lines, scores, kind))


def make_figure(
    environment: str, lines: Sequence[LearningCurve], scores: Scores, kind: Kind = "environment"
) -> Figure:
    """Make the figure: return against steps, return against time, and rank over generations.

    Args:
        environment: the title.
        lines: of ``curves``.
        scores: frozen scores to mark: random, and solved or the first reference.
        kind: the returns of a "function" have a logarithmic axis, since the best possible is 0.
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


def curves(group: Sequence[Cell], styles: Sequence[Style] | None = None) -> list[LearningCurve]:
    """The curves of one environment's cells; cells without two generations are left out.

    A curve is made of the done seeds, since the shortest run cuts the others, or of all seeds if
    none is done. The label gives their number.

    Args:
        group: the cells.
        styles: one for each cell; by default chosen by ``assign_styles``.
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
) -> LearningCurve:
    returns = [run["center_return" if center else "population_return_mean"] for run in runs]
    return LearningCurve(
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
    """The frozen scores if they are the same for every cell, otherwise none."""
    first, *others = (cell.scores for cell in group)
    return first if all(other == first for other in others) else Scores()


def time_unit(lines: Sequence[LearningCurve]) -> tuple[str, float]:
    """The unit for an axis of time, and its length in seconds."""
    longest = max(line.over_time.x[-1] for line in lines)
    return next((pair for pair in TIME_UNITS if longest >= 3 * pair[1]), TIME_UNITS[-1])


def _draw_bands(
    axes: Axes, lines: Sequence[LearningCurve], bands: Sequence[Band | None], unit: float = 1.0
) -> None:
    """Draw one curve with its band for each line that has one; x is divided by ``unit``."""
    for index, (line, band) in enumerate(zip(lines, bands, strict=True)):
        if band is not None:
            curve = (band.x / unit, band.iqm, band.low, band.high)
            draw_curve(axes, *curve, line.style, line.label, index, len(lines), OPACITY)


def _draw_over_steps(axes: Axes, lines: Sequence[LearningCurve]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    _draw_bands(axes, lines, [line.over_steps for line in lines])
    axes.set_xlabel("environment steps")
    axes.set_ylabel(return_label(lines))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter())


def _draw_over_time(axes: Axes, lines: Sequence[LearningCurve]) -> None:
    from matplotlib.ticker import MaxNLocator

    unit, seconds = time_unit(lines)
    _draw_bands(axes, lines, [line.over_time for line in lines], seconds)
    axes.set_xlabel(f"wall-clock time ({unit})")
    axes.tick_params(labelleft=False)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _scale_returns(axes: Axes, lines: Sequence[LearningCurve], scores: Scores) -> None:
    """Make the axis of returns logarithmic, and linear around 0."""
    from matplotlib.ticker import SymmetricalLogLocator

    exponent = smallest_decade(lines, scores)
    axes.set_yscale("symlog", linthresh=10.0**exponent)
    locator = SymmetricalLogLocator(axes.yaxis.get_transform())
    locator.set_params(numticks=DECADES)
    axes.yaxis.set_major_locator(locator)
    linear = f"log scale, linear above $-10^{{{exponent}}}$"
    axes.set_ylabel(f"{return_label(lines)}\n({linear})")


def smallest_decade(lines: Sequence[LearningCurve], scores: Scores) -> int:
    """The exponent of the power of ten below which returns are not distinguished.

    It belongs to the largest return that is not 0: the one nearest to the best possible, 0, or the
    largest one above 0, which is noise.
    """
    bands = [band for line in lines for band in (line.over_steps, line.over_time)]
    drawn = [values for band in bands for values in (band.iqm, band.low, band.high)]
    values = np.concatenate([*drawn, [value for value, _ in marks(scores)]])
    values = values[np.isfinite(values) & (values != 0)]
    return math.floor(math.log10(abs(values.max()))) if values.size else 0


def _draw_rank(axes: Axes, lines: Sequence[LearningCurve]) -> None:
    """Draw rank fractions; at one half, perturbations make no difference."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("generation")
    axes.set_ylabel("rank of the unperturbed policy\n(share of members beating it)")
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks(*SHARES)
    axes.axhline(0.5, color=MARK_COLOR, linestyle=":", linewidth=1.2, zorder=2)
    bands = [line.rank for line in lines]
    if not any(bands):
        axes.set_xticks([])
        text = "\n".join(textwrap.wrap(NOT_EVALUATED, 20))
        axes.annotate(text, (0.5, 0.75), xycoords="axes fraction", ha="center", va="center")
        return
    _draw_bands(axes, lines, bands)
    if any(band.x[0] > 1 for band in bands if band):  # the mean of a first block of several
        axes.set_xlabel("generation\n(averaged in blocks)")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _mark_scores(steps: Axes, seconds: Axes, scores: Scores) -> None:
    """Mark the random policy and the goal by dotted lines, with their names beside the axes."""
    found = marks(scores)
    for value, _ in found:
        for axes in (steps, seconds):
            axes.axhline(value, color=MARK_COLOR, linestyle=":", linewidth=1.2, zorder=2)
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
            color=TEXT_COLOR,
            linespacing=1.0,
        )


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


def return_label(lines: Sequence[LearningCurve]) -> str:
    """The label of an axis of returns, which says whose they are."""
    without = sum(line.rank is None for line in lines)
    if without == len(lines):
        return f"mean return of the population\n({NOT_EVALUATED})"
    policy = "return of the unperturbed policy"
    return f"{policy}\n({OF_POPULATION}: mean of the population)" if without else policy


def _legend_title(lines: Sequence[LearningCurve]) -> str:
    banded = any(not np.isnan(line.over_steps.low).all() for line in lines)
    return "IQM over seeds" + (", shaded: 95 % bootstrap interval" if banded else "")
