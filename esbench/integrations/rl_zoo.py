"""Settings of rl-zoo3's YAML files as a grid.

The zoo evaluates some texts as Python, such as "dict(net_arch=[64, 64])". Here they are parsed, and
only literals are accepted. What a grid cannot express is kept as text, for comments of the grid.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from esbench.core.errors import UsageError, unknown
from esbench.core.escape import one_line
from esbench.core.settings import MOST, Table, TrainerSettings, parse
from esbench.core.toml_text import toml_key, toml_value
from esbench.integrations.library import optional

OTHER_NAMES: Final = {"ars": "sb3_ars", "trpo": "sb3_trpo"}  # of agents, by that of their file
MOST_VALUES: Final = 1000  # of an entry: YAML can repeat a part within itself
_ATARI: Final = ("NoFrameskip-v4", "ALE/")
_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")  # that YAML 1.1 takes for a text
_ACTIVATION: Final = re.compile(r"(?:(?:torch|th)\.)?nn\.(\w+)")
_VERSION: Final = re.compile(r"-v(\d+)$")
_STACK: Final = {"wrapper": "gymnasium.wrappers:FrameStackObservation", "padding_type": "zero"}


@final
class _NotALiteralError(Exception):
    """A part of an expression that is computed."""


@final
@dataclass
class ZooSettings:
    """One entry of a file.

    Attributes:
        entry: its name in the file.
        settings: those of the agent.
        env_steps: the budget, if the entry has one.
        wrappers: of the environment, as tables of a grid.
        left: what a grid cannot express, as lines of text.
    """

    entry: str
    settings: Table = field(default_factory=dict)
    env_steps: int | None = None
    wrappers: list[Table] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def grid(self, environment: str, agent: str, source: str) -> str:
        """The text of a grid file."""
        origin = f"{agent} in {environment}, with the settings of {self.entry!r} in {source}"
        comments = [origin, *(["Not expressed here:"] if self.left else []), *self.left]
        lines = [
            *(f"# {one_line(each)}" for each in comments),
            f"environments = {toml_value([environment])}",
            "seeds = [0, 1, 2]",
            "defaults = true  # nothing comes from the environment's own file",
        ]
        if self.env_steps is not None:
            lines += ["", "[budget]", f"env_steps = {self.env_steps:_}"]
        lines += ["", f"[algorithms.{toml_key(agent)}]"]
        for name, value in self.settings.items():
            one = [value] if isinstance(value, list) else value  # a list alone is a sweep
            lines.append(f"{name} = {toml_value(one)}")
        if self.wrappers:
            lines += ["", f"[environment.{toml_key(environment)}]"]
            lines.append(f"wrappers = {toml_value(self.wrappers)}")
        return "\n".join(lines) + "\n"


def read_zoo(text: str, environment: str, model: type[TrainerSettings], source: str) -> ZooSettings:
    """The entry of an environment in a file of hyperparameters.

    Args:
        text: of the file.
        environment: Gymnasium name; the package before a colon is left out.
        model: the settings of the agent.
        source: the file, for messages.

    Raises:
        UsageError: the package for YAML is missing, or the file has no such entry.
    """
    name, table = _entry(_tables(text, source), environment, source)
    _require_few(table, f"{source}: {name}")
    found = ZooSettings(name)
    policy = table.get("policy")
    noise = table.get("noise_type"), table.get("noise_std")
    for key, value in table.items():
        match key:
            case "n_timesteps" if _is_count(steps := _number(value)):
                found.env_steps = round(steps)
            case "env_wrapper":
                found.wrappers += _wrappers(value, found.left)
            case "frame_stack" if policy == "MlpPolicy" and isinstance(value, int):
                found.wrappers.append({**_STACK, "stack_size": value})
            case "noise_type" if noise[0] == "normal" and "noise_std" in table:
                pass  # the default of the setting below
            case "noise_std" if noise[0] == "normal":
                _set(found, model, "action_noise_std", value)
            case "frame_stack":
                found.left.append(f"frame_stack = {value}: of images; a wrapper of yours can do it")
            case _ if key in model.model_fields:
                _set(found, model, key, value)
            case _:
                found.left.append(f"{key} = {value}")
    return found


def _tables(text: str, source: str) -> dict[str, Table]:
    """The entries of a file by name."""
    yaml = optional("yaml", "yaml", "a file of rl-zoo3")
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = one_line(str(error)).strip()
        raise UsageError(f"{source}: not a file in YAML ({reason})") from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise UsageError(
            f"{source}: expected a table of settings for each environment, as in hyperparams/ of "
            "rl-zoo3"
        )
    return {str(name): {str(k): v for k, v in table.items()} for name, table in found.items()}


def _entry(tables: dict[str, Table], environment: str, source: str) -> tuple[str, Table]:
    """The entry of an environment, of its latest other version, or of all Atari games."""
    name = environment.rpartition(":")[2]
    game = ["atari"] if any(part in environment for part in _ATARI) else []
    others = [each for each in tables if _VERSION.sub("", each) == _VERSION.sub("", name)]
    for known in (environment, name, *sorted(others, key=_version, reverse=True), *game):
        if known in tables:
            return known, tables[known]
    raise unknown(f"environment in {source}", name, tables)


def _require_few(table: Table, place: str) -> None:
    """Raises UsageError for a table that is endless, or huge because it repeats its parts."""
    todo: list[Any] = [table]
    for _ in range(MOST_VALUES):
        if not todo:
            return
        match todo.pop():
            case dict() as value:
                todo += value.values()
            case list() as value:
                todo += value
    raise UsageError(f"{place} has more than {MOST_VALUES} values; expected settings of an agent")


def _version(name: str) -> int:
    version = _VERSION.search(name)
    return int(version[1]) if version else 0


def _set(found: ZooSettings, model: type[TrainerSettings], key: str, value: Any) -> None:
    """Take a setting over if the agent accepts its value, else keep it as text."""
    annotation = str(model.model_fields[key].annotation)
    taken = _number(value)
    if isinstance(taken, str) and ("dict" in annotation or "tuple" in annotation):
        taken = _evaluated(taken, key, found.left)
        if taken is None:
            return
    if annotation == "<class 'int'>" and isinstance(taken, float) and taken.is_integer():
        taken = int(taken)
    try:
        parse(model, {key: taken}, "zoo")
        toml_value(taken)
    except (UsageError, ValueError, RecursionError) as error:
        reason = str(error).partition("expected ")[2].partition("\n")[0]
        found.left.append(f"{key} = {value}" + (f" (expected {reason})" if reason else ""))
    else:
        found.settings[key] = taken


def _number(value: Any) -> Any:
    """A text such as "1e6", which YAML 1.1 does not take for a number, as one."""
    is_number = isinstance(value, str) and _NUMBER.fullmatch(value)
    return float(value) if is_number else value


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 1 <= value <= MOST


def _wrappers(value: Any, left: list[str]) -> Iterator[Table]:
    """The tables of wrappers: of a name, of a name with arguments, or of a list of these."""
    for each in value if isinstance(value, list) else [value]:
        pairs = each.items() if isinstance(each, dict) else [(each, None)]
        for name, arguments in pairs:
            module, _, cls = str(name).rpartition(".")
            try:
                found = {"wrapper": f"{module}:{cls}", **(arguments or {})}
                toml_value(found)
            except (TypeError, ValueError, RecursionError):
                module = ""
            if module:
                yield found
            else:
                left.append(f"env_wrapper = {each}")


def _evaluated(text: str, place: str, left: list[str]) -> Any:
    """The value of an expression of literals; None if there is none, which ``left`` says."""
    try:
        return _literal(ast.parse(text.strip(), mode="eval").body, place, left)
    except (_NotALiteralError, SyntaxError, ValueError, RecursionError, MemoryError):
        left.append(f"{place} = {text}")
        return None


def _literal(node: ast.expr, place: str, left: list[str]) -> Any:
    """The value of a literal; parts of a table that are none go to ``left`` alone."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(each, place, left) for each in items]
        case ast.Dict(keys=keys, values=values):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            return _table(names, values, place, left)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            names = [each.arg for each in keywords]
            return _table(names, [each.value for each in keywords], place, left)
        case ast.Attribute() if place.endswith("activation_fn"):
            if layer := _ACTIVATION.fullmatch(ast.unparse(node)):
                return layer[1]
    raise _NotALiteralError


def _table(names: Sequence[Any], values: Sequence[ast.expr], place: str, left: list[str]) -> Table:
    found: Table = {}
    for name, value in zip(names, values, strict=True):
        if not isinstance(name, str):
            raise _NotALiteralError
        try:
            found[name] = _literal(value, f"{place}.{name}", left)
        except _NotALiteralError:
            left.append(f"{place}.{name} = {ast.unparse(value)}")
    return found
