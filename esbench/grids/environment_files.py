"""Environment names to their files: policy template, budget, tuned settings, reference scores.

A file of ``envs/`` holds one environment, or one Atari game, whose protocols are separate
environments. A plugin adds environments through entry points of the group ``esbench.environments``:
the name is the environment's, the value a package with such files. Every Gymnasium environment
without a file works too, with the defaults below and without reference scores.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final

from pydantic import Field, field_validator

from esbench.core.arguments import KEPT, Arguments
from esbench.core.errors import UsageError, shown, suggestion
from esbench.core.files import as_path, read_toml
from esbench.core.registry import find_plugins, load_plugin
from esbench.core.settings import Settings, Table, parse
from esbench.core.user_code import import_user_module
from esbench.environments.registration import atari_environments, without_alias
from esbench.grids.trial_spec import (
    BudgetSpec,
    EnvironmentSettings,
    EnvironmentSpec,
    EvaluationSpec,
    is_agent,
    policy_spec,
    trainer_names,
    trainer_settings,
)

GROUP: Final = "esbench.environments"


def folder() -> Path:
    """The folder ``envs/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "envs"
    return inside if inside.is_dir() else package.parent / "envs"


@final
class EnvironmentRegistry:
    """The tables of environments by name, as in ``envs/``."""

    def __init__(self) -> None:
        self._registered: dict[str, Table] = {}
        self._plugins: dict[str, EntryPoint] | None = None

    def names(self) -> list[str]:
        """All names, sorted; plugins are listed without being imported."""
        return sorted({*_paths(folder()), *self._registered, *self._find_plugins()})

    def get(self, name: str) -> tuple[Table, str] | None:
        """The table of an environment and its source for messages; None for an unknown name.

        UsageError if its plugin cannot be imported or has no file for it.
        """
        if path := _paths(folder()).get(name):
            return environments_in(path)[name], str(path)
        if name in self._registered:
            return self._registered[name], f"environment {name}"
        plugin = self._find_plugins().get(name)
        return None if plugin is None else _table_of(plugin)

    def add(self, name: str, table: Table) -> None:
        """Register a table, in the place of one that was registered before.

        UsageError if a file of ``envs/`` or a plugin has that name.
        """
        if owner := _paths(folder()).get(name) or self._find_plugins().get(name):
            raise UsageError(
                f"environment {name!r} is registered twice: {owner} has that name; change its "
                "settings in the table [environment] of a grid"
            )
        self._registered[name] = table

    def _find_plugins(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            owners = dict.fromkeys(_paths(folder()), "esbench")
            self._plugins = find_plugins("environment", GROUP, owners.get)
        return self._plugins


ENVIRONMENTS: Final = EnvironmentRegistry()


def merged(below: Table, above: Table) -> Table:
    """``below`` with the values of ``above`` on top; tables are merged, arrays are replaced."""
    result = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            result[key] = merged(below[key], above[key])
    return result


def environments_in(source: Path | Table) -> dict[str, Table]:
    """The environments of a file, a folder of files or the content of a file, by name.

    ``shared`` names a file of the folder ``shared`` beside the file, with settings below those of
    the table; a table of ``protocols`` goes on top of them. The name is empty without ``id``.
    UsageError if a file cannot be read, or ``protocols`` has no tables.
    """
    if isinstance(source, dict):
        return _environments(source, folder(), "the table of an environment")
    if source.is_dir():
        return {
            name: table
            for path in sorted(source.glob("*.toml"))
            for name, table in environments_in(path).items()
        }
    return _environments(read_toml(source), source.parent, str(source))


@cache
def _paths(envs: Path) -> dict[str, Path]:
    """The file of each environment in a folder, by its name; other files have none."""
    found = {name: path for path in envs.glob("*.toml") for name in environments_in(path)}
    if (other := found.pop("", None)) and envs == folder():
        raise UsageError(f"{other}: id is missing; expected the Gymnasium name")
    return found


def _environments(table: Table, envs: Path, source: str) -> dict[str, Table]:
    table = dict(table)
    if shared := table.pop("shared", None):
        table = merged(read_toml(envs / "shared" / f"{shared}.toml"), table)
    protocols = table.pop("protocols", {"": {}})
    tables = list(protocols.values()) if isinstance(protocols, dict) else []
    if not tables or not all(isinstance(each, dict) for each in tables):
        raise UsageError(f"{source}: protocols = {shown(protocols)}: expected a table of tables")
    environments = [merged(table, protocol) for protocol in tables]
    return {str(environment.get("id", "")): environment for environment in environments}


def _table_of(plugin: EntryPoint) -> tuple[Table, str]:
    """The table of a plugin's environment and its source; UsageError if it has none."""
    package = load_plugin("environment", plugin)
    folders = [Path(each) for each in getattr(package, "__path__", [])]
    found = {name: path for each in folders for name, path in _paths(each).items()}
    if plugin.name not in found:
        raise UsageError(
            f"plugin {plugin.value!r} has no TOML file with the id {plugin.name!r}; "
            f"{suggestion(plugin.name, found)}"
        )
    path = found[plugin.name]
    return environments_in(path)[plugin.name], str(path)


Kind: TypeAlias = Literal["environment", "function"]

DEFAULT_POLICY: Final[Table] = {"template": "mlp", "normalize_observations": True}
DEFAULT_ENV_STEPS: Final = 1_000_000


@final
class RandomScore(Settings):
    """The measured return of uniformly random actions (standard normal ones if unbounded)."""

    mean: float
    std: float
    episodes: int
    command: str


@final
class PublishedScore(Settings):
    """A published score, and where it is printed."""

    method: str  # the algorithm, and the implementation or paper
    score: float
    env_steps: float | None = None
    source: str
    comparable: bool  # same environment version and protocol as ours
    note: str = ""  # what differs


@final
class Scores(Settings):
    """The frozen numbers that scores are compared with.

    Attributes:
        solved: the return at which the environment counts as solved, if it has one.
        references: published scores; tables show the first one and normalize by it. A file of
            ``envs/`` has a table per method: ``[scores.references."PPO (rl-zoo)"]``.
    """

    random: RandomScore | None = None
    solved: float | None = None
    references: tuple[PublishedScore, ...] = ()

    @field_validator("references", mode="before")
    @classmethod
    def _by_method(cls, value: Any) -> Any:
        if isinstance(value, dict):
            if not all(isinstance(score, dict) for score in value.values()):
                raise ValueError("expected a table with score, source and comparable per method")
            value = [{"method": method, **score} for method, score in value.items()]
        return tuple(value) if isinstance(value, list) else value  # a strict tuple is no list

    @property
    def is_measured(self) -> bool:
        """Whether nothing but the score of random actions is known, measured after training."""
        return self == Scores(random=self.random) and not (self.random and self.random.command)


@final
class OtherVersion(Settings):
    """How another version of an environment differs from this one.

    Attributes:
        comparable: whether scores of both can be compared; "roughly" names in ``what`` why not
            exactly.
        what: the difference.
        source: where it is described.
    """

    comparable: Literal["yes", "roughly", "no"]
    what: str
    source: str


@final
class EnvironmentFile(EnvironmentSettings):
    """A file of ``envs/``: the environment, and tables that a grid may override.

    Attributes:
        algorithms: tuned settings by algorithm name.
        description: one line for ``esbench list``.
        kind: "function" is a test function of optimization. Its returns approach 0, the best
            possible one, over many orders of magnitude; figures use a logarithmic axis.
        versions: other versions of the environment by name, such as "v4".
    """

    kind: Kind = "environment"
    description: str = ""
    policy: Arguments = Field(default_factory=lambda: dict(DEFAULT_POLICY))
    budget: Table = Field(default_factory=lambda: {"env_steps": DEFAULT_ENV_STEPS})
    evaluation: Table = Field(default_factory=dict)
    algorithms: Annotated[dict[str, Table], KEPT] = Field(default_factory=dict)
    scores: Scores = Field(default_factory=Scores)
    versions: dict[str, OtherVersion] = Field(default_factory=dict)

    def spec(self) -> EnvironmentSpec:
        """The part that results depend on.

        A number for ``max_episode_steps`` is an argument of ``gymnasium.make``, which also holds
        for scoring, if the environment has no time limit of its own.
        """
        values = {name: getattr(self, name) for name in EnvironmentSpec.model_fields}
        if isinstance(self.max_episode_steps, int):
            from esbench.environments.specifications import has_time_limit

            if not has_time_limit(self.id, self.kwargs):
                limit = {"max_episode_steps": self.max_episode_steps}
                values |= {"kwargs": {**self.kwargs, **limit}, "max_episode_steps": None}
        return EnvironmentSpec(**values)

    def describes(self, environment: Table) -> bool:
        """Whether a specification, as JSON, has the arguments and wrappers of this file."""
        own = self.spec().model_dump(mode="json", include={"id", "kwargs", "wrappers"})
        return own.items() <= environment.items()


def environment_names() -> list[str]:
    """The names of the benchmark environments, sorted."""
    return ENVIRONMENTS.names()


def frozen_scores(environment: Table) -> Scores:
    """The scores in ``envs/`` for a specification, as JSON; none if kwargs or wrappers differ."""
    if environment["id"] not in _paths(folder()):
        return Scores()
    file = load_environment(environment["id"])
    return file.scores if file.describes(environment) else Scores()


def is_proven(environment: EnvironmentSpec) -> bool:
    """Whether an environment is one of ``envs/``, with its own wrappers: tests have played it."""
    known = environment.id in _paths(folder())
    return known and environment.wrappers == load_environment(environment.id).wrappers


def environment_versions(name: str) -> dict[str, OtherVersion]:
    """How other versions of an environment differ; none if it has no file."""
    return load_environment(name).versions if name in environment_names() else {}


def environment_kind(name: str) -> Kind:
    """The kind of an environment; "environment" if it has no file."""
    return load_environment(name).kind if name in environment_names() else "environment"


def register_environment(environment: Table | str | Path) -> None:
    """Add benchmark environments, in the place of those that were registered before.

    Args:
        environment: the content of an environment's file (``id``, ``policy``, ``budget``,
            ``algorithms``, ``scores``), the path of a TOML file, or of a folder of such files.

    Raises:
        UsageError: a key or value is wrong, ``envs/`` or a plugin has that name, or the name is
            one of the ALE that esbench replaces by its own.
    """
    if not isinstance(environment, dict):
        environment = as_path("environment", environment)
    found = environments_in(environment)
    if not found or not all(found):
        raise UsageError(
            f"register_environment: no id in {shown(environment)}; expected TOML with the "
            "Gymnasium name as 'id'"
        )
    for name, table in found.items():
        _parsed(table, f"register_environment({name!r})")
        used, _ = without_alias(name, table.get("kwargs", {}))
        if used != name:
            raise UsageError(
                f"register_environment: id = {name!r}: expected {used!r}, its name in esbench"
            )
    for name, table in found.items():
        ENVIRONMENTS.add(name, table)


def environment_table(name: str) -> tuple[Table, str]:
    """The table of an environment, a minimal one if it has none, and its source for messages.

    UsageError if neither ``ENVIRONMENTS`` nor Gymnasium knows the name.
    """
    name, _ = without_alias(name, {})
    if found := ENVIRONMENTS.get(name):
        return found
    _require_registered(name)
    if name in atari_environments():
        _, protocol = atari_environments()[name]
        game = {"shared": "atari", "protocols": {protocol: {"id": name}}}
        return {**environments_in(game)[name], "scores": {}}, name
    return {"id": name}, name


def load_environment(
    name: str, overrides: Table | None = None, source: str = ""
) -> EnvironmentFile:
    """An environment's file with ``overrides`` merged in; UsageError for unknown keys or values."""
    table, origin = environment_table(name)
    file = _parsed(table, origin)
    if not overrides:
        return file
    return parse(EnvironmentFile, merged(table, overrides), source, f"environment.{name}")


def _parsed(table: Table, source: str) -> EnvironmentFile:
    """A file, whose tables are checked as if no grid changed them."""
    file = parse(EnvironmentFile, table, source)
    policy_spec(file.policy, source, "policy")
    parse(BudgetSpec, {"env_steps": DEFAULT_ENV_STEPS, **file.budget}, source, "budget")
    parse(EvaluationSpec, file.evaluation, source, "evaluation")
    for name, settings in file.algorithms.items():
        if name not in trainer_names():
            near = suggestion(name, trainer_names())
            raise UsageError(f"{source}: algorithms.{name} is not an algorithm; {near}")
        if not is_agent(name):  # the library of an agent need not be installed
            parse(trainer_settings(name), settings, source, f"algorithms.{name}")
    return file


def require_one_meaning(name: str) -> bool:
    """Whether a name is registered; UsageError if it is not known by which module."""
    import gymnasium

    from esbench.environments.specifications import specification

    try:
        specification(name)
    except UsageError as error:
        raise UsageError(f"environment {name!r}: {error}") from None
    except gymnasium.error.Error:
        return False
    return True


def _require_registered(name: str) -> None:
    from esbench.environments.specifications import nearest_name, only_in_a_module

    module, _, own = name.rpartition(":")
    if module:
        import_user_module("environment", name, module)
    owner = only_in_a_module(name)
    if owner is None and require_one_meaning(name):
        return
    near = nearest_name(name, () if module else environment_names())
    if module:
        near = f"{module!r} registers no {own!r}; {near}"
    else:
        near = f"{near} (one of your own is '{owner or 'package'}:{name}')"
    raise UsageError(f"unknown environment {name!r}; {near}")
