"""The charts of the report: those of figures, and the health of the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final, Literal, TypeAlias

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.json_text import Json
from esbench.core.units import counted
from esbench.publish.diagnosis import run_measurements
from esbench.publish.figures import across
from esbench.publish.figures.chart import Chart, band_curve
from esbench.publish.figures.learning_curves import learning_charts
from esbench.publish.figures.style import Style
from esbench.publish.figures.sweep_charts import sweep_charts
from esbench.publish.html.plotly_chart import make_chart
from esbench.results.cell import Cell
from esbench.results.statistics.curves import GENERATION_POINTS, generation_curve
from esbench.results.statistics.generations import uniform_curve_band
from esbench.results.statistics.health import RunMeasurements

POINTS: Final = 100  # of a line across environments
HealthAxis: TypeAlias = Literal["linear", "log", "share"]
HEALTH_MEASURES: Final[dict[str, tuple[Callable[[RunMeasurements], Floats], HealthAxis]]] = {
    "Length of the updates above 0 (radii of the population)": (
        lambda run: np.where(run["update_norm"] > 0, run["update_norm"], np.nan) / run.radius,
        "log",
    ),
    "Cosine of the updates of two halves": (itemgetter("split_half_cosine"), "linear"),
    "Cosine of successive updates": (itemgetter("update_cosine"), "linear"),
    "Share of tied returns": (itemgetter("tied_returns"), "share"),
    "Deviation of the population (sigma)": (itemgetter("sigma"), "log"),
    "Distance from the start": (itemgetter("distance"), "linear"),
    "Drift of observation statistics": (itemgetter("observation_drift"), "log"),
}


def charts_across(found: Sequence[Cell], styles: Mapping[str, Style]) -> list[Json]:
    """Make the charts over all environments with frozen scores; styles are by names of cells."""
    charts = [across.target_ecdf(found, styles), across.performance_profile(found, styles)]
    return [make_chart(_thinned(c)) for c in charts if c and len(c.environments) > 1]


def environment_charts(group: Sequence[Cell], styles: Mapping[str, Style]) -> Json:
    """The charts of ``sweeps``, ``learning`` and ``health``.

    The last two are empty if no trial has two generations.
    """
    shown = learning_charts(group, styles)
    learning: list[Chart] = []
    health: list[Chart] = []
    if shown:
        runs = {name: list(map(run_measurements, own)) for name, own in shown.trials.items()}
        learning = [shown.panels["steps"], shown.panels["time"]]
        if (rank := shown.panels["rank"]).curves:
            bands = [_chance(runs[curve.name]) for curve in rank.curves]
            chance = min(low for low, _ in bands), max(high for _, high in bands)
            learning.append(replace(rank, chance=chance, levels=()))
        health = _health_charts(runs, styles)
    return {
        "name": group[0].environment,
        "sweeps": list(map(make_chart, sweep_charts(group).values())),
        "learning": list(map(make_chart, learning)),
        "health": list(map(make_chart, health)),
    }


def _chance(runs: Sequence[RunMeasurements]) -> tuple[float, float]:
    """The 95 % band of a point of the rank curve if the ranks carry no information."""
    members = int(min(run["population_size"].min() for run in runs))
    generations = max(1, min(run.generations for run in runs) // GENERATION_POINTS)
    return uniform_curve_band(members, len(runs), generations)


def _health_charts(
    runs: Mapping[str, Sequence[RunMeasurements]], styles: Mapping[str, Style]
) -> list[Chart]:
    charts = []
    for title, (values, scale) in HEALTH_MEASURES.items():
        log, lines = scale == "log", []
        for name, members in runs.items():
            band = generation_curve(list(map(values, members)), gaps=True)
            visible = np.isfinite(band.iqm) & ((band.iqm > 0) | (not log))
            if visible.sum() > 1:
                label = f"{name} ({counted(len(members), 'seed')})"
                lines.append(band_curve(name, label, styles[name], band))
        if lines:
            chart = Chart(title=title, x_label="generation", y_label="", curves=lines, log_y=log)
            charts.append(replace(chart, is_share=scale == "share"))
    return charts


def _thinned(chart: Chart) -> Chart:
    """A chart whose curves have fewer points, their ends among them."""
    kept = np.unique(np.linspace(0, across.POINTS - 1, POINTS).round().astype(np.int64))
    parts = ("x", "y", "low", "high")
    curves = [
        replace(curve, **{name: getattr(curve, name)[kept] for name in parts})
        for curve in chart.curves
    ]
    return replace(chart, curves=curves)
