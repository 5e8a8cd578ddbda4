"""Suites: named grids that are published, with their entries of a leaderboard and their figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from statistics import fmean
from typing import Any, Final, final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.units import counted
from esbench.core.user_code import own_names
from esbench.grids.bases import RESERVED
from esbench.grids.compose import compose_grid
from esbench.grids.expand import LabeledSpec, expand
from esbench.grids.grid_file import Grid, grid_names, parse_grid, read_grid
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.figures.across import performance_profile
from esbench.publish.figures.chart import Chart, Curve, band_curve, chart_drawing, grid_drawing
from esbench.publish.figures.drawing import Drawing
from esbench.publish.figures.style import Style, assign_styles
from esbench.results.baselines import OWN_MEAN
from esbench.results.entries import Entry
from esbench.results.statistics.curves import Band, blocks, curve_band
from esbench.results.statistics.estimates import iqm
from esbench.results.statistics.quantile_bounds import QUANTILES

SUITE: Final = "suite: "
"""How the description of a grid begins if the grid is a suite."""
_TASK: Final = ("environment", "policy", "budget", "evaluation")
RANK_POINTS: Final = 15  # a rank comes from few episodes: it is noisier than a return
FEWEST_POINTS: Final = 3  # of a panel that compares
MEDIAN: Final = QUANTILES.index(0.5)


class SettingsOrigin(StrEnum):
    """Where the settings of an algorithm come from, the one to show first at the top."""

    GRID = "suite"
    FILE = "file"
    DEFAULTS = "defaults"
    OTHER = "other"


@final
@dataclass(frozen=True)
class SuiteCell:
    """One algorithm in one environment of a suite.

    Attributes:
        planned: the seeds of the grid; none if the grid does not have the algorithm here.
        entries: those of this task, with the origin of their settings, the one to show first.
    """

    environment: str
    algorithm: str
    planned: tuple[int, ...]
    entries: tuple[tuple[Entry, SettingsOrigin], ...]

    @property
    def shown(self) -> Entry | None:
        """The entry of a figure."""
        return self.entries[0][0] if self.entries else None

    @property
    def missing(self) -> tuple[int, ...]:
        """The planned seeds that the shown entry lacks."""
        done = self.shown.seeds if self.shown else ()
        return tuple(seed for seed in self.planned if seed not in done)


@final
@dataclass(frozen=True)
class Suite:
    """A grid with the cells of all its environments, in its order."""

    name: str
    description: str
    cells: tuple[SuiteCell, ...]

    @property
    def environments(self) -> list[str]:
        """The names of the environments."""
        return list(dict.fromkeys(cell.environment for cell in self.cells))

    @property
    def shown(self) -> list[Entry]:
        """One entry of each cell that has one."""
        return [cell.shown for cell in self.cells if cell.shown]


def suite_names() -> list[str]:
    """The named grids that are suites, sorted."""
    return [n for n in grid_names() if str(read_grid(n)[0].get("description")).startswith(SUITE)]


def read_suite(name: str, entries: Sequence[Entry]) -> Suite:
    """A named grid with its entries; UsageError if there is no such grid or an entry is unknown.

    An entry belongs to it if environment, policy, budget and evaluation are the same. Its settings
    may be others. One that names code of its author's own is left out.
    """
    grid, source = compose_grid(name)
    planned = _by_cell(expand(grid, source))
    plain = _by_cell(expand(_without_settings(grid), source))
    tasks: dict[str, list[Json]] = {environment: [] for environment in grid.environments}
    for (environment, _), trials in planned.items():
        tasks[environment].append(_task(trials[0].spec.as_json()))
    found: dict[tuple[str, str], list[tuple[Entry, SettingsOrigin]]] = {k: [] for k in planned}
    for entry in entries:
        key = entry.cell.environment, entry.cell.algorithm
        if own_names([entry.spec]):
            continue
        spec = entry.to_cell().trial_spec(0).as_json()
        if _task(spec) in tasks.get(key[0], []):
            origin = _origin(spec, planned.get(key, ()), plain.get(key, ()))
            found.setdefault(key, []).append((entry, origin))
    cells = [
        SuiteCell(
            environment=environment,
            algorithm=algorithm,
            planned=tuple(t.spec.seed for t in planned.get((environment, algorithm), ())),
            entries=tuple(sorted(own, key=_first)),
        )
        for (environment, algorithm), own in found.items()
    ]
    cells.sort(key=lambda cell: grid.environments.index(cell.environment))
    return Suite(grid.name, grid.description.removeprefix(SUITE), tuple(cells))


def _by_cell(trials: Iterable[LabeledSpec]) -> dict[tuple[str, str], list[LabeledSpec]]:
    found: dict[tuple[str, str], list[LabeledSpec]] = {}
    for trial in trials:
        key = trial.labels["environment"], trial.labels["algorithm"]
        found.setdefault(key, []).append(trial)
    return found


def _task(spec: Json) -> Json:
    return {part: spec[part] for part in _TASK}


def _without_settings(grid: Grid) -> Grid:
    """The grid without its own settings of algorithms."""
    table = grid.model_dump(mode="json", exclude_defaults=True)
    table["algorithms"] = {
        label: {key: value for key, value in settings.items() if key in RESERVED}
        for label, settings in grid.algorithms.items()
    }
    for own in table.get("environment", {}).values():
        own.pop("algorithms", None)
    return parse_grid(table, grid.name)


def _origin(
    spec: Json, planned: Sequence[LabeledSpec], plain: Sequence[LabeledSpec]
) -> SettingsOrigin:
    def is_of(trials: Sequence[LabeledSpec]) -> bool:
        return any(trial.spec.as_json()["algorithm"] == spec["algorithm"] for trial in trials[:1])

    if is_of(plain):
        return SettingsOrigin.FILE if plain[0].inherited else SettingsOrigin.DEFAULTS
    return SettingsOrigin.GRID if is_of(planned) else SettingsOrigin.OTHER


def _first(found: tuple[Entry, SettingsOrigin]) -> tuple[int, int, str]:
    entry, origin = found
    return list(SettingsOrigin).index(origin), -len(entry.seeds), entry.file_name


# Figures


def suite_drawings(suite: Suite) -> dict[str, Drawing]:
    """The figures of a suite by name; UsageError if it has no entry.

    "curves", "ranks", "tails" and "best-seen" have one panel per environment. "profile" is over
    environments with a published reference, if there are two, and algorithms with results in each.
    "tails" and "best-seen" compare algorithms, so they need an environment with three.
    """
    if not suite.shown:
        raise UsageError(f"the leaderboard has no entry of the suite {suite.name}; expected one")
    names = sorted({entry.cell.algorithm for entry in suite.shown})
    styles = assign_styles({name: name for name in names})
    panels = partial(_panels, suite, styles)
    reading = _over_seeds(suite)
    drawings = {
        "curves": panels("return of the unperturbed policy", reading, _returns),
        "ranks": panels(
            "share of members that beat it", reading, _ranks, levels=[(0.5, "")], is_share=True
        ),
    }
    if max(Counter(entry.cell.environment for entry in suite.shown).values()) >= FEWEST_POINTS:
        point = "over seeds, one point per algorithm; dotted: equal"
        square = partial(panels, is_square=True)
        drawings["tails"] = square(
            "mean of the worst tenth", f"mean {point}", _tail, x_label="median episode"
        )
        drawings["best-seen"] = square(
            "largest mean of five generations", f"IQM {point}", _best_seen, x_label="final score"
        )
    cells = [replace(entry.to_cell(), policy=DEFAULT_LABEL) for entry in in_every_scale(suite)]
    if profile := performance_profile(cells, styles):
        drawings["profile"] = chart_drawing(profile)
    return drawings


def in_every_scale(suite: Suite) -> list[Entry]:
    """The entries in environments with a published score, of algorithms that are in all of them."""
    scaled = [entry for entry in suite.shown if entry.cell.reference_source != OWN_MEAN]
    total = len({entry.cell.environment for entry in scaled})
    counts = Counter(entry.cell.algorithm for entry in scaled)
    return [entry for entry in scaled if counts[entry.cell.algorithm] == total]


def _over_seeds(suite: Suite) -> str:
    counts = sorted({len(entry.seeds) for entry in suite.shown})
    seeds = (
        counted(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    )
    return f"IQM over {seeds}, shaded: 95 % bootstrap interval"


def _panels(
    suite: Suite,
    styles: Mapping[str, Style],
    label: str,
    reading: str,
    curve_of: Callable[[Entry], Band | tuple[float, float] | None],
    x_label: str = "environment steps",
    **how: Any,
) -> Drawing:
    """One panel per environment that has an entry, with a band or a point for each entry."""
    curves: dict[str, list[Curve]] = {entry.cell.environment: [] for entry in suite.shown}
    for entry in suite.shown:
        name, found = entry.cell.algorithm, curve_of(entry)
        look = name, name, styles[name]
        if isinstance(found, Band) and np.isfinite(found.iqm).any():
            curves[entry.cell.environment].append(band_curve(*look, found))
        elif isinstance(found, tuple):
            none = np.zeros(0)
            curves[entry.cell.environment].append(Curve(*look, none, none, none, none, end=found))
    charts = [
        Chart(title=name, x_label=x_label, y_label=label, curves=own, **how)
        for name, own in curves.items()
    ]
    return grid_drawing(charts, reading)


def _returns(entry: Entry) -> Band | None:
    return entry.curves and entry.curves.band()


def _ranks(entry: Entry) -> Band | None:
    if entry.curves is None:
        return None
    values = np.array(entry.curves.ranks, dtype=np.float64)
    return curve_band(blocks(entry.curves.env_steps, RANK_POINTS), blocks(values, RANK_POINTS))


def _tail(entry: Entry) -> tuple[float, float]:
    median = fmean(run.quantiles[MEDIAN] for run in entry.runs)
    return median, fmean(run.tail for run in entry.runs)


def _best_seen(entry: Entry) -> tuple[float, float] | None:
    best = [run.best_center for run in entry.runs if run.best_center is not None]
    return (float(iqm(entry.scores)), float(iqm(best))) if len(best) == len(entry.runs) else None
