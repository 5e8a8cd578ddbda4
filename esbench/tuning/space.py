"""The search space of an algorithm: what its settings declare, changed by a grid's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import Field, create_model

from esbench.core.errors import UsageError, suggestion
from esbench.core.search_space import SearchSpace, SettingSpace, declared_space
from esbench.core.settings import Settings, Table, TrainerSettings, parse
from esbench.core.toml_text import toml_key
from esbench.grids.trial_spec import flatten


def search_space(
    model: type[TrainerSettings], table: Table, source: str, label: str
) -> SearchSpace:
    """The declared space of a model, changed by ``[tune.LABEL]``; UsageError if it is wrong.

    Conditional settings come last, each after those on which it depends.

    A value of the table is a range ``{low = 0.01, high = 1.0, log = true}``, a list of choices, a
    table with ``choices`` or a range and ``when``, or false, which leaves the setting out.
    """
    prefix = f"tune.{toml_key(label)}"
    space = declared_space(model)
    for name, value in _entries(model, table, source, prefix):
        if value is False:
            space.pop(name, None)
        else:
            space[name] = _setting_space(model, name, value, source, prefix)
    if not space:
        raise UsageError(
            f"{source}: {label} has no search space; expected a table [{prefix}] with one of its "
            "settings, such as SETTING = {low = 0.01, high = 1.0, log = true}"
        )
    return _in_order(space, f"{source}: {prefix}")


def _in_order(space: SearchSpace, place: str) -> SearchSpace:
    """The settings in an order in which each follows those that its ``when`` names."""
    left = dict(sorted(space.items(), key=lambda item: bool(item[1].when)))
    found: SearchSpace = {}
    while left:
        ready = (name for name, setting in left.items() if setting.when.keys().isdisjoint(left))
        name = next(ready, None)
        if name is None:
            raise UsageError(
                f"{place}: {', '.join(left)} depend on each other by when; expected one without"
            )
        found[name] = left.pop(name)
    return found


def nested(settings: Table) -> Table:
    """Settings by dotted name as the table of an algorithm."""
    result: Table = {}
    for name, value in settings.items():
        *above, key = name.split(".", 1)
        (result.setdefault(above[0], {}) if above else result)[key] = value
    return result


def is_integer(model: type[TrainerSettings], name: str) -> bool:
    """Whether a setting takes whole numbers only; those of a free table take all numbers."""
    field = model.model_fields.get(name)
    return field is not None and float not in _types(field.annotation)


def values_of(settings: TrainerSettings) -> Table:
    """All values of settings by dotted name."""
    return flatten(settings.model_dump(mode="json"))


def _entries(
    model: type[TrainerSettings], table: Table, source: str, prefix: str
) -> Iterator[tuple[str, Any]]:
    """The dotted name and the value of each setting; settings that are tables have one each."""
    for name, value in table.items():
        if name not in model.model_fields:
            near = suggestion(name, model.model_fields)
            raise UsageError(f"{source}: unknown setting {prefix}.{name}; {near}")
        if dict in _types(model.model_fields[name].annotation) and isinstance(value, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _setting_space(
    model: type[TrainerSettings], name: str, value: Any, source: str, prefix: str
) -> SettingSpace:
    """The space of one setting, whose ends and choices are values of the setting."""
    table = {"choices": value} if isinstance(value, list) else value
    if not isinstance(table, dict):
        raise UsageError(
            f"{source}: {prefix}.{name} = {value!r}: expected a range such as {{low = 0.01, "
            "high = 1.0, log = true}, a list of choices, or false"
        )
    space = parse(SettingSpace, table, source, f"{prefix}.{name}")
    for other in space.when:
        if other.partition(".")[0] not in model.model_fields:
            near = suggestion(other, model.model_fields)
            raise UsageError(f"{source}: {prefix}.{name}.when: unknown setting {other!r}; {near}")
    if name in model.model_fields:  # else it is a key of a free table
        field = model.model_fields[name]
        definition: Any = {name: Annotated[field.annotation, *field.metadata, Field()]}
        alone = create_model("Alone", __base__=Settings, **definition)
        values: Sequence[Any] = space.choices or (space.low, space.high)
        if is_integer(model, name) and not space.choices:  # the ends are floats
            values = [int(end) if float(end).is_integer() else end for end in values]
        for each in values:
            parse(alone, {name: each}, source, prefix)
    return space


def _types(annotation: Any) -> set[Any]:
    """The plain types in an annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _types(arguments[0])
    return {origin or annotation}.union(*map(_types, arguments))
