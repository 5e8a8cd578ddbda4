"""Environment names to their files: policy template, budget, tuned settings, reference scores.

The files lie in ``envs/`` and hold data only: one per environment, or one per Atari game, whose
protocols are separate environments. Every other Gymnasium environment works too, with the defaults
below and without reference scores.
"""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from pydantic import Field

from esbench.algorithms.base import ALGORITHMS
from esbench.errors import UsageError, unknown
from esbench.grids.trial_spec import EnvironmentSettings, EnvironmentSpec
from esbench.settings import Settings, Table, parse

Kind: TypeAlias = Literal["environment", "function"]

DEFAULT_POLICY: Final[Table] = {"template": "mlp", "normalize_observations": True}
DEFAULT_ENV_STEPS: Final = 1_000_000


@final
class RandomScore(Settings):
    """The measured score of uniformly random actions (standard normal ones if unbounded).

    Attributes:
        mean: mean return.
        std: standard deviation of the returns.
        episodes: number of episodes.
        command: the command that measured it.
    """

    mean: float
    std: float
    episodes: int
    command: str


@final
class PublishedScore(Settings):
    """A published score.

    Attributes:
        method: the algorithm, and the implementation or paper.
        score: mean return.
        env_steps: training steps.
        source: where it is printed.
        comparable: same environment version and protocol as ours.
        note: what differs.
    """

    method: str
    score: float
    env_steps: float | None = None
    source: str
    comparable: bool
    note: str = ""


@final
class Scores(Settings):
    """The frozen numbers that scores are compared with.

    Attributes:
        random: score of random actions.
        solved: the return at which the environment counts as solved, if it has one.
        references: published scores; tables show the first one and normalise by it. A file of
            ``envs/`` has a table per method: ``[scores.references."PPO (rl-zoo)"]``.
    """

    random: RandomScore | None = None
    solved: float | None = None
    references: tuple[PublishedScore, ...] = ()


@final
class EnvironmentFile(EnvironmentSettings):
    """A file of ``envs/``: the environment, and tables that a grid may override.

    Attributes:
        policy: template and settings.
        budget: when training ends.
        evaluation: how the policy is scored.
        algorithms: tuned settings by algorithm name.
        scores: reference scores.
        description: one line for ``esbench list``.
        kind: "function" is a test function of optimisation. Its returns approach 0, the best
            possible one, over many orders of magnitude; figures use a logarithmic axis.
    """

    kind: Kind = "environment"
    description: str = ""
    policy: Table = Field(default_factory=lambda: dict(DEFAULT_POLICY))
    budget: Table = Field(default_factory=lambda: {"env_steps": DEFAULT_ENV_STEPS})
    evaluation: Table = Field(default_factory=dict)
    algorithms: dict[str, Table] = Field(default_factory=dict)
    scores: Scores = Scores()

    def spec(self) -> EnvironmentSpec:
        """The part that results depend on."""
        names = set(EnvironmentSpec.model_fields)
        return EnvironmentSpec(**{name: getattr(self, name) for name in names})


def folder() -> Path:
    """The folder ``envs/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "envs"
    return inside if inside.is_dir() else package.parent / "envs"


def environment_names() -> list[str]:
    """The names of the benchmark environments, sorted."""
    return sorted(_paths(folder()))


def environment_kind(name: str) -> Kind:
    """The kind of an environment; "environment" if it has no file."""
    return load_environment(name).kind if name in _paths(folder()) else "environment"


def read_toml(path: Path) -> Table:
    """The content of a TOML file.

    Raises:
        UsageError: it cannot be read or parsed; the message has the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # tomllib.TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def environment_table(name: str) -> Table:
    """The content of an environment's file; a minimal table if it has none.

    Raises:
        UsageError: neither ``envs/`` nor Gymnasium knows the name.
    """
    path = _paths(folder()).get(name)
    if path is not None:
        return _tables(path)[name]
    _require_registered(name)
    return {"id": name}


def load_environment(
    name: str, overrides: Table | None = None, source: str = ""
) -> EnvironmentFile:
    """An environment's file with ``overrides`` merged in, table by table.

    Raises:
        UsageError: an unknown environment, key or value.
    """
    table = environment_table(name)
    path = str(_paths(folder()).get(name, name))
    file = parse(EnvironmentFile, _with_reference_list(table), path)
    for algorithm, settings in file.algorithms.items():
        parse(ALGORITHMS.get(algorithm).Settings, settings, path, f"algorithms.{algorithm}")
    if not overrides:
        return file
    table = _with_reference_list(merged(table, overrides))
    return parse(EnvironmentFile, table, source, f"environment.{name}")


def merged(below: Table, above: Table) -> Table:
    """``below`` with the values of ``above`` on top; tables are merged, arrays are replaced."""
    result: dict[str, Any] = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


@cache
def _paths(envs: Path) -> dict[str, Path]:
    """The file of each environment in a folder, by the environment's name."""
    return {name: path for path in envs.glob("*.toml") for name in _tables(path)}


def _tables(path: Path) -> dict[str, Table]:
    """The environments of a file by name: one, or one per protocol.

    ``shared`` names a file of ``envs/shared/`` with settings below those of this file; a table of
    ``protocols`` goes on top of them.
    """
    table = read_toml(path)
    if shared := table.pop("shared", None):
        table = merged(read_toml(path.parent / "shared" / f"{shared}.toml"), table)
    protocols = table.pop("protocols", {"": {}})
    environments = [merged(table, protocol) for protocol in protocols.values()]
    return {str(environment.get("id", path.stem)): environment for environment in environments}


def _with_reference_list(table: Table) -> Table:
    """An environment's table with its references, which lie by method, as a list."""
    scores = table.get("scores")
    references = scores.get("references") if isinstance(scores, dict) else None
    if not isinstance(references, dict):
        return table
    listed = [{"method": method, **score} for method, score in references.items()]
    return merged(table, {"scores": {"references": listed}})


def _require_registered(name: str) -> None:
    import gymnasium

    from esbench.environments.make import module_of, register_family

    module, _, registered = name.rpartition(":")
    if module:
        _import(module, name)
    register_family(registered)
    try:
        gymnasium.spec(registered)
    except gymnasium.error.Error:
        known = {*environment_names(), *gymnasium.registry}
        if module:  # another process may not have imported the module
            package = module.partition(".")[0]
            own = [e for e in gymnasium.registry if module_of(e).partition(".")[0] == package]
            known = {f"{module}:{each}" for each in own or gymnasium.registry}
        raise unknown("environment", name, known) from None


def _import(module: str, name: str) -> None:
    from esbench.environments.make import reason

    try:
        importlib.import_module(module)
    except Exception as error:  # a user's own file may raise anything
        raise UsageError(
            f"environment {name!r}: cannot import {module!r} ({reason(error)})"
        ) from error
