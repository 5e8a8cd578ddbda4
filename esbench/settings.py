"""The base class of all settings, and the messages for wrong values."""

from __future__ import annotations

import json
import re
import types
from abc import ABC
from typing import Any, Final, TypeVar, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from esbench.errors import UsageError, suggestion

Table = dict[str, Any]

_PLAIN_WORDS: Final = {
    "a valid integer": "an integer",
    "a valid array": "a list",
    "a valid dictionary": "a table",
    "an object": "a table",
    "a valid ": "a ",
}
_NO_SWEEP: Final = "; a list is a sweep only as a setting of an algorithm in a grid"


class Settings(BaseModel, ABC):
    """Frozen, strictly typed settings: an unknown key, a wrong type or a NaN is an error.

    ``esbench list --settings`` shows the docstring below a setting. It ends with the unit in square
    brackets, if there is one.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )


S = TypeVar("S", bound=Settings)


def parse(model: type[S], values: Table, source: str, prefix: str = "") -> S:
    """Validate a TOML table or keyword arguments as a ``model``.

    ``source``, such as a file, begins the messages; ``prefix`` is the table's dotted name in it.

    Raises:
        UsageError: one line per wrong key, with the value seen and the value expected.
    """
    try:
        # In strict mode, JSON arrays are accepted for tuples and Python lists are not.
        typed = model.model_validate_json(json.dumps(values, default=_plain))
    except ValidationError as error:
        raise UsageError("\n".join(_sentences(model, error.errors(), source, prefix))) from None
    try:
        json.dumps(values, allow_nan=False, default=_plain)  # also inside free tables
    except ValueError:
        where = f" in [{prefix}]" if prefix else ""
        raise UsageError(f"{source}: NaN or infinity{where}: expected finite numbers") from None
    return typed


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers; other values that JSON lacks as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _sentences(
    model: type[Settings], errors: list[ErrorDetails], source: str, prefix: str
) -> list[str]:
    """One line per wrong key; the expectations of a union's branches are joined."""
    lines: dict[str, str] = {}
    hints: dict[str, str] = {}
    for error in errors:
        path = [str(part) for part in error["loc"] if not _is_branch(part)]
        key = ".".join(part for part in (prefix, *path) if part)
        problem = _problem(error)
        seen = f"{key} = {_show(error['input'])}"
        match error["type"]:
            case "json_invalid":
                lines[key] = f"{prefix or 'a value'} has text that is not valid Unicode"
            case "extra_forbidden":
                near = suggestion(path[-1], fields_at(model, path[:-1]))
                lines[key] = f"unknown key {key} (= {_show(error['input'])}); {near}"
            case "missing":
                lines[key] = f"{key} is missing"
            case "value_error":
                lines[key] = f"{seen if path else key or 'settings'}: {problem}"
            case _ if key in lines:
                lines[key] += f", or {problem.removeprefix('expected ')}"
            case _:
                lines[key] = f"{seen}: {problem}"
                hints[key] = _NO_SWEEP if isinstance(error["input"], list) else ""
    return [f"{source}: {line}{hints.get(key, '')}" for key, line in lines.items()]


def _problem(error: ErrorDetails) -> str:
    match error["type"]:
        case "literal_error":
            expected = str(error.get("ctx", {}).get("expected", ""))
            known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
            seen = error["input"]
            near = f"; {suggestion(seen, known)}" if isinstance(seen, str) else ""
            return f"expected {expected}{near}"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case _:
            text = error["msg"].removeprefix("Input should be ")
            for words, plain in _PLAIN_WORDS.items():
                text = text.replace(words, plain)
            return f"expected {text[:1].lower()}{text[1:]}"


def fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The field names of the model at ``path`` inside ``model``."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None or part not in current.model_fields:
            continue  # a key of a free table
        current = model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in the type of a field, also inside a list, a table or a union; None if none."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is None:
        return None
    return next(filter(None, map(model_in, get_args(annotation))), None)


def _is_branch(part: int | str) -> bool:
    """Whether a part of a location is the branch of a union, not a key of the user."""
    return isinstance(part, str) and bool(re.search(r"^(constrained-)?(int|float|str)$|\[", part))


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
