"""What there is to choose from, with one line each, and what can be set.

The settings are read off the typed models themselves, so that what is shown is what is checked.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

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

T = TypeVar("T")
Schema = dict[str, Any]

NOT_SET: Final = "-"
REQUIRED: Final = "required"

_TYPES: Final = {"object": "table", "array": "list"}
_BOUNDS: Final = {
    "exclusiveMinimum": "> {}",
    "minimum": ">= {}",
    "exclusiveMaximum": "< {}",
    "maximum": "<= {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "pattern": "matches {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minProperties": "at least {} of them",
    "maxProperties": "at most {} of them",
}
# A trailing "[...]" that begins with a letter; "[0, 1]" is an interval.
_UNIT: Final = re.compile(r"\s*\[([^\W\d][^\[\]]*)\]\.?$")


@final
@dataclass(frozen=True)
class Entry:
    """One line of ``esbench list``; ``paper`` is empty where there is none."""

    name: str
    text: str
    paper: str = ""


@final
@dataclass(frozen=True)
class SettingRow:
    """One setting in the words of a person who writes TOML.

    Attributes:
        name: dotted, if it lies in a table; NAME stands for a key of one's own choice.
        type: such as "integer", "list of numbers" or "table".
        default: as TOML; "-" if it is not set, "required" if it must be.
        allowed: range or choices, such as "> 0" or "adam | sgd"; empty if anything of the type is.
        unit: such as "environment steps"; empty if it has none.
        meaning: one or two sentences.
    """

    name: str
    type: str
    default: str
    allowed: str
    unit: str
    meaning: str


@final
@dataclass(frozen=True)
class _Kind:
    """A kind whose names have settings, and where they lie in a grid.

    Attributes:
        registry: its names.
        table: of a name's settings.
        selector: the table and the key that choose a name, where ``table`` does not.
    """

    registry: Registry[Any]
    table: str
    selector: tuple[str, str] | None = None


_KINDS: Final = {
    "algorithms": _Kind(ALGORITHMS, "algorithms.{name}"),
    "policies": _Kind(POLICIES, "policy", ("policy", "template")),
    "behaviors": _Kind(
        BEHAVIORS, 'environment."ENV".behavior_settings', ('environment."ENV"', "behavior")
    ),
}


def catalogue(kind: str) -> Iterator[Entry]:
    """Yield every algorithm, environment, policy, behavior, backend or grid."""
    match kind:
        case "algorithms":
            yield from _entries(ALGORITHMS, lambda algorithm: algorithm.paper)
        case "policies":
            yield from _entries(POLICIES)
        case "behaviors":
            yield from _entries(BEHAVIORS)
        case "backends":
            yield from _entries(BACKENDS)
        case "environments":
            for name in environment_names():
                yield Entry(name, load_environment(name).description)
        case "grids":
            for name in grid_names():
                yield Entry(name, str(read_grid(name)[0].get("description", "")))


def kind_with_settings(name: str) -> str:
    """Return the kind that ``name`` is of, among those with settings.

    Raises:
        UsageError: none has that name.
    """
    known: list[str] = []
    for word, kind in _KINDS.items():
        if name in (names := kind.registry.names()):
            return word
        known += names
    raise unknown("algorithm, policy or behavior", name, known)


def settings_of(kind: str, name: str) -> list[SettingRow]:
    """Return the settings of one algorithm, policy or behavior.

    Raises:
        UsageError: this kind has no settings, or the name is unknown or not installed.
    """
    if kind not in _KINDS:
        raise UsageError(f"{kind} have no --settings; only {', '.join(_KINDS)} have")
    return setting_rows(_KINDS[kind].registry.get(name).Settings)


def setting_rows(model: type[BaseModel], prefix: str = "") -> list[SettingRow]:
    """Return a row for every setting of a model, those of nested models after their table.

    Args:
        model: its fields are documented by docstrings below them, with the unit at the end in
            square brackets. A field that a subclass overrides without one keeps its meaning.
        prefix: the dotted table the model lies in, with its dot.
    """
    schema = model.model_json_schema(by_alias=False)
    words = _Words(schema.get("$defs", {}))
    rows: list[SettingRow] = []
    for name, field in model.model_fields.items():
        shape = schema["properties"][name]
        meaning, unit = split_unit(_description(model, name))
        type_, allowed = words.type(shape), words.allowed(shape)
        rows.append(SettingRow(prefix + name, type_, _default(field), allowed, unit, meaning))
        if (nested := model_in(field.annotation)) is not None:
            key = ".NAME." if type_.startswith("table of") else "."
            rows += setting_rows(nested, prefix + name + key)
    return rows


def split_unit(text: str) -> tuple[str, str]:
    """Return meaning and unit of "Deviation of the noise [parameter units].", on one line each."""
    line = " ".join(text.split())
    match = _UNIT.search(line)
    if match is None:
        return line, ""
    meaning = line[: match.start()].rstrip(".")
    return f"{meaning}." if meaning else "", match[1]


def example(kind: str, name: str, rows: list[SettingRow]) -> str:
    """Return how to set one of ``rows`` on the command line and in a grid; empty if none serves.

    It is the first one whose default is neither a list nor a table, set to that default; settings
    without a default are there as well, with their name in capitals as the value.
    """
    chosen = [row for row in rows if row.default == REQUIRED]
    chosen += [row for row in rows if _is_plain(row.default)][:1]
    if not chosen:
        return ""
    place = _KINDS[kind]
    assigned = [(*place.selector, name, "string")] if place.selector else []
    for row in chosen:
        value = row.name.upper() if row.default == REQUIRED else row.default
        assigned.append((place.table.format(name=name), row.name, value, row.type))
    words, lines = ["esbench run GRID"], [""]
    for table, key, value, type_ in assigned:
        words.append(f"--set {shlex.quote(f'{table}.{key}={value}')}")
        lines += [] if f"[{table}]" in lines else [f"[{table}]"]
        lines.append(f"{key} = {json.dumps(value) if type_ == 'string' else value}")
    return "\n".join([" ".join(words), *lines])


def _is_plain(default: str) -> bool:
    return default not in {NOT_SET, REQUIRED} and default[0] not in "[{"


def _entries(
    registry: Registry[T], paper: Callable[[type[T]], str] = lambda cls: ""
) -> Iterator[Entry]:
    """Yield every class of a registry; of a plugin that cannot be imported, why not."""
    for name in registry.names():
        try:
            cls = registry.get(name)
        except UsageError as error:
            yield Entry(name, _line(str(error).removeprefix(f"{registry.kind} {name!r}: ")))
        else:
            yield Entry(name, _line(inspect.getdoc(cls) or ""), paper(cls))


def _line(text: str) -> str:
    return text.partition("\n")[0]


def _description(model: type[BaseModel], name: str) -> str:
    """Return a field's docstring: the model's own, or that of the field it overrides."""
    classes = (cls for cls in model.__mro__ if name in vars(cls).get("__annotations__", {}))
    texts = (_docstrings(cls).get(name, "") for cls in classes)
    return next(filter(None, texts), "")


@functools.cache
def _docstrings(model: type) -> dict[str, str]:
    """Return the docstrings below the fields that a class declares itself.

    Pydantic can do so too (``use_attribute_docstrings``), but reads the source of every class in
    every process, workers among them, and only this module needs it.
    """
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):  # typed in, not written in a file
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
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) and value else json.dumps(value)


@final
@dataclass(frozen=True)
class _Words:
    """JSON schemas in words; ``definitions`` are what their references point to."""

    definitions: Schema

    def type(self, schema: Schema) -> str:
        """Return such as "integer or list of integers"."""
        schema = self._resolved(schema)
        if branches := self._branches(schema):
            return " or ".join(dict.fromkeys(map(self.type, branches)))
        if "prefixItems" in schema:
            return f"[{', '.join(map(self.type, schema['prefixItems']))}]"
        type_: str = schema.get("type", "value")
        word = _TYPES.get(type_, type_)
        below = _items(schema)
        return f"{word} of {_plural(self.type(below))}" if below else word

    def allowed(self, schema: Schema) -> str:
        """Return such as ">= 1, < 8" or "tanh | relu"; empty if anything of the type is."""
        schema = self._resolved(schema)
        if branches := self._branches(schema):
            return self._any_of(branches)
        if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
            return " | ".join(map(str, choices))
        if "prefixItems" in schema:
            parts = [self.allowed(item) or "any" for item in schema["prefixItems"]]
            return f"[{'; '.join(parts)}]" if set(parts) != {"any"} else ""
        if schema.get("type") == "boolean":
            return "true | false"
        parts = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
        below = _items(schema)
        if below and (each := self.allowed(below)):
            parts.append(f"each {each.removeprefix('each ')}")
        return ", ".join(parts)

    def _any_of(self, branches: list[Schema]) -> str:
        texts = [self.allowed(branch) for branch in branches]
        if not any(texts):
            return ""
        # A number or a list of them: one bound says it for both.
        parts = [
            text.removeprefix("each ") or f"any {self.type(branch)}"
            for text, branch in zip(texts, branches, strict=True)
        ]
        return " or ".join(dict.fromkeys(parts))

    def _resolved(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        if reference is None:
            return schema
        return self._resolved(self.definitions[reference.rpartition("/")[2]])

    def _branches(self, schema: Schema) -> list[Schema]:
        """Return the branches of a union that a person can write; TOML has no null."""
        branches = schema.get("anyOf") or schema.get("oneOf") or []
        return [branch for branch in branches if branch.get("type") != "null"]


def _items(schema: Schema) -> Schema:
    """Return the schema of a list's items or of a table's values; empty if they may be anything."""
    below = schema.get("items", schema.get("additionalProperties"))
    return below if isinstance(below, dict) else {}


def _plural(words: str) -> str:
    """Return "lists of numbers" for "list of numbers"."""
    if words.startswith("["):
        return words
    noun, space, rest = words.partition(" ")
    return f"{noun}s{space}{rest}"
