"""The base class of all settings, and the messages for wrong values."""

from __future__ import annotations

import json
import re
import types
from abc import ABC
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from esbench.core.arguments import KEPT, TUPLE, is_tuple, plain
from esbench.core.errors import UsageError, error_text, shown, suggestion

Table = dict[str, Any]

MOST: Final = 10**15  # of anything that is counted, and the budget of "esbench bench"
Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST)]
MOST_PARAMS: Final = 10**9  # of a policy; 8 GB for each vector of them
MOST_EPISODES: Final = 1_000_000  # of one kind: held out, or per member
EpisodeCount: TypeAlias = Annotated[int, Field(ge=1, le=MOST_EPISODES)]
CountOrZero: TypeAlias = Annotated[int, Field(ge=0, le=MOST)]

_PLAIN_WORDS: Final = {
    "a valid integer": "an integer",
    "a valid array": "a list",
    "a valid dictionary": "a table",
    "an object": "a table",
    "a valid ": "a ",
}


class Settings(BaseModel, ABC):
    """Frozen, strictly typed settings: an unknown key, a wrong type or a NaN is an error.

    ``esbench list --settings`` shows the docstring below a setting. It ends with the unit in square
    brackets, if there is one.
    """

    model_config = ConfigDict(
        defer_build=True,  # a process that never validates, as a worker, starts sooner
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )


class TrainerSettings(Settings, ABC):
    """Settings of an algorithm or an agent."""

    # Groups of settings that exclude each other: setting one overrides the others' defaults.
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()


S = TypeVar("S", bound=Settings)


def parse(model: type[S], values: Table, source: str, prefix: str = "") -> S:
    """Validate a TOML table or keyword arguments as a ``model``.

    ``source``, such as a file, begins the messages; ``prefix`` is the table's dotted name in it.

    Raises:
        UsageError: one line per wrong key, with the value seen and the value expected; or a
            setting has a type that does not exist or cannot be validated.
    """
    _require_complete(model)
    place = f"{source}: {prefix}" if prefix else source
    try:
        text = json.dumps(untupled(model, plain(values, prefix)))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or in itself
        raise UsageError(f"{place}: expected a table that JSON can hold ({error})") from None
    try:
        # In strict mode, JSON arrays are accepted for tuples and Python lists are not.
        return model.model_validate_json(text)
    except ValidationError as error:
        raise UsageError("\n".join(_sentences(model, error.errors(), source, prefix))) from None


def untupled(model: type[BaseModel], values: Table) -> Table:
    """``plain`` values with lists for tuples where the model has a type for them.

    UsageError for a tuple in a setting of a user's class that may be anything.
    """
    found = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or KEPT in field.metadata:
            found[name] = value
            continue
        found[name] = _listed(value, model_in(field.annotation))
        is_own = not model.__module__.startswith("esbench.")
        if is_own and "Any" in str(field.annotation) and found[name] != value:
            raise UsageError(
                f"{name} = {shown(value)}: the setting has no type that keeps a tuple; expected a "
                f"list, or a type such as tuple[int, int] in {model.__qualname__}"
            )
    return found


def _listed(value: Any, inside: type[BaseModel] | None) -> Any:
    """A value with lists for tuples; its tables are those of the model ``inside``, if any."""
    if is_tuple(value):
        value = value[TUPLE]
    if isinstance(value, list):
        return [_listed(each, inside) for each in value]
    if isinstance(value, dict):
        if inside is not None:
            return untupled(inside, value)
        return {key: _listed(each, None) for key, each in value.items()}
    return value


def _require_complete(model: type[Settings]) -> None:
    try:
        model.model_rebuild()
    except Exception as error:  # pydantic raises many kinds for the types of a user's class
        name = f"{model.__module__}.{model.__qualname__}"
        why = error_text(error)
        raise UsageError(
            f"{name}: a setting has a type that cannot be validated ({why})"
        ) from error


def settings_named_by(
    kind: str, key: str, find: Callable[[str], type[Settings]]
) -> BeforeValidator:
    """Parses a table as the settings that ``find`` gives for the name in the field ``key``."""

    def parsed(value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict) or key not in info.data:
            return value
        name = info.data[key]
        return parse(find(name), value, f"{kind} {name}")

    return BeforeValidator(parsed)


def _sentences(
    model: type[Settings], errors: list[ErrorDetails], source: str, prefix: str
) -> list[str]:
    """One line per wrong key; the expectations of a union's branches are joined."""
    lines: dict[str, str] = {}
    above = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    for error in errors:
        if error["type"] == "too_short" and error["loc"] in above:
            continue  # it counts only the items that have no error
        path = [str(part) for part in error["loc"] if not _is_branch(part)]
        if error["type"] == "extra_forbidden" and _is_branch(error["loc"][-1]):
            path.append(str(error["loc"][-1]))
        key = ".".join(part for part in (prefix, *path) if part)
        seen, problem = f"{key} = {_show(error['input'])}", _problem(error)
        match error["type"]:
            case "json_invalid":
                lines[key] = f"{prefix or 'a value'}: expected plain text, not too deeply nested"
            case "extra_forbidden":
                near = suggestion(path[-1], fields_at(model, path[:-1]))
                lines[key] = f"unknown key {key} (= {_show(error['input'])}); {near}"
            case "missing":
                lines[key] = f"{key} is missing"
            case "value_error":
                where = seen if path else key
                lines[key] = f"{where}: {problem}" if where else problem
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
        case "too_short":
            least = error.get("ctx", {}).get("min_length", 1)
            return f"expected at least {least} item{'s' if least > 1 else ''}"
        case "too_long":
            return f"expected at most {error.get('ctx', {}).get('max_length')} items"
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
