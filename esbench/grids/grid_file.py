"""A grid as it is written: algorithms x environments x policies x seeds, with settings for each."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, final

from pydantic import Field, field_validator, model_validator

from esbench.errors import UsageError, suggestion
from esbench.grids.environment_files import environment_table, read_toml
from esbench.grids.trial_spec import Seed
from esbench.settings import Settings, Table, parse

MOST_SEEDS: Final = 100_000
Name = Annotated[str, Field(pattern=r"[^.]")]  # a folder: not empty, "." or ".."


@final
class Grid(Settings):
    """The content of a grid file. Its tables are validated when the grid is expanded.

    Attributes:
        name: name of the output folder; default the name of the file.
        description: one line for ``esbench list grids``.
        seeds: training seeds, one per trial.
        environments: Gymnasium names.
        algorithms: label -> settings. The label is the algorithm's name unless the table has a key
            ``algorithm``, so that one algorithm can have several labels. A list of names stands
            for tables without settings.
        policy: replaces the environments' policy if it names a template, else changes settings.
        policies: label -> policy, to compare several.
        budget: changes to the environments' budget.
        evaluation: changes to the environments' evaluation.
        environment: name -> changes to that environment's file, for this grid only.
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
            _require_distinct(value)
            return {name: {} for name in value}
        return value

    @field_validator("seeds", "environments")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        _require_distinct(value)
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
    """The names of the grids that come with esbench, sorted."""
    return sorted(
        Path(item.name).stem
        for item in files("esbench.grids.named").iterdir()
        if item.name.endswith(".toml")
    )


def read_grid(name_or_file: str) -> tuple[Table, str]:
    """The raw content of a grid, and its source for messages.

    Raises:
        UsageError: there is no such grid or file, or it is not TOML.
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
    """Refuses values in the place of tables, before overrides are merged into them."""
    for key in ("algorithms", "policy", "policies", "budget", "evaluation", "environment"):
        value = table.get(key, {})
        nested = value if key == "environment" and isinstance(value, dict) else {}
        for name, item in ((key, value), *((f"{key}.{k}", v) for k, v in nested.items())):
            if not isinstance(item, dict | (list if name == "algorithms" else dict)):
                near = "; did you mean 'environments'?" if name == "environment" else ""
                raise UsageError(f"{source}: {name} = {item!r}: expected a table{near}")


def compose_grid(
    name_or_file: str | None,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
) -> tuple[Grid, str]:
    """A grid with the options of the command line applied, and its source for messages.

    Args:
        name_or_file: named grid or TOML file; None composes a grid from the other arguments.
        environments: replace the grid's environments.
        algorithms: replace the grid's algorithms, which keep their settings.
        seeds: such as "0-9"; replace the grid's seeds.
        env_steps: short for ``budget.env_steps=N``.
        overrides: ``key.sub=value``, applied in order.

    Raises:
        UsageError: a name, key or value is wrong.
    """
    table: Table
    if name_or_file is not None:
        table, source = read_grid(name_or_file)
    elif environments and algorithms:
        name = re.sub(r"[^\w.+-]", "_", "+".join([*environments, *algorithms]))
        table, source = {"name": name}, "command line"
    else:
        raise UsageError(
            "nothing to run: name a grid (esbench list grids), or give --env and --algorithm"
        )
    for environment in environments:
        environment_table(environment)  # an unknown name is reported before anything else
    if environments:
        kept = {k: v for k, v in table.get("environment", {}).items() if k in environments}
        table = {**table, "environments": list(environments), "environment": kept}
    if algorithms:
        try:
            _require_distinct(algorithms)
        except ValueError as error:
            raise UsageError(f"--algorithm {error}") from None
        own = table.get("algorithms")
        settings: Table = own if isinstance(own, dict) else {}
        table = {**table, "algorithms": {name: settings.get(name, {}) for name in algorithms}}
    if seeds is not None:
        table = {**table, "seeds": parse_seeds(seeds)}
    if env_steps is not None:
        table = apply_override(table, f"budget.env_steps={env_steps}")
    return parse_grid(_apply_overrides(table, overrides), source), source


def _apply_overrides(table: Table, assignments: Sequence[str]) -> Table:
    """Applies every ``--set`` in order; none may add an algorithm to the grid."""
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
    """The content of a grid with one ``--set key.sub=value`` applied.

    The value is read as TOML (0, false, [32, 32], "text"), or as a string if it is not TOML. It
    also replaces the setting where the grid gives it for a single environment.

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
    """The typed grid of a raw one.

    Raises:
        UsageError: one line per wrong key or value.
    """
    return parse(Grid, table, source)


def parse_seeds(text: str) -> list[int]:
    """The seeds of "0-9", "3" or "0,2,5-7".

    Raises:
        UsageError: the text is not of that form.
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
                f"--seeds {text!r}: expected at most {MOST_SEEDS} seeds, all below {2**32}"
            )
        if last < first:
            raise UsageError(
                f"--seeds {text!r}: {first}-{last} runs backwards; expected {last}-{first}"
            )
        seeds += range(first, last + 1)
    return seeds


def _require_distinct(values: Sequence[Any]) -> None:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value!r} is given {times} times; expected once")


def _split_key(key: str) -> list[str]:
    """The parts of a dotted TOML key; a part with dots in it is quoted."""
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
