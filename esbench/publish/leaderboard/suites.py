"""Suites: named grids that are published, with the entries of a leaderboard that belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from esbench.core.json_text import Json
from esbench.grids.compose import compose_grid
from esbench.grids.expand import RESERVED, LabeledSpec, expand
from esbench.grids.grid_file import Grid, grid_names, parse_grid, read_grid
from esbench.publish.leaderboard.entries import Entry

MARK: Final = "suite: "
"""How the description of a grid begins if the grid is a suite."""
_TASK: Final = ("environment", "policy", "budget", "evaluation")


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
    return [n for n in grid_names() if str(read_grid(n)[0].get("description")).startswith(MARK)]


def read_suite(name: str, entries: Sequence[Entry]) -> Suite:
    """A named grid with its entries; UsageError if there is no such grid or an entry is unknown.

    An entry belongs to it if environment, policy, budget and evaluation are the same. Its settings
    may be others.
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
        spec = entry.cell.trial_spec(0).as_json()
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
    return Suite(grid.name, grid.description.removeprefix(MARK), tuple(cells))


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
