"""A grid as it is written: algorithms x environments x policies x seeds, with settings for each."""

from __future__ import annotations

import contextlib
import re
from abc import ABC
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Final, final

import gymnasium
from pydantic import AfterValidator, Field, field_validator

from esbench.core.arguments import KEPT, Arguments, plain
from esbench.core.errors import UsageError, shown, suggestion
from esbench.core.files import read_toml
from esbench.core.settings import Settings, Table, parse, untupled
from esbench.core.toml_text import toml_key, toml_line
from esbench.environments.make_environment import wrapper_tables
from esbench.environments.registration import without_alias
from esbench.grids.bases import on_bases
from esbench.grids.environment_files import EnvironmentFile, environment_names, merged
from esbench.grids.trial_spec import Seed, is_agent

NAMED: Final = Path(__file__).parent / "named"


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value!r} is given {times} times; expected once")
    return values


def _name(name: str) -> str:
    if not name.strip("."):  # a folder has it
        raise ValueError("expected a name that is not empty and has more than dots")
    return name


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[\w+-][\w.+-]*", name):
        raise ValueError("expected a folder's name of letters, digits, '_', '+', '-' and '.'")
    return name


Name = Annotated[str, AfterValidator(_name)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)]
Environments = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_distinct)]


@final
class Scope(Settings):
    """The keys that restrict the trials of one algorithm; None: the value of the grid.

    The table of an environment may have ``seeds``, which are stronger.
    """

    seeds: Seeds | None = None
    environments: Environments | None = None


class GridTables(Settings, ABC):
    """The tables of a grid; a list of names in the place of ``algorithms`` is one too."""

    algorithms: Annotated[dict[Name, Table], Field(min_length=1), KEPT]
    policy: Arguments = Field(default_factory=dict)
    policies: Annotated[dict[Name, Table], KEPT] = Field(default_factory=dict)
    budget: Table = Field(default_factory=dict)
    evaluation: Table = Field(default_factory=dict)
    environment: Annotated[dict[Name, Table], KEPT] = Field(default_factory=dict)
    tune: dict[Name, Table] = Field(default_factory=dict)

    @field_validator("algorithms", mode="before")
    @classmethod
    def _names_to_tables(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            _distinct(tuple(value))
            return {name: {} for name in value}
        if not isinstance(value, dict):
            raise ValueError("expected a table or a list of names")
        return value


@final
class Grid(GridTables):
    """The content of a grid file. Its tables are validated when the grid is expanded.

    Attributes:
        name: name of the output folder; default the name of the file.
        description: one line for ``esbench list grids``.
        seeds: training seeds, one per trial.
        environments: Gymnasium names.
        algorithms: label -> settings. The label is the algorithm's name unless the table has a key
            ``algorithm``, so that one algorithm can have several labels. A key ``policy`` is a
            table of changes to the policy; ``seeds`` and ``environments`` replace those of the grid
            for this algorithm. A label starts from the table of its algorithm, if there is one. A
            list of names stands for tables without settings; a list in a table is a sweep.
        policy: replaces the environments' policy if it names a template, else changes settings.
        policies: label -> policy, to compare several.
        budget: changes to the environments' budget.
        evaluation: changes to the environments' evaluation.
        environment: name -> changes to that environment's file, for this grid only, and ``seeds``.
        defaults: whether algorithms inherit no tuned settings from the environments' files.
        init_from: folder of a trial, or a row of the leaderboard, whose policy every trial starts
            from.
        tune: label -> setting -> its search space for ``esbench tune``, false to leave it out.
    """

    name: Annotated[str, AfterValidator(_folder_name)]
    description: str = ""
    seeds: Seeds = (0, 1, 2)
    environments: Environments
    defaults: bool = False
    init_from: str | None = None


def grid_names() -> list[str]:
    """The names of the grids that come with esbench, sorted."""
    return sorted(path.stem for path in NAMED.glob("*.toml"))


def read_grid(name_or_file: str) -> tuple[Table, str]:
    """The raw content of a grid, and its source for messages; UsageError if it is unreadable."""
    path = Path(name_or_file)
    is_file = path.suffix == ".toml"
    with contextlib.suppress(OSError):  # the name is too long
        is_file = is_file or path.is_file()
    if not is_file:
        if name_or_file not in grid_names():
            near = f"{suggestion(name_or_file, grid_names())} (or give the path of a .toml file)"
            if name_or_file in {*environment_names(), *gymnasium.registry}:
                near = f"to train in this environment: --env {name_or_file} --algorithm NAME"
            raise UsageError(f"unknown grid {name_or_file!r}; {near}")
        path = NAMED / f"{name_or_file}.toml"
    return with_tables({"name": path.stem, **read_toml(path)}, str(path)), str(path)


def with_tables(table: Table, source: str) -> Table:
    """A raw grid in which all that is to be a table is one; UsageError for values."""
    _require_types_of_agents(table)
    _require_environments(table, source)
    given = {key: table[key] for key in GridTables.model_fields if key in table}
    # A grid may get its algorithms from the command line.
    typed = parse(GridTables, {"algorithms": {"none": {}}, **given}, source)
    return {**table, **{key: getattr(typed, key) for key in given}}


def parse_grid(table: Table, source: str, unused: Collection[str] = ()) -> Grid:
    """The typed grid of a raw one, with the names of ``esbench list`` in the place of aliases.

    The tables ``environment`` of ``unused`` names are dropped if they are of no environment of the
    grid. UsageError has one line per wrong key or value.
    """
    _require_types_of_agents(table)
    given = parse(Grid, table, source)
    grid = _without_aliases(given, unused)
    for place, name in enumerate(grid.environments):
        if (first := grid.environments.index(name)) < place:
            both = f"{given.environments[first]} and {given.environments[place]}"
            raise UsageError(f"{source}: environments: {both} are one; expected one of them")
    algorithms, environment = on_bases(grid.algorithms, grid.environment, grid.algorithms)
    grid = grid.model_copy(update={"algorithms": algorithms, "environment": environment})
    if grid.policy and grid.policies:
        raise UsageError(f"{source}: both [policy] and [policies] are given; expected one of them")
    known = {"environment": grid.environments, "tune": grid.algorithms}
    for key, names in known.items():
        for name in getattr(grid, key):
            if name not in names:
                raise UsageError(
                    f"{source}: {key}.{name} is not in this grid; {suggestion(name, names)}"
                )
    return grid


def _require_environments(table: Table, source: str) -> None:
    """Raises UsageError for a setting directly in ``environment``, which has a table for each."""
    tables, names = table.get("environment"), table.get("environments")
    known = [str(name) for name in names] if isinstance(names, list) else []
    for name, value in tables.items() if isinstance(tables, dict) else ():
        if name in EnvironmentFile.model_fields and name not in known:
            meant = toml_line(name, wrapper_tables(value) if name == "wrappers" else value)
            of_one = f"[environment.{toml_key(known[0] if known else 'NAME')}]"
            raise UsageError(
                f"{source}: environment.{name} = {shown(value)}: expected the table of one "
                f"environment: {of_one}, with {meant}"
            )


def _require_types_of_agents(table: Table) -> None:
    """Raises UsageError for an argument of a user's agent that would arrive as another type.

    Settings of a search have types, which a path is converted to; arguments of an agent have none.
    """
    algorithms = table.get("algorithms")
    for label, settings in algorithms.items() if isinstance(algorithms, dict) else ():
        name = settings.get("algorithm", label) if isinstance(settings, dict) else ""
        if ":" in str(name) and _has_own_type(settings) and is_agent(str(name)):
            plain(settings, f"algorithms.{label}", own=True)


def _has_own_type(value: Any) -> bool:
    """Whether Python gave a value that TOML cannot, such as a path or a named tuple."""
    if isinstance(value, dict):
        return any(map(_has_own_type, value.values()))
    if isinstance(value, list | tuple):
        return type(value) not in (list, tuple) or any(map(_has_own_type, value))
    return isinstance(value, Path)


def _without_aliases(grid: Grid, unused: Collection[str]) -> Grid:
    """A grid with resolved names; later tables of one environment go on top of earlier ones."""

    def resolved(name: str) -> tuple[str, Any]:
        return without_alias(name, grid.environment.get(name, {}).get("kwargs", {}))

    environments = tuple(resolved(name)[0] for name in grid.environments)
    environment: dict[str, Table] = {}
    for alias, changes in grid.environment.items():
        name, kwargs = resolved(alias)
        if name in environments or alias not in unused:
            changes = {**changes, "kwargs": kwargs}
            environment[name] = merged(environment.get(name, {}), changes)
    algorithms = {
        label: {
            key: [resolved(str(name))[0] for name in value]
            if key == "environments" and isinstance(value, list)
            else value
            for key, value in untupled(Scope, settings).items()
        }
        for label, settings in grid.algorithms.items()
    }
    tables = {"environment": environment, "algorithms": algorithms}
    return grid.model_copy(update={"environments": environments, **tables})
