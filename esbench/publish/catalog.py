"""The registered names, and their settings as read from the models that validate them."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import UsageError, unknown
from esbench.core.registry import Registry
from esbench.core.search_space import space_of_field
from esbench.core.settings import MOST, model_in
from esbench.core.user_code import import_object
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS, Behavior, behavior_class
from esbench.grids.environment_files import environment_names, load_environment
from esbench.grids.grid_file import grid_names, read_grid
from esbench.grids.trial_spec import trainer_settings
from esbench.policies.policy import POLICIES

NOT_SET: Final = "-"
REQUIRED: Final = "required"

_REGISTRIES: Final[dict[str, Registry[Any]]] = {
    "algorithms": ALGORITHMS,
    "agents": AGENTS,
    "policies": POLICIES,
    "behaviors": BEHAVIORS,
    "backends": BACKENDS,
}
# The table of a grid that holds the settings of a name, and the key that selects the name.
_PLACES: Final[dict[str, tuple[str, tuple[str, str] | None]]] = {
    "algorithms": ("algorithms.{name}", None),
    "agents": ("algorithms.{name}", None),
    "policies": ("policy", ("policy", "template")),
    "behaviors": ('environment."ENV".behavior_settings', ('environment."ENV"', "behavior")),
}
_TYPES: Final = {int: "integer", float: "number", str: "string", bool: "true | false"}
_LIMITS: Final = {
    "gt": "> {}",
    "ge": ">= {}",
    "lt": "< {}",
    "le": "<= {}",
    "multiple_of": "multiple of {}",
    "min_length": "of length >= {}",
    "max_length": "of length <= {}",
    "pattern": "matching {}",
}
# A unit is a final "[...]" that starts with a letter; "[0, 1]" is an interval.
_UNIT: Final = re.compile(r"\s*\[([^\W\d][^\[\]]*)\]\.?$")


@final
@dataclass(frozen=True)
class CatalogEntry:
    """One line of ``esbench list``; ``paper`` is empty if there is none."""

    name: str
    text: str
    paper: str = ""


@final
@dataclass(frozen=True)
class SettingRow:
    """One setting, in the notation of a TOML file.

    In a dotted name, NAME stands for a key of the user's choice. The default is "-" if it is not
    set, "required" if there is none. The unit may be empty. ``search`` is where ``esbench tune``
    searches, empty if it does not.
    """

    name: str
    type: str
    default: str
    unit: str
    meaning: str
    search: str = ""


def catalog(kind: str) -> Iterator[CatalogEntry]:
    """Yield every algorithm, agent, environment, policy, behavior, backend or grid.

    The text of a plugin that cannot be imported is the reason.
    """
    names = {"environments": environment_names, "grids": grid_names}
    for name in names[kind]() if kind in names else _REGISTRIES[kind].names():
        paper = ""
        try:
            match kind:
                case "environments":
                    text = load_environment(name).description
                case "grids":
                    text = str(read_grid(name)[0].get("description", ""))
                case _:
                    cls = _REGISTRIES[kind].get(name)
                    text, paper = inspect.getdoc(cls) or "", getattr(cls, "paper", "")
        except UsageError as error:
            text = str(error).rpartition(f" {name!r}: ")[2]
        yield CatalogEntry(name, text.partition("\n")[0], paper)


def kind_with_settings(name: str) -> str:
    """The kind of an algorithm, agent, policy or behavior; a UsageError for any other name.

    A class by its import name is a behavior or a policy if it is one, else an algorithm or an
    agent.
    """
    if ":" in name:
        found = import_object("algorithm, policy or behavior", name)
        if not inspect.isclass(found):
            raise UsageError(
                f"{name!r} is not a class; expected an algorithm, an agent, a torch.nn.Module or a "
                "behavior"
            )
        if issubclass(found, Behavior):
            return "behaviors"
        return "policies" if _is_module(found) else "algorithms"
    kinds = {known: kind for kind in reversed(_PLACES) for known in _REGISTRIES[kind].names()}
    if name not in kinds:
        raise unknown("algorithm, agent, policy or behavior", name, kinds)
    return kinds[name]


def settings_of(kind: str, name: str) -> list[SettingRow]:
    """The rows of a name; a UsageError if it is unknown or its kind has no settings."""
    match kind:
        case "algorithms" | "agents":
            return setting_rows(trainer_settings(name))
        case "policies" if ":" in name:
            return _module_rows(name)
        case "policies":
            return setting_rows(POLICIES.get(name).Settings)
        case "behaviors":
            return setting_rows(behavior_class(name).Settings)
    raise UsageError(f"{kind} have no --settings; only {', '.join(_PLACES)} have")


def _module_rows(name: str) -> list[SettingRow]:
    """The rows of a torch.nn.Module by its import name: its own arguments, then those of all."""
    found = import_object("policy", name)
    if not (inspect.isclass(found) and _is_module(found)):
        raise UsageError(f"policy {name!r}: expected a torch.nn.Module class")
    rows = []
    for each in list(inspect.signature(found).parameters.values())[2:]:  # inputs and outputs
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            kind = type_text(type(each.default))  # of an annotation, only text may be known
            default = json.dumps(each.default, default=str)
            default = REQUIRED if each.default is each.empty else default
            meaning = "An argument of the constructor."
            rows.append(SettingRow(each.name, kind, default, "", meaning))
    general = setting_rows(POLICIES.get("module").Settings)
    return rows + [row for row in general if row.name not in ("factory", "arguments")]


def _is_module(cls: type) -> bool:
    return any(base.__module__.startswith("torch.nn.") for base in cls.__mro__)  # not imported


def setting_rows(model: type[BaseModel], prefix: str = "") -> list[SettingRow]:
    """One row per setting of a model; the settings of a nested model follow their table.

    The docstring below a field ends with the unit in square brackets. A field overridden without
    one keeps the inherited docstring. ``prefix`` is the dotted name of the model's table and a dot.
    """
    rows: list[SettingRow] = []
    for name, field in model.model_fields.items():
        meaning, unit = split_unit(_description(model, name))
        type_ = type_text(field.annotation, field.metadata)
        search = ", ".join(
            space.text if key == name else f"{key.removeprefix(f'{name}.')} {space.text}"
            for key, space in space_of_field(model, name).items()
        )
        rows.append(SettingRow(prefix + name, type_, _default(field), unit, meaning, search))
        if (nested := model_in(field.annotation)) is not None:
            key = ".NAME." if get_origin(field.annotation) is dict else "."
            rows += setting_rows(nested, prefix + name + key)
    return rows


def type_text(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type and its range, such as "integer >= 1", "[number > 0, ...]" or "tanh | relu"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        constraints = (getattr(item, "metadata", [item]) for item in arguments[1:])
        return type_text(arguments[0], [*itertools.chain(*constraints), *metadata])
    if origin in (Union, UnionType):
        branches = (type_text(item) for item in arguments if item is not NoneType)
        text = " or ".join(dict.fromkeys(branches))
    elif origin is Literal:
        text = " | ".join(map(str, arguments))
    elif origin in (tuple, list):
        items = ["..." if item is Ellipsis else type_text(item) for item in arguments]
        text = f"[{', '.join([*items, *(['...'] if origin is list else [])])}]"
    elif origin is dict and arguments[1] is not Any:
        text = f"table of {type_text(arguments[1])}"
    elif origin is dict or (inspect.isclass(annotation) and issubclass(annotation, BaseModel)):
        text = "table"
    else:
        text = _TYPES.get(annotation, "value")
    limits = [
        words.format(limit)
        for item in metadata
        for key, words in _LIMITS.items()
        if (limit := getattr(item, key, None)) not in (None, MOST)
    ]
    return " ".join([text, " and ".join(limits)]).rstrip()


def split_unit(text: str) -> tuple[str, str]:
    """Meaning and unit of "Deviation of the noise [parameter units].", on one line each."""
    line = " ".join(text.split())
    match = _UNIT.search(line)
    if match is None:
        return line, ""
    meaning = line[: match.start()].rstrip(".")
    return f"{meaning}." if meaning else "", match[1]


def example(kind: str, name: str, rows: list[SettingRow]) -> str:
    """How to set values on the command line and in a grid; empty if no setting is suitable.

    Shows the settings without a default, and the first whose default is no list and no table.
    """
    values = {
        row.name: json.dumps(row.name.upper()) if row.type == "string" else row.name.upper()
        for row in rows
        if row.default == REQUIRED
    }
    plain = [row for row in rows if row.default not in (NOT_SET, REQUIRED)]
    values |= dict([(row.name, row.default) for row in plain if row.default[0] not in "[{"][:1])
    if not values:
        return ""
    table, selector = _PLACES[kind]
    assigned = [(*selector, json.dumps(name))] if selector else []
    label = json.dumps(name) if ":" in name else name
    assigned += [(table.format(name=label), key, value) for key, value in values.items()]
    words, lines = ["esbench run GRID"], [""]
    for table, key, value in assigned:
        words.append(f"--set {shlex.quote(f'{table}.{key}={value}')}")
        lines += [] if f"[{table}]" in lines else [f"[{table}]"]
        lines.append(f"{key} = {value}")
    return "\n".join([" ".join(words), *lines])


def _description(model: type[BaseModel], name: str) -> str:
    """A field's description, or its docstring: the model's own, or that of the overridden field."""
    if described := model.model_fields[name].description:
        return described
    classes = (cls for cls in model.__mro__ if name in vars(cls).get("__annotations__", {}))
    return next(filter(None, (_docstrings(cls).get(name, "") for cls in classes)), "")


@functools.cache
def _docstrings(model: type) -> dict[str, str]:
    """The docstrings below the fields that a class itself declares."""
    # Pydantic's ``use_attribute_docstrings`` would parse the source in every worker process.
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):  # defined in an interactive session
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for pair in itertools.pairwise(definition.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value = to_jsonable_python(field.get_default(call_default_factory=True), fallback=str)
    return NOT_SET if value is None else json.dumps(value)
