"""The charts of the report: which curves, axes and marks each one has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.json_text import Json
from esbench.core.units import counted
from esbench.grids.environment_files import environment_kind
from esbench.publish.diagnosis import run_measurements
from esbench.publish.figures import across
from esbench.publish.figures.drawing import Curve, band_curve
from esbench.publish.figures.learning_curves import (
    LearningCurves,
    learning_curves,
    marks,
    shared_scores,
    smallest_decade,
)
from esbench.publish.figures.style import Style
from esbench.publish.figures.sweep_figure import sweep_figures
from esbench.publish.html.plotly_chart import make_chart
from esbench.results.cell import Cell
from esbench.results.statistics.curves import GENERATION_POINTS, TARGETS, generation_curve
from esbench.results.statistics.generations import uniform_curve_band
from esbench.results.statistics.health import RunMeasurements

POINTS: Final = 100  # of a line across environments


@final
@dataclass(frozen=True)
class HealthMeasure:
    """A measurement of a run's health, and whether its axis is logarithmic or goes from 0 to 1."""

    title: str
    values: Callable[[RunMeasurements], Floats]
    log: bool = False
    share: bool = False


HEALTH_MEASURES: Final = (
    HealthMeasure(
        "Length of the updates above 0 (radii of the population)",
        lambda run: np.where(run["update_norm"] > 0, run["update_norm"], np.nan) / run.radius,
        log=True,
    ),
    HealthMeasure("Cosine of the updates of two halves", lambda run: run["split_half_cosine"]),
    HealthMeasure("Cosine of successive updates", lambda run: run["update_cosine"]),
    HealthMeasure("Share of tied returns", lambda run: run["tied_returns"], share=True),
    HealthMeasure("Deviation of the population (sigma)", lambda run: run["sigma"], log=True),
    HealthMeasure("Distance from the start", lambda run: run["distance"]),
    HealthMeasure(
        "Drift of observation statistics", lambda run: run["observation_drift"], log=True
    ),
)


def charts_across(found: Sequence[Cell], styles: Mapping[str, Style]) -> list[Json]:
    """Make the charts over all environments with frozen scores; styles are by names of cells."""
    charts = []
    reached = across.target_ecdf(found)
    if reached and len(reached.environments) > 1:
        title = f"Share of {TARGETS} targets per environment reached within a budget"
        lines = _thinned(reached.curves, styles)
        charts.append(make_chart(title, "environment steps", lines, share=True, log_x=True))
    if above := across.performance_profile(found):
        title = "Share of runs above a score (0: random policy, 1: reference)"
        lines = _thinned(above.curves, styles)
        charts.append(make_chart(title, above.x_label, lines, vertical=(0.0, 1.0), share=True))
    return charts


def environment_charts(group: Sequence[Cell], styles: Mapping[str, Style]) -> Json:
    """The charts of ``sweeps``, ``learning`` and ``health``.

    The last two are empty if no trial has two generations.
    """
    name = group[0].environment
    shown = learning_curves(group, styles)
    contents: Json = {"name": name, "sweeps": _sweep_charts(group), "learning": [], "health": []}
    if not shown:
        return contents
    runs = {name: list(map(run_measurements, own)) for name, own in shown.trials.items()}
    learning = _return_charts(shown, group)
    if shown.rank:
        bands = [_chance(runs[curve.name]) for curve in shown.rank]
        learning.append(
            make_chart(
                "Rank of the unperturbed policy (share of members beating it)",
                "generation",
                shown.rank,
                chance=(min(low for low, _ in bands), max(high for _, high in bands)),
                share=True,
            )
        )
    return contents | {"learning": learning, "health": _health_charts(runs, styles)}


def _sweep_charts(group: Sequence[Cell]) -> list[Json]:
    return [
        make_chart(
            f"Score against {sweep.setting}",
            sweep.setting,
            sweep.curves,
            log_x=sweep.is_logarithmic,
            ticks=sweep.ticks,
        )
        for sweep in sweep_figures(group)
    ]


def _return_charts(shown: LearningCurves, group: Sequence[Cell]) -> list[Json]:
    scores = shared_scores(group)
    function = environment_kind(group[0].environment) == "function"
    title = " ".join(shown.return_label.split()).capitalize() + shown.left_out
    nearest_zero = -(10.0 ** smallest_decade(shown, scores)) if function else None
    if function:
        title += f" (log scale; values above {nearest_zero:g} are drawn at it)"
    axes = {
        "environment steps": shown.over_steps,
        f"wall-clock time ({shown.time_unit})": shown.over_time,
    }
    marked = marks(scores)
    return [
        make_chart(title, name, curves, horizontal=marked, nearest_zero=nearest_zero, end=end)
        for (name, curves), end in zip(axes.items(), shown.ends, strict=True)
    ]


def _chance(runs: Sequence[RunMeasurements]) -> tuple[float, float]:
    """The 95 % band of a point of the rank curve if the ranks carry no information."""
    members = int(min(run["population_size"].min() for run in runs))
    generations = max(1, min(run.generations for run in runs) // GENERATION_POINTS)
    return uniform_curve_band(members, len(runs), generations)


def _health_charts(
    runs: Mapping[str, Sequence[RunMeasurements]], styles: Mapping[str, Style]
) -> list[Json]:
    charts = []
    for measure in HEALTH_MEASURES:
        lines = []
        for name, members in runs.items():
            band = generation_curve([measure.values(run) for run in members], gaps=True)
            visible = np.isfinite(band.iqm) & ((band.iqm > 0) | (not measure.log))
            if visible.sum() > 1:
                label = f"{name} ({counted(len(members), 'seed')})"
                lines.append(band_curve(name, label, styles[name], band))
        if lines:
            share, log = measure.share, measure.log
            charts.append(make_chart(measure.title, "generation", lines, share=share, log_y=log))
    return charts


def _thinned(curves: Sequence[Curve], styles: Mapping[str, Style]) -> list[Curve]:
    """Curves across environments with fewer points, their ends among them."""
    kept = np.unique(np.linspace(0, across.POINTS - 1, POINTS).round().astype(np.int64))
    return [
        Curve(c.name, c.label, styles[c.name], c.x[kept], c.y[kept], c.low[kept], c.high[kept])
        for c in curves
    ]
