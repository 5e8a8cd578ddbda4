"""Which trials a grid has, where they lie, and which are done.

A grid is TOML: algorithms x environments x policies x seeds, with settings for each. From weakest
to strongest, a setting comes from the algorithm's defaults, the environment's file, the grid, the
grid's table for the environment, and ``--set``.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, final

from pydantic import Field, field_validator, model_validator

from esbench.environments import EnvironmentFile, load_environment, merged, read_toml
from esbench.errors import UsageError, suggestion
from esbench.registry import ALGORITHMS, BACKENDS, POLICIES
from esbench.settings import Settings, Table, fields_at, parse
from esbench.spec import (
    AlgorithmSpec,
    BudgetSpec,
    EnvironmentSpec,
    EvaluationSpec,
    PolicySpec,
    Seed,
    TrialSpec,
)
from esbench.store import DamagedTrialError, TrialFolder

DEFAULT_LABEL: Final = "default"
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


@final
@dataclass(frozen=True)
class Trial:
    """One cell of a grid: its specification, its labels and its folder."""

    spec: TrialSpec
    labels: dict[str, str]
    folder: TrialFolder

    @property
    def name(self) -> str:
        """The cell in words."""
        policy = self.labels["policy"]
        middle = self.labels["algorithm"] + ("" if policy == DEFAULT_LABEL else f" {policy}")
        return f"{self.labels['environment']} {middle} seed {self.spec.seed}"


def grid_names() -> list[str]:
    """Return the names of the grids that come with esbench, sorted."""
    return sorted(
        Path(item.name).stem
        for item in files("esbench.grids").iterdir()
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
        path = Path(str(files("esbench.grids").joinpath(f"{name_or_file}.toml")))
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


def expand(grid: Grid, out: Path, source: str) -> list[Trial]:
    """Return every trial of a grid, environments first, then algorithms, policies and seeds.

    Raises:
        UsageError: any name, key or value is wrong; nothing has been written.
    """
    trials = [
        trial
        for name in grid.environments
        for trial in _Layers(grid, load_environment(name), source).trials(out)
    ]
    owners: dict[Path, Trial] = {}
    for trial in trials:
        other = owners.setdefault(trial.folder.path, trial)
        if other is not trial:
            raise UsageError(
                f"{source}: {other.labels} and {trial.labels} would share the folder "
                f"{trial.folder.path}; expected labels that differ in letters, digits or . + -"
            )
    return trials


def open_grid(
    name_or_file: str | None,
    *,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
    out: Path | None = None,
) -> tuple[Path, list[Trial]]:
    """Return a grid's output folder and its trials, checked against what the folder holds.

    Args:
        name_or_file: a named grid or a TOML file; None makes one of the other arguments.
        environments: take the place of the grid's own.
        algorithms: take the place of the grid's own; settings of those it names are kept.
        seeds: such as "0-9"; take the place of the grid's own.
        env_steps: shorthand for ``budget.env_steps=N``.
        overrides: ``key.sub=value``, applied in order.
        out: the output folder; ``results/runs/NAME`` by default.

    Raises:
        UsageError: anything is wrong; nothing has been written.
    """
    if name_or_file is None and not (environments and algorithms):
        raise UsageError(
            "nothing to run: name a grid (esbench list grids), or give --env and --algorithm"
        )
    table: Table
    if name_or_file is None:
        name = re.sub(r"[^\w.+-]", "_", "+".join([*environments, *algorithms]))
        table, source = {"name": name}, "command line"
    else:
        table, source = read_grid(name_or_file)
    if environments:
        table = {**table, "environments": list(environments)}
        kept = {k: v for k, v in table.get("environment", {}).items() if k in environments}
        table = {**table, "environment": kept}
    if algorithms:
        own = table.get("algorithms")
        settings: Table = own if isinstance(own, dict) else {}
        _require_distinct_option("--algorithm", algorithms)
        table = {**table, "algorithms": {name: settings.get(name, {}) for name in algorithms}}
    if seeds is not None:
        table = {**table, "seeds": parse_seeds(seeds)}
    if env_steps is not None:
        table = apply_override(table, f"budget.env_steps={env_steps}")
    for assignment in overrides:
        table = apply_override(table, assignment)
    grid = parse_grid(table, source)
    root = Path("results/runs") / grid.name if out is None else out
    trials = expand(grid, root, source)
    check_folders(trials)
    return root, trials


def _require_distinct_option(option: str, values: Sequence[str]) -> None:
    try:
        _require_distinct(values)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None


def check_folders(trials: Sequence[Trial]) -> None:
    """Refuse a grid whose output folder holds trials of other specifications, or newer formats."""
    for trial in trials:
        if trial.folder.status != "missing":
            with contextlib.suppress(DamagedTrialError):  # fails when its turn comes, alone
                trial.folder.check(trial.spec)


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


@final
@dataclass(frozen=True)
class _Layers:
    """The settings of one environment's trials, put on top of each other from weak to strong."""

    grid: Grid
    file: EnvironmentFile
    source: str

    def trials(self, out: Path) -> Iterator[Trial]:
        """Yield the environment's trials."""
        environment = self._environment()
        budget = parse(BudgetSpec, self._section("budget"), self.source, "budget")
        evaluation = parse(EvaluationSpec, self._section("evaluation"), self.source, "evaluation")
        for label, settings in self.grid.algorithms.items():
            algorithm = self._algorithm(label, settings)
            for policy_label, policy in self._policies():
                for seed in self.grid.seeds:
                    spec = TrialSpec(
                        algorithm=algorithm,
                        environment=environment,
                        policy=policy,
                        budget=budget,
                        evaluation=evaluation,
                        seed=seed,
                    )
                    yield _trial(spec, self.file.id, label, policy_label, out)

    def _own(self, section: str) -> Table:
        """Return what the grid says of a section for this environment alone."""
        own: Table = self.grid.environment.get(self.file.id, {}).get(section, {})
        return own

    def _section(self, name: str) -> Table:
        below: Table = getattr(self.file, name)
        return merged(merged(below, getattr(self.grid, name)), self._own(name))

    def _environment(self) -> EnvironmentSpec:
        overrides = self.grid.environment.get(self.file.id, {})
        if "id" in overrides:
            raise UsageError(
                f"{self.source}: environment.{self.file.id}.id = {overrides['id']!r}: the name "
                "cannot be changed here; expected it among the environments"
            )
        file = load_environment(self.file.id, overrides, self.source)
        for label in overrides.get("algorithms", {}):
            if label not in self.grid.algorithms:
                raise UsageError(
                    f"{self.source}: environment.{self.file.id}.algorithms.{label} is not among "
                    f"the grid's algorithms; {suggestion(label, self.grid.algorithms)}"
                )
        BACKENDS.get(file.backend)
        return file.spec()

    def _algorithm(self, label: str, settings: Table) -> AlgorithmSpec:
        """Return the algorithm with every default filled in."""
        name = settings.get("algorithm", label)
        if not isinstance(name, str) or name not in ALGORITHMS.names():
            key = f"algorithms.{label}" + (".algorithm" if "algorithm" in settings else "")
            near = suggestion(str(name), ALGORITHMS.names())
            raise UsageError(f"{self.source}: unknown algorithm {name!r} ({key}); {near}")
        own = {key: value for key, value in settings.items() if key != "algorithm"}
        values = merged(self.file.algorithms.get(name, {}), own)
        values = merged(values, self._own("algorithms").get(label, {}))
        typed = parse(ALGORITHMS.get(name).Settings, values, self.source, f"algorithms.{label}")
        return AlgorithmSpec(name=name, settings=typed.model_dump(mode="json"))

    def _policies(self) -> Iterator[tuple[str, PolicySpec]]:
        tables = self.grid.policies or {DEFAULT_LABEL: self.grid.policy}
        for label, table in tables.items():
            prefix = f"policies.{label}" if self.grid.policies else "policy"
            values = _policy_on(_policy_on(self.file.policy, table), self._own("policy"))
            yield label, policy_spec(values, self.source, prefix)


def _policy_on(below: Table, above: Table) -> Table:
    """Return ``above`` if it names a template of its own, else its settings on top of ``below``."""
    return above if "template" in above else merged(below, above)


def _trial(spec: TrialSpec, environment: str, algorithm: str, policy: str, out: Path) -> Trial:
    labels = {"environment": environment, "algorithm": algorithm, "policy": policy}
    parts = [environment, algorithm, *([] if policy == DEFAULT_LABEL else [policy])]
    path = out.joinpath(*(re.sub(r"[^\w.+-]", "_", part) for part in parts), f"seed-{spec.seed}")
    return Trial(spec, labels, TrialFolder(path))


def policy_spec(table: Table, source: str, prefix: str = "policy") -> PolicySpec:
    """Return a policy with every default filled in.

    ``template = "package.file:Class"`` is a person's own module, and the keys that are not settings
    of every policy are arguments of its constructor.

    Raises:
        UsageError: an unknown template, key or value.
    """
    values = dict(table)
    template = values.pop("template", "mlp")
    if isinstance(template, str) and ":" in template:
        known = fields_at(POLICIES.get("module").Settings, [])
        own = {key: values.pop(key) for key in list(values) if key not in known}
        values = {"factory": template, **values}
        values["arguments"] = {**values.get("arguments", {}), **own}
        template = "module"
    if not isinstance(template, str) or template not in POLICIES.names():
        near = suggestion(str(template), POLICIES.names())
        raise UsageError(
            f"{source}: unknown policy template {template!r} ({prefix}.template); {near}"
        )
    typed = parse(POLICIES.get(template).Settings, values, source, prefix)
    return PolicySpec(template=template, settings=typed.model_dump(mode="json"))


def _require_distinct(values: Sequence[Any]) -> None:
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
