"""The strict base of every typed setting, and the one place where bad values become sentences."""

from __future__ import annotations

import json
import types
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from esbench.errors import UsageError, suggestion

Table = dict[str, Any]


class Settings(BaseModel):
    """Frozen, strictly typed settings: an unknown key, a wrong type or a NaN is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


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
        return model.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        lines = [_sentence(model, item, source, prefix) for item in error.errors()]
        raise UsageError("\n".join(lines)) from None


def _sentence(model: type[Settings], error: ErrorDetails, source: str, prefix: str) -> str:
    path = [str(part) for part in error["loc"] if not _is_branch(part)]
    key = ".".join(part for part in (prefix, *path) if part)
    seen = error["input"]
    match error["type"]:
        case "extra_forbidden":
            known = fields_at(model, path[:-1])
            return f"{source}: unknown key {key} (= {_show(seen)}); {suggestion(path[-1], known)}"
        case "missing":
            return f"{source}: {key} is missing"
        case "literal_error":
            expected = str(error["ctx"]["expected"]) if "ctx" in error else ""
            known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
            near = suggestion(seen, known) if isinstance(seen, str) else ""
            return f"{source}: {key} = {_show(seen)}: expected {expected}; {near}".rstrip("; ")
        case "value_error":
            name = f"{key} = {_show(seen)}" if path else key or "settings"
            return f"{source}: {name}: {error['msg'].removeprefix('Value error, ')}"
        case _:
            return f"{source}: {key} = {_show(seen)}: {_lower_first(error['msg'])}"


def fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the field names of the model that lies at ``path`` inside ``model``."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None or part not in current.model_fields:
            continue  # a key of a free table: its values are of the table's model
        current = _model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is None:
        return None
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _is_branch(part: int | str) -> bool:
    """Tell whether a part of a location names a union's branch, not a key a person wrote."""
    return isinstance(part, str) and (part in {"int", "float", "str", "bool"} or "[" in part)


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
