"""Environment names to their files: policy template, budget, tuned settings, reference scores.

The files lie in ``envs/``, one a benchmark environment, and hold data only. Every other Gymnasium
environment works too, with the defaults below and no reference scores.
"""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from esbench.algorithms.base import ALGORITHMS
from esbench.errors import UsageError, unknown
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.settings import Settings, Table, parse

Kind: TypeAlias = Literal["environment", "function"]

DEFAULT_POLICY: Final[Table] = {"template": "mlp", "normalize_observations": True}
DEFAULT_ENV_STEPS: Final = 1_000_000


class RandomScore(Settings):
    """What uniformly random actions (standard normal ones where no bounds are) score, as measured.

    Attributes:
        mean, std: of the episodes' returns; episodes: how many; command: what measured it.
    """

    mean: float
    std: float
    episodes: int
    command: str


class Reference(Settings):
    """A published score.

    Attributes:
        method: the algorithm, and whose; score: mean return; env_steps: its training steps.
        source: where it is printed; comparable: same environment version and protocol as ours.
        note: what differs.
    """

    method: str
    score: float
    env_steps: float | None = None
    source: str
    comparable: bool
    note: str = ""


class Scores(Settings):
    """The frozen numbers scores are read against.

    Attributes:
        random: of random actions.
        solved: the return at which the environment counts as solved, if it has one.
        references: published scores; the first is the one tables show and normalise by.
    """

    random: RandomScore | None = None
    solved: float | None = None
    references: tuple[Reference, ...] = ()


class EnvironmentFile(EnvironmentSpec):
    """A file of ``envs/``: the environment, and tables that a grid may override.

    Attributes:
        policy: template and settings; budget; evaluation; algorithms: tuned settings by name.
        scores: reference scores. description: one line for ``esbench list``.
        kind: "function" is one of optimisation, whose returns approach the best possible, 0, over
            many orders of magnitude; figures show them on a logarithmic axis.
    """

    kind: Kind = "environment"
    description: str = ""
    policy: Table = Field(default_factory=lambda: dict(DEFAULT_POLICY))
    budget: Table = Field(default_factory=lambda: {"env_steps": DEFAULT_ENV_STEPS})
    evaluation: Table = Field(default_factory=dict)
    algorithms: dict[str, Table] = Field(default_factory=dict)
    scores: Scores = Scores()

    def spec(self) -> EnvironmentSpec:
        """Return the part that results depend on."""
        names = set(EnvironmentSpec.model_fields)
        return EnvironmentSpec(**{name: getattr(self, name) for name in names})


def folder() -> Path:
    """Return ``envs/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "envs"
    return inside if inside.is_dir() else package.parent / "envs"


def environment_names() -> list[str]:
    """Return the names of the benchmark environments, sorted."""
    return sorted(_id_of(path) for path in folder().glob("*.toml"))


def environment_kind(name: str) -> Kind:
    """Return the kind that an environment's file says it is of."""
    return load_environment(name).kind if name in environment_names() else "environment"


def read_toml(path: Path) -> Table:
    """Return a TOML file's content.

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
    """Return the raw content of an environment's file; a minimal one if it has none.

    Raises:
        UsageError: neither ``envs/`` nor Gymnasium knows the name.
    """
    path = folder() / f"{name.replace('/', '_')}.toml"
    if path.is_file():
        return read_toml(path)
    _require_registered(name)
    return {"id": name}


def load_environment(
    name: str, overrides: Table | None = None, source: str = ""
) -> EnvironmentFile:
    """Return an environment's file with ``overrides`` merged in, table by table.

    Raises:
        UsageError: an unknown environment, key or value.
    """
    table = environment_table(name)
    path = folder() / f"{name.replace('/', '_')}.toml"
    file = parse(EnvironmentFile, table, str(path))
    for algorithm, settings in file.algorithms.items():
        parse(ALGORITHMS.get(algorithm).Settings, settings, str(path), f"algorithms.{algorithm}")
    if not overrides:
        return file
    return parse(EnvironmentFile, merged(table, overrides), source, f"environment.{name}")


def merged(below: Table, above: Table) -> Table:
    """Return ``below`` with the values of ``above`` on top; tables are merged, arrays replaced."""
    result: dict[str, Any] = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def _id_of(path: Path) -> str:
    return str(read_toml(path).get("id", path.stem))


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
        if module:  # in another run the name alone would not be known
            package = module.partition(".")[0]
            own = [e for e in gymnasium.registry if module_of(e).partition(".")[0] == package]
            known = {f"{module}:{each}" for each in own or gymnasium.registry}
        raise unknown("environment", name, known) from None


def _import(module: str, name: str) -> None:
    from esbench.environments.make import reason

    try:
        importlib.import_module(module)
    except Exception as error:  # a person's own file may raise anything
        raise UsageError(
            f"environment {name!r}: cannot import {module!r} ({reason(error)})"
        ) from error
