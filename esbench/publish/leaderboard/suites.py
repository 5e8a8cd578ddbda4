"""Suites: named grids that are published, with the entries of a leaderboard that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
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
    planned: dict[tuple[str, str], list[LabeledSpec]] = {}
    for trial in expand(grid, source):
        key = trial.labels["environment"], trial.labels["algorithm"]
        planned.setdefault(key, []).append(trial)
    plain = {
        (trial.labels["environment"], trial.labels["algorithm"]): trial
        for trial in expand(_without_settings(grid), source)
    }
    found: dict[tuple[str, str], list[tuple[Entry, SettingsOrigin]]] = {k: [] for k in planned}
    for entry in entries:
        key = entry.cell.environment, entry.cell.algorithm
        spec = entry.cell.trial_spec(0).as_json()
        tasks = [
            own[0].spec.as_json()
            for own in planned.values()
            if own[0].labels["environment"] == key[0]
        ]
        if any(all(task[part] == spec[part] for part in _TASK) for task in tasks):
            own = planned[key][0] if key in planned else None
            origin = _origin(spec, own, plain.get(key))
            found.setdefault(key, []).append((entry, origin))
    order = {environment: n for n, environment in enumerate(grid.environments)}
    cells = [
        SuiteCell(
            environment=environment,
            algorithm=algorithm,
            planned=tuple(t.spec.seed for t in planned.get((environment, algorithm), ())),
            entries=tuple(sorted(own, key=_first)),
        )
        for (environment, algorithm), own in found.items()
    ]
    cells.sort(key=lambda cell: order[cell.environment])
    return Suite(grid.name, grid.description.removeprefix(MARK), tuple(cells))


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


def _origin(spec: Json, planned: LabeledSpec | None, plain: LabeledSpec | None) -> SettingsOrigin:
    if planned is None or plain is None:
        return SettingsOrigin.OTHER
    if spec["algorithm"] == plain.spec.as_json()["algorithm"]:
        return SettingsOrigin.FILE if plain.inherited else SettingsOrigin.DEFAULTS
    same = spec["algorithm"] == planned.spec.as_json()["algorithm"]
    return SettingsOrigin.GRID if same else SettingsOrigin.OTHER


def _first(found: tuple[Entry, SettingsOrigin]) -> tuple[int, int, str]:
    entry, origin = found
    return list(SettingsOrigin).index(origin), -len(entry.seeds), entry.file_name
