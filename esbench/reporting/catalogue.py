"""The registered names with one line each, and the settings of each name.

Settings are read from the typed models that validate them.
"""

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

from esbench.algorithms.base import ALGORITHMS
from esbench.environments.backends.base import BACKENDS
from esbench.environments.behaviors.base import BEHAVIORS
from esbench.errors import UsageError, unknown
from esbench.grids.environment_files import environment_names, load_environment
from esbench.grids.grid_file import grid_names, read_grid
from esbench.policies.base import POLICIES
from esbench.registry import Registry
from esbench.settings import model_in

NOT_SET: Final = "-"
REQUIRED: Final = "required"

_REGISTRIES: Final[dict[str, Registry[Any]]] = {
    "algorithms": ALGORITHMS,
    "policies": POLICIES,
    "behaviors": BEHAVIORS,
    "backends": BACKENDS,
}
# The table of a grid that holds the settings of a name, and the key that selects the name.
_PLACES: Final[dict[str, tuple[str, tuple[str, str] | None]]] = {
    "algorithms": ("algorithms.{name}", None),
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
class CatalogueEntry:
    """One line of ``esbench list``; ``paper`` is empty if there is none."""

    name: str
    text: str
    paper: str = ""


@final
@dataclass(frozen=True)
class SettingRow:
    """One setting, in the notation of a TOML file.

    Attributes:
        name: dotted for a setting in a nested table; NAME stands for a key of the user's choice.
        type: type and range, such as "integer >= 1", "[number, ...]" or "adam | sgd".
        default: as TOML; "-" if it is not set, "required" if there is no default.
        unit: such as "environment steps"; empty if it has none.
        meaning: one or two sentences.
    """

    name: str
    type: str
    default: str
    unit: str
    meaning: str


def catalogue(kind: str) -> Iterator[CatalogueEntry]:
    """Yield every algorithm, environment, policy, behavior, backend or grid."""
    match kind:
        case "environments":
            for name in environment_names():
                yield CatalogueEntry(name, load_environment(name).description)
        case "grids":
            for name in grid_names():
                yield CatalogueEntry(name, str(read_grid(name)[0].get("description", "")))
        case _:
            for name in _REGISTRIES[kind].names():
                yield _entry(_REGISTRIES[kind], name)


def kind_with_settings(name: str) -> str:
    """The kind that ``name`` belongs to, among the kinds with settings.

    Raises:
        UsageError: no algorithm, policy or behavior has this name.
    """
    names = {kind: _REGISTRIES[kind].names() for kind in _PLACES}
    for kind, known in names.items():
        if name in known:
            return kind
    raise unknown("algorithm, policy or behavior", name, itertools.chain(*names.values()))


def settings_of(kind: str, name: str) -> list[SettingRow]:
    """The settings of one algorithm, policy or behavior.

    Raises:
        UsageError: this kind has no settings, or the name is unknown or not installed.
    """
    if kind not in _PLACES:
        raise UsageError(f"{kind} have no --settings; only {', '.join(_PLACES)} have")
    return setting_rows(_REGISTRIES[kind].get(name).Settings)


def setting_rows(model: type[BaseModel], prefix: str = "") -> list[SettingRow]:
    """One row per setting of a model; the settings of a nested model follow their table.

    Args:
        model: its fields are documented by docstrings below them, which end with the unit in
            square brackets. A field overridden without a docstring keeps the inherited one.
        prefix: the dotted name of the table that holds the model, with its dot.
    """
    rows: list[SettingRow] = []
    for name, field in model.model_fields.items():
        meaning, unit = split_unit(_description(model, name))
        type_ = type_text(field.annotation, field.metadata)
        rows.append(SettingRow(prefix + name, type_, _default(field), unit, meaning))
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
        if (limit := getattr(item, key, None)) is not None
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

    Shows every setting without a default, with its name in capitals as the value, and the first
    setting whose default is neither a list nor a table.
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
    assigned += [(table.format(name=name), key, value) for key, value in values.items()]
    words, lines = ["esbench run GRID"], [""]
    for table, key, value in assigned:
        words.append(f"--set {shlex.quote(f'{table}.{key}={value}')}")
        lines += [] if f"[{table}]" in lines else [f"[{table}]"]
        lines.append(f"{key} = {value}")
    return "\n".join([" ".join(words), *lines])


def _entry(registry: Registry[Any], name: str) -> CatalogueEntry:
    """The first line of a class's docstring; for a plugin that cannot be imported, the reason."""
    try:
        cls = registry.get(name)
    except UsageError as error:
        text = str(error).removeprefix(f"{registry.kind} {name!r}: ")
        return CatalogueEntry(name, text.partition("\n")[0])
    text = inspect.getdoc(cls) or ""
    return CatalogueEntry(name, text.partition("\n")[0], getattr(cls, "paper", ""))


def _description(model: type[BaseModel], name: str) -> str:
    """A field's docstring: the model's own, or that of the field it overrides."""
    classes = (cls for cls in model.__mro__ if name in vars(cls).get("__annotations__", {}))
    return next(filter(None, (_docstrings(cls).get(name, "") for cls in classes)), "")


@functools.cache
def _docstrings(model: type) -> dict[str, str]:
    """The docstrings below the fields that a class itself declares.

    Pydantic's ``use_attribute_docstrings`` would parse the source in every worker process.
    """
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):  # defined in an interactive session
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, below in itertools.pairwise(definition.body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value = to_jsonable_python(field.get_default(call_default_factory=True), fallback=str)
    return NOT_SET if value is None else json.dumps(value)
