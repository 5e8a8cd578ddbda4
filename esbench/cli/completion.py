"""The names that the Tab key of a shell completes, collected from the commands and the registries.

``esbench.core.shell_completion`` answers with them, without the imports of this module.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from esbench.app.options import members
from esbench.cli.app import app, option_word
from esbench.core.errors import UsageError
from esbench.core.settings import model_in
from esbench.core.shell_completion import Names, keep_names, labels_of
from esbench.core.toml_text import toml_value

# The kind of value of an argument, by its name; the shell completes files for the others.
KINDS: Final = {
    "grid": "grid",
    "env": "env",
    "algorithm": "algorithm",
    "algorithms": "algorithm",
    "overrides": "keys",
    "skip": "skip",
    "track": "tracker",
    "settings": "algorithm",
    "policies_of": "env",
}
JOINED: Final = ("algorithm",)  # several values with commas between them


def collect() -> Names:
    """The names of commands, options, and of what they take."""
    kinds: dict[str, dict[str, str]] = _kinds()
    commands = {}
    for each in app.registered_commands:
        assert each.callback is not None
        about = each.help or inspect.getdoc(each.callback)
        commands[str(each.name)] = _command(each.callback, about, kinds)
    grids = _grids()
    kinds["grid"] = {name: about.pop("description") for name, about in grids.items()}
    return {
        "commands": commands,
        "options": dict.fromkeys(
            ("--help", "--version", "--install-completion", "--show-completion"), ""
        ),
        "kinds": kinds,
        "joined": JOINED,
        "grids": grids,
        "settings": _settings(),
        "keys": _keys(),
    }


def keep() -> Names:
    """Collect the names and keep them for the next time."""
    names = collect()
    keep_names(names)
    return names


def _command(function: Any, text: str | None, kinds: dict[str, dict[str, str]]) -> Names:
    """The options and arguments of a command; values of a type become a kind of their own."""
    options: Names = {"--help": {"help": "", "flag": True, "many": False, "kind": ""}}
    arguments: list[str] = []
    many = False
    for each in inspect.signature(function, eval_str=True).parameters.values():
        annotation, about = get_args(each.annotation)
        types = members(annotation)
        several = any(get_origin(one) is list for one in types)
        kind = KINDS.get(each.name, "")
        written = (about.metavar or "").split("|")  # such as cpu|cuda
        if choices := _choices(types) or written * bool(written[1:]):
            kind = " or ".join(choices)
            kinds[kind] = dict.fromkeys(choices, "")
        if type(about).__name__ == "ArgumentInfo":
            arguments.append(kind)
            many = several
        else:
            named = [one for one in (about.default, *(about.param_decls or ())) if _is_option(one)]
            for word in named or [option_word(each.name)]:
                options[word] = {
                    "help": _line(about.help), "flag": bool in types, "many": several, "kind": kind,
                }  # fmt: skip
    return {"help": _line(text), "options": options, "arguments": arguments, "many": many}


def _is_option(word: object) -> bool:
    """Whether a text names an option; beside an annotation, typer keeps the first as a default."""
    return isinstance(word, str) and word.startswith("-")


def _choices(kinds: Iterable[Any]) -> list[str]:
    """The values of the literals among some types."""
    return [str(v) for kind in kinds if get_origin(kind) is Literal for v in get_args(kind)]


def _line(text: str | None) -> str:
    """The first sentence of a help text."""
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")


def _kinds() -> dict[str, dict[str, str]]:
    import gymnasium

    from esbench.grids.environment_files import environment_names, load_environment
    from esbench.grids.trial_spec import trainer_names
    from esbench.integrations.trackers.tracker import TRACKERS

    environments = {}
    for name in environment_names():
        with contextlib.suppress(UsageError):  # a plugin's file
            environments[name] = load_environment(name).description
    return {
        "env": environments,
        "env else": dict.fromkeys(gymnasium.registry, ""),  # if none of them begins so
        "algorithm": dict.fromkeys(trainer_names(), ""),
        "tracker": dict.fromkeys(TRACKERS.names(), ""),
    }


def _grids() -> dict[str, Names]:
    from esbench.grids.grid_file import grid_names, read_grid

    tables = {name: read_grid(name)[0] for name in grid_names()}
    return {
        name: {**labels_of(table), "description": _line(str(table.get("description", "")))}
        for name, table in tables.items()
    }


def _settings() -> dict[str, Names]:
    """The settings of each algorithm with values; those of an agent that is not installed lack."""
    from esbench.grids.trial_spec import trainer_names, trainer_settings

    found = {}
    for name in trainer_names():
        with contextlib.suppress(UsageError):
            found[name] = _fields(trainer_settings(name))
    return found


def _keys() -> Names:
    """The keys of a grid, without those of single algorithms and environments."""
    from esbench.grids.grid_file import Grid
    from esbench.grids.trial_spec import BudgetSpec, EnvironmentSettings, EvaluationSpec
    from esbench.policies.policy import POLICIES

    policy: Names = {"template": POLICIES.names()}
    for name in POLICIES.names():
        policy |= _fields(POLICIES.get(name).Settings)
    tables = {
        "budget": _fields(BudgetSpec),
        "evaluation": _fields(EvaluationSpec),
        "policy": policy,
        "environment": _fields(EnvironmentSettings),
        "algorithms": {},
    }
    plain = _fields(Grid, set(Grid.model_fields) - {*tables, "name", "description", "policies"})
    return {**plain, **tables}


def _fields(model: type[BaseModel], names: Iterable[str] | None = None) -> Names:
    """The fields of a model: those of a table, or values that can be written after "=" ."""
    found: Names = {}
    for name, field in model.model_fields.items():
        if names is None or name in names:
            inside = model_in(field.annotation)
            found[name] = _values(field) if inside is None else _fields(inside)
    return found


def _values(field: Any) -> list[str]:
    """Choices, both truth values, or the default of a field, as TOML without quotes."""
    kinds = [each for kind in members(field.annotation) for each in (kind, *get_args(kind))]
    if bool in kinds:
        return ["true", "false"]
    if found := _choices(kinds):
        return found
    default = field.get_default()
    if default is PydanticUndefined or default is None:
        return []
    return [default] if isinstance(default, str) else [toml_value(default)]
