"""The strict base of every typed setting, and the one place where bad values become sentences."""

from __future__ import annotations

import json
import re
import types
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


class Settings(BaseModel):
    """Frozen, strictly typed settings: an unknown key, a wrong type or a NaN is an error.

    A docstring below a setting says what it means, for ``esbench list --settings``; its unit, if it
    has one, ends it in square brackets.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )


S = TypeVar("S", bound=Settings)


def parse(model: type[S], values: Table, source: str, prefix: str = "") -> S:
    """Return ``values`` as a ``model``.

    Args:
        model: the typed settings.
        values: what a person wrote (a TOML table, keyword arguments).
        source: where they wrote it, a file's path say; begins the message.
        prefix: the dotted name of the table in that source.

    Raises:
        UsageError: one line for each wrong key, with the value seen and what was expected.
    """
    try:
        # Through JSON, whose strict mode takes an array for a tuple, as TOML has only arrays.
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
    """Return NumPy's numbers as Python's; whatever else JSON does not know, as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _sentences(
    model: type[Settings], errors: list[ErrorDetails], source: str, prefix: str
) -> list[str]:
    """Return a line for each wrong key; what the branches of a union expected is joined."""
    lines: dict[str, str] = {}
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
    return [f"{source}: {line}" for line in lines.values()]


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
    """Return the field names of the model that lies at ``path`` inside ``model``."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None or part not in current.model_fields:
            continue  # a key of a free table: its values are of the table's model
        current = model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field is, or is a list, a table or an option of; None if none."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is None:
        return None
    return next(filter(None, map(model_in, get_args(annotation))), None)


def _is_branch(part: int | str) -> bool:
    """Tell whether a part of a location names a union's branch, not a key a person wrote."""
    return isinstance(part, str) and bool(re.search(r"^(constrained-)?(int|float|str)$|\[", part))


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
