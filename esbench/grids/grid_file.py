"""A grid as it is written: algorithms x environments x policies x seeds, with settings for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, final

import gymnasium
from pydantic import AfterValidator, Field, field_validator, model_validator

from esbench.core.errors import UsageError, suggestion
from esbench.core.settings import Settings, Table, parse, require_shallow
from esbench.environments.registration import without_alias
from esbench.grids.environment_files import EnvironmentFile, environment_names, merged, read_toml
from esbench.grids.trial_spec import Seed

NAMED: Final = Path(__file__).parent / "named"
Name = Annotated[str, Field(pattern=r"[^.]")]  # a folder: not empty, "." or ".."


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    require_distinct(values)
    return values


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[\w+-][\w.+-]*", name):
        raise ValueError(
            "expected a folder's name of letters, digits, '_', '+', '-' and '.', and not '.' "
            "first (a grid without a name has that of its file)"
        )
    return name


Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)]
Environments = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_distinct)]


@final
class Scope(Settings):
    """The keys that restrict the trials of one algorithm; None: the value of the grid.

    The table of an environment may have ``seeds``, which are stronger.
    """

    seeds: Seeds | None = None
    environments: Environments | None = None


@final
class Grid(Settings):
    """The content of a grid file. Its tables are validated when the grid is expanded.

    Attributes:
        name: name of the output folder; default the name of the file.
        description: one line for ``esbench list grids``.
        seeds: training seeds, one per trial.
        environments: Gymnasium names.
        algorithms: label -> settings. The label is the algorithm's name unless the table has a key
            ``algorithm``, so that one algorithm can have several labels. A key ``policy`` is a
            table of changes to the policy; ``seeds`` and ``environments`` replace those of the grid
            for this algorithm. A list of names stands for tables without settings; a
            list in a table is a sweep.
        policy: replaces the environments' policy if it names a template, else changes settings.
        policies: label -> policy, to compare several.
        budget: changes to the environments' budget.
        evaluation: changes to the environments' evaluation.
        environment: name -> changes to that environment's file, for this grid only, and ``seeds``.
        init_from: folder of a trial whose policy every trial starts from.
        tune: label -> setting -> its search space for ``esbench tune``, false to leave it out.
    """

    name: Annotated[str, AfterValidator(_folder_name)]
    description: str = ""
    seeds: Seeds = (0, 1, 2)
    environments: Environments
    algorithms: Annotated[dict[Name, Table], Field(min_length=1)]
    policy: Table = Field(default_factory=dict)
    policies: dict[Name, Table] = Field(default_factory=dict)
    budget: Table = Field(default_factory=dict)
    evaluation: Table = Field(default_factory=dict)
    environment: dict[Name, Table] = Field(default_factory=dict)
    init_from: str | None = None
    tune: dict[Name, Table] = Field(default_factory=dict)

    @field_validator("algorithms", mode="before")
    @classmethod
    def _names_to_tables(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            require_distinct(value)
            return {name: {} for name in value}
        if not isinstance(value, dict):
            raise ValueError("expected a table or a list of names")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Grid:
        if self.policy and self.policies:
            raise ValueError("both [policy] and [policies] are given; expected one of them")
        for name in self.environment:
            if name not in self.environments:
                near = suggestion(name, self.environments)
                raise ValueError(f"[environment.{name!r}] is not among the environments; {near}")
        for label in self.tune:
            if label not in self.algorithms:
                near = suggestion(label, self.algorithms)
                raise ValueError(f"[tune.{label}] is not among the algorithms; {near}")
        return self


def grid_names() -> list[str]:
    """The names of the grids that come with esbench, sorted."""
    return sorted(path.stem for path in NAMED.glob("*.toml"))


def read_grid(name_or_file: str) -> tuple[Table, str]:
    """The raw content of a grid, and its source for messages; UsageError if it is unreadable."""
    path = Path(name_or_file)
    if path.suffix != ".toml" and not _is_file(path):
        if name_or_file not in grid_names():
            if name_or_file in {*environment_names(), *gymnasium.registry}:
                raise UsageError(
                    f"unknown grid {name_or_file!r}; to train in this environment: --env "
                    f"{name_or_file} --algorithm NAME"
                )
            raise UsageError(
                f"unknown grid {name_or_file!r}; {suggestion(name_or_file, grid_names())} "
                "(or give the path of a .toml file)"
            )
        path = NAMED / f"{name_or_file}.toml"
    table = {"name": path.stem, **read_toml(path)}
    require_tables(table, str(path))
    return table, str(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def require_tables(table: Table, source: str) -> None:
    """Refuses values in the place of tables."""
    require_shallow(table, source)
    for key in ("algorithms", "policy", "policies", "budget", "evaluation", "environment", "tune"):
        value = table.get(key, {})
        nested = value if key in {"environment", "tune"} and isinstance(value, dict) else {}
        for name, item in ((key, value), *((f"{key}.{k}", v) for k, v in nested.items())):
            if not isinstance(item, dict | (list if name == "algorithms" else dict)):
                hint = "; did you mean 'environments'?" if name == "environment" else ""
                setting = name.removeprefix("environment.")
                if setting != name and setting in EnvironmentFile.model_fields:
                    hint = f", as in environment.CartPole-v1.{setting} = {item!r}"
                what = "a table or a list of names" if name == "algorithms" else "a table"
                raise UsageError(f"{source}: {name} = {item!r}: expected {what}{hint}")


def parse_grid(table: Table, source: str, unused: Collection[str] = ()) -> Grid:
    """The typed grid of a raw one, with the names of ``esbench list`` in the place of aliases.

    The tables ``environment`` of ``unused`` names are dropped if they are of no environment of the
    grid. UsageError has one line per wrong key or value.
    """
    return parse(Grid, _without_aliases(table, unused), source)


def _without_aliases(table: Table, unused: Collection[str]) -> Table:
    """A raw grid with resolved names; later tables of one environment go on top of earlier ones."""
    names, tables = table.get("environments"), table.get("environment", {})
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return table  # refused by the types
    if not (isinstance(tables, dict) and all(isinstance(each, dict) for each in tables.values())):
        return table
    resolved = [without_alias(name, _kwargs(tables.get(name, {})))[0] for name in names]
    own: dict[str, Table] = {}
    for alias, changes in tables.items():
        name, kwargs = without_alias(alias, _kwargs(changes))
        if name in resolved or alias not in unused:
            own[name] = merged(own.get(name, {}), {**changes, "kwargs": kwargs})
    return {**table, "environments": resolved, "environment": own, **_scopes(table, tables)}


def _scopes(table: Table, tables: Table) -> Table:
    """The tables ``algorithms`` of a raw grid with resolved names in their ``environments``."""
    algorithms = table.get("algorithms")
    if not isinstance(algorithms, dict):
        return {}
    changed = {}
    for label, settings in algorithms.items():
        names = settings.get("environments") if isinstance(settings, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            resolved = [without_alias(name, _kwargs(tables.get(name, {})))[0] for name in names]
            settings = {**settings, "environments": resolved}
        changed[label] = settings
    return {"algorithms": changed}


def _kwargs(changes: Table) -> Any:
    return changes.get("kwargs", {})


def require_distinct(values: Sequence[Any]) -> None:
    """Raises ValueError, which names the value, if one is there twice."""
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value!r} is given {times} times; expected once")
