"""The performance profile: which share of runs scores above which threshold.

Scores are normalised by an environment's frozen random score and reference, as in the tables. The
profile is computed by ``analysis.aggregates``. The figure needs two environments: with one, the
table already shows every score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from esbench.analysis.aggregates import performance_profile, profile_interval
from esbench.analysis.statistics import Floats, normalized
from esbench.reporting.figures.across import (
    AcrossCurve,
    by_algorithm,
    curve_label,
    make_across_figure,
)
from esbench.reporting.figures.style import MARK_COLOR, TEXT_COLOR, as_files
from esbench.store.cells import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS: Final = 400
LOWEST: Final = -0.5  # limits of the axis of scores
HIGHEST: Final = 2.0
MARKS: Final = {0.0: "random policy", 1.0: "reference"}


def render(group: Sequence[Cell]) -> dict[str, bytes]:
    """The figure as bytes by file suffix, "png" and "svg".

    Empty if fewer than two environments have a frozen random and reference score and a run that is
    done.

    Args:
        group: cells of any environments.

    Raises:
        UsageError: a trial is not readable.
    """
    if not (pairs := final_scores(group)):
        return {}
    environments = sorted({cell.environment for cell, _ in pairs})
    lines = profile_curves(pairs)
    return as_files(lambda: make_figure(environments, lines))


def final_scores(group: Sequence[Cell]) -> list[tuple[Cell, Floats]]:
    """The cells whose environment has both frozen scores, and the scores of their done runs.

    Empty below two environments.

    Raises:
        UsageError: a trial is not readable.
    """
    pairs = [(cell, cell_scores(cell)) for cell in group if cell.has_scale]
    pairs = [(cell, scores) for cell, scores in pairs if scores.size]
    return pairs if len({cell.environment for cell, _ in pairs}) > 1 else []


def cell_scores(cell: Cell) -> Floats:
    """The normalised scores [runs] of the done runs; minus infinity for one that diverged."""
    assert cell.scores.random is not None, "a cell with a scale"
    scale = cell.scores.random.mean, cell.scores.references[0].score
    scores = [trial.result()["score"] for trial in cell.trials if trial.is_done]
    return np.array([-math.inf if s is None else normalized(float(s), *scale) for s in scores])


def profile_curves(pairs: Sequence[tuple[Cell, Floats]]) -> list[AcrossCurve]:
    """One curve per algorithm: the share of runs above each normalised score.

    Args:
        pairs: cells of any environments, each with its scores [runs].
    """
    count = len({cell.environment for cell, _ in pairs})
    thresholds = _thresholds(np.concatenate([scores for _, scores in pairs]))
    curves = []
    for name, style, own in by_algorithm(pairs):
        strata = [scores for _, scores in own]
        low, high = profile_interval(strata, thresholds)
        curves.append(
            AcrossCurve(
                name=name,
                label=curve_label(name, len(own), count, sum(map(len, strata))),
                style=style,
                x=thresholds,
                share=performance_profile(strata, thresholds),
                low=low,
                high=high,
            )
        )
    return curves


def make_figure(environments: Sequence[str], curves: Sequence[AcrossCurve]) -> Figure:
    """Make the figure.

    Args:
        environments: names, for the title.
        curves: of ``profile_curves``.
    """
    banded = any(not np.isnan(curve.low).all() for curve in curves)
    shaded = "; shaded: pointwise 95 % stratified bootstrap interval" if banded else ""
    return make_across_figure(
        "Runs above a score",
        environments,
        curves,
        ("normalized score", "share of runs above it"),
        f"Final scores of all runs, every environment alike{shaded}",
        _mark_scale,
    )


def _mark_scale(axes: Axes) -> None:
    """Mark the scores of the random policy and of the reference."""
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
            color=TEXT_COLOR,
        )


def _thresholds(scores: Floats) -> Floats:
    """Thresholds [points] from the random policy to the reference, wider if scores are."""
    finite = scores[np.isfinite(scores)]
    first = max(LOWEST, min(0.0, *finite)) if finite.size else 0.0
    last = min(HIGHEST, max(1.0, *finite)) if finite.size else 1.0
    return np.linspace(first, last, POINTS)
