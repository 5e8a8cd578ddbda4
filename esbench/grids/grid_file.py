"""A grid as a person writes it.

A grid is TOML: algorithms x environments x policies x seeds, with settings for each. From weakest
to strongest, a setting comes from the algorithm's defaults, the environment's file, the grid, the
grid's table for the environment, and ``--set``.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator, model_validator

from esbench.errors import UsageError, suggestion
from esbench.grids.environment_files import read_toml
from esbench.grids.trial_spec import Seed
from esbench.settings import Settings, Table, parse

MOST_SEEDS: Final = 100_000
Name = Annotated[str, Field(pattern=r"[^.]")]  # a folder: neither empty nor . nor ..


class Grid(Settings):
    """A grid file, as a person writes it.

    Attributes:
        name: of the output folder; the file's name by default.
        description: one line for ``esbench list grids``.
        seeds: training seeds, one trial each.
        environments: Gymnasium names.
        algorithms: label -> settings; the label is the algorithm's name, unless the table has a
            key ``algorithm``: so one algorithm can run with several settings. A list of names
            stands for tables without settings.
        policy: replaces the environments' template, or changes its settings if it names none.
        policies: label -> policy, to run several.
        budget, evaluation: change the environments' own.
        environment: name -> anything of its file in ``envs/``, for this grid only.
    """

    name: Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]
    description: str = ""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1, 2)
    environments: Annotated[tuple[Name, ...], Field(min_length=1)]
    algorithms: Annotated[dict[Name, Table], Field(min_length=1)]
    policy: Table = Field(default_factory=dict)
    policies: dict[Name, Table] = Field(default_factory=dict)
    budget: Table = Field(default_factory=dict)
    evaluation: Table = Field(default_factory=dict)
    environment: dict[Name, Table] = Field(default_factory=dict)

    @field_validator("algorithms", mode="before")
    @classmethod
    def _names_to_tables(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            require_distinct(value)
            return {name: {} for name in value}
        return value

    @field_validator("seeds", "environments")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        require_distinct(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Grid:
        if self.policy and self.policies:
            raise ValueError("both [policy] and [policies] are given; expected one of them")
        for name in self.environment:
            if name not in self.environments:
                near = suggestion(name, self.environments)
                raise ValueError(f"[environment.{name!r}] is not among the environments; {near}")
        return self


def grid_names() -> list[str]:
    """Return the names of the grids that come with esbench, sorted."""
    return sorted(
        Path(item.name).stem
        for item in files("esbench.grids.named").iterdir()
        if item.name.endswith(".toml")
    )


def read_grid(name_or_file: str) -> tuple[Table, str]:
    """Return a grid's raw content, and its source for messages.

    Raises:
        UsageError: no such grid or file, or it is not TOML.
    """
    path = Path(name_or_file)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise UsageError(f"no grid file {name_or_file!r}; expected a TOML file")
    else:
        if name_or_file not in grid_names():
            raise UsageError(
                f"unknown grid {name_or_file!r}; {suggestion(name_or_file, grid_names())} "
                "(or give the path of a .toml file)"
            )
        path = Path(str(files("esbench.grids.named").joinpath(f"{name_or_file}.toml")))
    table = {"name": path.stem, **read_toml(path)}
    _require_tables(table, str(path))
    return table, str(path)


def _require_tables(table: Table, source: str) -> None:
    """Refuse a value where a table belongs, before overrides are put into it."""
    for key in ("algorithms", "policy", "policies", "budget", "evaluation", "environment"):
        value = table.get(key, {})
        nested = value if key == "environment" and isinstance(value, dict) else {}
        for name, item in ((key, value), *((f"{key}.{k}", v) for k, v in nested.items())):
            if not isinstance(item, dict | (list if name == "algorithms" else dict)):
                near = "; did you mean 'environments'?" if name == "environment" else ""
                raise UsageError(f"{source}: {name} = {item!r}: expected a table{near}")


def apply_overrides(table: Table, assignments: Sequence[str]) -> Table:
    """Return a grid's content with every ``--set key.sub=value`` applied, in order.

    Raises:
        UsageError: there is no "=" or no key, or one sets what is of no algorithm in the grid.
    """
    labels = table.get("algorithms")
    for assignment in assignments:
        table = apply_override(table, assignment)
        if assignment.partition("=")[0].strip() == "algorithms":
            labels = table["algorithms"]
    now = table.get("algorithms")
    if labels and isinstance(labels, dict | list) and isinstance(now, dict):
        known = [label for label in labels if isinstance(label, str)]
        for label in now:
            if label not in known:
                near = suggestion(label, known)
                raise UsageError(f"algorithms.{label} (--set) is not in this grid; {near}")
    return table


def apply_override(table: Table, assignment: str) -> Table:
    """Return a grid's content with one ``--set key.sub=value`` applied.

    The value is read as TOML (0, false, [32, 32], "text"); what is not TOML is a string. It also
    beats a setting that the grid makes for a single environment.

    Raises:
        UsageError: there is no "=" or no key.
    """
    key, equals, text = assignment.partition("=")
    path = _split_key(key.strip())
    if not equals or not path:
        raise UsageError(
            f"--set {assignment!r}: expected key.sub=value, such as budget.env_steps=1000"
        )
    result = _assigned(table, path, _toml_value(text.strip()))
    if path[0] != "environment":
        for name, settings in table.get("environment", {}).items():
            result = _assigned(result, ["environment", name], _without(settings, path))
    return result


def parse_grid(table: Table, source: str) -> Grid:
    """Return a grid's content as a typed grid.

    Raises:
        UsageError: one line a wrong key or value.
    """
    return parse(Grid, table, source)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of "0-9", "3" or "0,2,5-7".

    Raises:
        UsageError: the text is none of these.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise UsageError(f"--seeds {text!r}: expected seeds such as 3, 0-9 or 0,2,5-7")
        first = int(match[1])
        last = int(match[2] or first)
        if last >= 2**32 or last - first >= MOST_SEEDS:
            raise UsageError(
                f"--seeds {text!r}: expected seeds below {2**32}, and at most {MOST_SEEDS} of them"
            )
        if last < first:
            raise UsageError(
                f"--seeds {text!r}: {first}-{last} runs backwards; expected {last}-{first}"
            )
        seeds += range(first, last + 1)
    return seeds


def require_distinct(values: Sequence[Any]) -> None:
    """Raise ValueError if a value is there twice."""
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value!r} is given {times} times; expected once")


def _split_key(key: str) -> list[str]:
    """Return the parts of a dotted TOML key; parts may be quoted, as "Hopper-v5" must not be."""
    parts = re.findall(r'"([^"]+)"|([^.\s"]+)', key)
    return [quoted or plain for quoted, plain in parts]


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assigned(table: Table, path: list[str], value: Any) -> Table:
    head, *rest = path
    if not rest:
        return {**table, head: value}
    below = table.get(head, {})
    if isinstance(below, list) and head == "algorithms":
        below = {name: {} for name in below}
    if not isinstance(below, dict):
        raise UsageError(
            f"--set: {head} = {below!r} is a value, not a table; it has no {rest[0]!r}"
        )
    return {**table, head: _assigned(below, rest, value)}


def _without(table: Table, path: list[str]) -> Table:
    head, *rest = path
    if head not in table:
        return table
    if not rest:
        return {key: value for key, value in table.items() if key != head}
    return {**table, head: _without(table[head], rest)} if isinstance(table[head], dict) else table
