"""Which charts a page has: those across environments, and each one's curves, ranks and health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from esbench.analysis.curves import GENERATION_POINTS, Band, generation_curve
from esbench.analysis.efficiency import TARGETS
from esbench.analysis.generations import uniform_curve_band
from esbench.analysis.health import Run
from esbench.analysis.statistics import Floats
from esbench.grids.environment_files import environment_kind
from esbench.reporting.diagnosis import health_run
from esbench.reporting.figures import performance_profile as profiles
from esbench.reporting.figures import target_ecdf as ecdf
from esbench.reporting.figures.learning_curves import (
    MIN_GENERATIONS,
    TIME_UNITS,
    Line,
    curves,
    marks,
    return_label,
    shared_scores,
    smallest_decade,
)
from esbench.reporting.html.charts import Chart, Place, Scale, Series
from esbench.store.seed_groups import Cell
from esbench.units import counted

GENERATION: Final = "generation"
POINTS: Final = 100  # of a line across environments: a page shows no more


@final
@dataclass(frozen=True)
class Measure:
    """What is drawn of the health of runs.

    Attributes:
        title: what it is.
        values: it, from what a run recorded, [generations].
        scale: of its axis.
        share: whether it lies between 0 and 1.
    """

    title: str
    values: Callable[[Run], Floats]
    scale: Scale = "linear"
    share: bool = False


def _steps(run: Run) -> Floats:
    return np.where(run.update_norm > 0, run.update_norm, np.nan) / run.radius


MEASURES: Final = (
    Measure("Step of an update, where there is one (radii of the population)", _steps, "log"),
    Measure("Cosine of the updates of two halves", lambda run: run.split_half_cosine),
    Measure("Cosine of successive updates", lambda run: run.update_cosine),
    Measure("Share of tied returns", lambda run: run.tied_returns, share=True),
    Measure("Deviation of the population (sigma)", lambda run: run.sigma, "log"),
    Measure("Distance from the start", lambda run: run.distance),
    Measure("Drift of observation statistics", lambda run: run.observation_drift, "log"),
)


def across(found: Sequence[Cell], places: Mapping[str, Place]) -> list[Chart]:
    """Return the charts over all environments with frozen scores: targets reached, and profiles.

    Args:
        found: all cells.
        places: by the name of a cell.

    Raises:
        UsageError: a trial is not readable.
    """
    charts = []
    if (runs := ecdf.scored_runs(found)) and len({cell.environment for cell, _ in runs}) > 1:
        reached = [
            _series(places[line.name], line.label, line.env_steps, line.share)
            for line in ecdf.ecdf_lines(runs)
        ]
        title = f"Share of {TARGETS} targets an environment reached within a budget"
        charts.append(Chart(title, "environment steps", reached, share=True, x_log=True))
    if scored := profiles.scored(found):
        above = [
            _series(places[line.name], line.label, line.threshold, line.share, line.low, line.high)
            for line in profiles.profile_lines(scored)
        ]
        charts.append(
            Chart(
                "Share of runs above a score (0: random policy, 1: reference)",
                "normalized score",
                above,
                upright=(0.0, 1.0),
                share=True,
            )
        )
    return charts


@final
@dataclass(frozen=True)
class Panels:
    """The charts of one environment; none where no trial has two generations."""

    learning: list[Chart]
    health: list[Chart]


def panels(group: Sequence[Cell], places: Mapping[str, Place]) -> Panels:
    """Return the charts of one environment's cells.

    Args:
        group: the cells.
        places: by the name of a cell.

    Raises:
        UsageError: a trial is not readable.
    """
    lines = curves(group, [places[cell.name].style for cell in group])
    if not lines:
        return Panels([], [])
    runs = {cell.name: _runs(cell) for cell in group}
    return Panels(
        [*_returns(lines, group, places), *_rank(lines, runs, places)],
        _health(runs, places),
    )


def _returns(
    lines: Sequence[Line], group: Sequence[Cell], places: Mapping[str, Place]
) -> list[Chart]:
    """Return the charts of the return against steps, and against time."""
    scores = shared_scores(group)
    function = environment_kind(group[0].environment) == "function"
    longest = max(line.over_time.x[-1] for line in lines)
    unit, seconds = next((pair for pair in TIME_UNITS if longest >= 3 * pair[1]), TIME_UNITS[-1])
    exponent = smallest_decade(lines, scores) if function else 0
    title = " ".join(return_label(lines).split()).capitalize()
    if function:
        title += f" (log scale, linear above -1e{exponent})"
    axes = {
        "environment steps": [line.over_steps for line in lines],
        f"wall-clock time ({unit})": [_scaled(line.over_time, seconds) for line in lines],
    }
    return [
        Chart(
            title,
            x_label,
            [
                _over(places[line.name], line.label, band)
                for line, band in zip(lines, bands, strict=True)
            ],
            marks=marks(scores),
            scale="symlog" if function else "linear",
            linear_below=10.0**exponent,
        )
        for x_label, bands in axes.items()
    ]


def _rank(
    lines: Sequence[Line], runs: Mapping[str, Sequence[Run]], places: Mapping[str, Place]
) -> list[Chart]:
    """Return the chart of the rank, before the band where a rank that says nothing would lie."""
    ranked = [(line, line.rank) for line in lines if line.rank is not None]
    if not ranked:
        return []
    return [
        Chart(
            "Rank of the unperturbed policy (share of members beating it)",
            GENERATION,
            [_over(places[line.name], line.label, band) for line, band in ranked],
            chance=_chance([runs[line.name] for line, _ in ranked]),
            share=True,
            whole=True,
        )
    ]


def _chance(cells: Sequence[Sequence[Run]]) -> tuple[float, float]:
    """Return the widest of the bands where a cell's curve lies if its ranks say nothing."""
    bands = {
        uniform_curve_band(
            int(min(run.population_size.min() for run in runs)),
            len(runs),
            max(1, min(run.generations for run in runs) // GENERATION_POINTS),
        )
        for runs in cells
    }
    return min(low for low, _ in bands), max(high for _, high in bands)


def _health(runs: Mapping[str, Sequence[Run]], places: Mapping[str, Place]) -> list[Chart]:
    """Return a chart of each measure that was taken."""
    charts = []
    for measure in MEASURES:
        bands = {
            name: generation_curve([measure.values(run) for run in members], gaps=True)
            for name, members in runs.items()
            if members
        }
        series = [
            _over(places[name], _size(runs[name], name), band)
            for name, band in bands.items()
            if _visible(band.iqm, measure.scale)
        ]
        if series:
            charts.append(
                Chart(
                    measure.title,
                    GENERATION,
                    series,
                    scale=measure.scale,
                    share=measure.share,
                    whole=True,
                )
            )
    return charts


def _runs(cell: Cell) -> list[Run]:
    """Return the runs that curves are drawn of: those that are done, or without any all."""
    runs = {trial: health_run(trial) for trial in cell.trials}
    long = {trial: run for trial, run in runs.items() if run.generations >= MIN_GENERATIONS}
    return [run for trial, run in long.items() if trial.is_done] or list(long.values())


def _visible(values: Floats, scale: Scale) -> bool:
    """Return whether an axis has places for a line of these values."""
    return int(np.sum(np.isfinite(values) & ((values > 0) | (scale != "log")))) > 1


def _scaled(band: Band, unit: float) -> Band:
    return Band(band.x / unit, band.iqm, band.low, band.high, band.runs)


def _size(runs: Sequence[Run], name: str) -> str:
    return f"{name} ({counted(len(runs), 'seed')})"


def _over(place: Place, label: str, band: Band) -> Series:
    return Series(place, label, band.x, band.iqm, band.low, band.high)


def _series(place: Place, label: str, x: Floats, y: Floats, *interval: Floats) -> Series:
    """Return a line with fewer points, the first and the last among them."""
    low, high = interval or (np.full_like(x, np.nan),) * 2
    kept = np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(np.int64))
    return Series(place, label, x[kept], y[kept], low[kept], high[kept])
