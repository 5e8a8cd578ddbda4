"""The figure of final scores across environments: which share of runs scores above a threshold.

A performance profile, as in ``analysis.aggregates``, where it is computed; scores are normalised by
an environment's frozen random score and reference, as in the tables. One environment's scores are
all in its table, so that the figure begins with two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from esbench.analysis.aggregates import performance_profile, profile_interval
from esbench.analysis.statistics import Floats, normalized
from esbench.reporting.figures.style import (
    Style,
    add_legend,
    as_files,
    assign_styles,
    draw_line,
    new_figure,
)
from esbench.store.seed_groups import Cell
from esbench.units import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT: Final = 3.4  # inches, without the legend
POINTS: Final = 400
LOWEST: Final = -0.5  # of the axis of scores: what is worse is out of the figure,
HIGHEST: Final = 2.0  # and what is better
OPACITY: Final = 0.15
NAMED: Final = 3  # environments in the title
MARKS: Final = {0.0: "random policy", 1.0: "reference"}
MARK_COLOR: Final = "#888888"


@final
@dataclass(frozen=True, eq=False)
class Profile:
    """One algorithm's line.

    Attributes:
        name: of the algorithm, with its policy.
        label: its text in the legend.
        style: its look.
        threshold: [points] normalised scores.
        share: [points], of the runs above it, every environment alike.
        low, high: [points], its pointwise 95 % interval; NaN below three runs in an environment.
    """

    name: str
    label: str
    style: Style
    threshold: Floats
    share: Floats
    low: Floats
    high: Floats


def render(group: Sequence[Cell]) -> dict[str, bytes]:
    """Return the figure as bytes by file suffix, "png" and "svg".

    Empty if fewer than two environments have a frozen random and reference score and a run that is
    done.

    Args:
        group: cells of any environments.

    Raises:
        UsageError: a trial is not readable.
    """
    pairs = scored(group)
    environments = sorted({cell.environment for cell, _ in pairs})
    if not environments:
        return {}
    lines = profile_lines(pairs)
    return as_files(lambda: make_figure(environments, lines))


def scored(group: Sequence[Cell]) -> list[tuple[Cell, Floats]]:
    """Return the cells whose environment has a scale, with the scores of their runs that are done.

    None if those are fewer than two environments.

    Raises:
        UsageError: a trial is not readable.
    """
    pairs = [(cell, scores_of(cell)) for cell in group if cell.has_scale]
    pairs = [(cell, scores) for cell, scores in pairs if scores.size]
    return pairs if len({cell.environment for cell, _ in pairs}) > 1 else []


def scores_of(cell: Cell) -> Floats:
    """Return the normalised scores of the runs of a cell that are done: [runs].

    One that diverged has no score: it is minus infinity, below every threshold.
    """
    assert cell.scores.random is not None, "a cell with a scale"
    scale = cell.scores.random.mean, cell.scores.references[0].score
    scores = [trial.result()["score"] for trial in cell.trials if trial.is_done]
    return np.array([-math.inf if s is None else normalized(float(s), *scale) for s in scores])


def profile_lines(pairs: Sequence[tuple[Cell, Floats]]) -> list[Profile]:
    """Return a line for each algorithm, from cells of any environments and their scores."""
    count = len({cell.environment for cell, _ in pairs})
    thresholds = _axis(np.concatenate([scores for _, scores in pairs]))
    members: dict[str, list[tuple[Cell, Floats]]] = {}
    for cell, scores in sorted(pairs, key=lambda pair: pair[0].name):
        members.setdefault(cell.name, []).append((cell, scores))
    styles = assign_styles([(own[0][0].algorithm, name) for name, own in members.items()])
    lines = []
    for (name, own), style in zip(members.items(), styles, strict=True):
        strata = [scores for _, scores in own]
        some = f"{len(own)} of {counted(count, 'environment')}, " if len(own) < count else ""
        low, high = profile_interval(strata, thresholds)
        lines.append(
            Profile(
                name=name,
                label=f"{name} ({some}{counted(sum(map(len, strata)), 'run')})",
                style=style,
                threshold=thresholds,
                share=performance_profile(strata, thresholds),
                low=low,
                high=high,
            )
        )
    return lines


def make_figure(environments: Sequence[str], lines: Sequence[Profile]) -> Figure:
    """Return the figure.

    Args:
        environments: those that the lines are of, for the title.
        lines: of ``profile_lines``.
    """
    figure = new_figure(HEIGHT, [line.label for line in lines])
    axes = figure.subplots()
    opacity = min(OPACITY, 1 / len(lines))  # many bands lie over each other
    for index, line in enumerate(lines):
        style = line.style
        draw_line(axes, line.threshold, line.share, style, line.label, index, len(lines))
        if not np.isnan(line.low).all():
            ends = (line.threshold, line.low, line.high)
            axes.fill_between(*ends, color=style.color, alpha=opacity, linewidth=0)
    for score, name in MARKS.items():
        axes.axvline(score, color=MARK_COLOR, linestyle=":", linewidth=1.2, zorder=2)
        axes.annotate(
            name,
            (score, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 2),
            textcoords="offset points",
            horizontalalignment="center",
            fontsize=8,
            color="#444444",
        )
    axes.set_xlabel("normalized score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.03, 1.03)
    axes.margins(x=0.02)
    axes.grid(visible=True)
    many = len(environments) > NAMED
    where = counted(len(environments), "environment") if many else ", ".join(environments)
    figure.suptitle(f"Runs above a score: {where}", fontsize=10)
    add_legend(figure, axes, _legend_title(lines))
    return figure


def _axis(scores: Floats) -> Floats:
    """Return the thresholds, [points]: from random policy to reference, and as far as scores go."""
    finite = scores[np.isfinite(scores)]
    first = max(LOWEST, min(0.0, *finite)) if finite.size else 0.0
    last = min(HIGHEST, max(1.0, *finite)) if finite.size else 1.0
    return np.linspace(first, last, POINTS)


def _legend_title(lines: Sequence[Profile]) -> str:
    banded = any(not np.isnan(line.low).all() for line in lines)
    shaded = "; shaded: pointwise 95 % stratified bootstrap interval" if banded else ""
    return f"Final scores of all runs, every environment alike{shaded}"
