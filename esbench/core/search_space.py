"""Where ``esbench tune`` searches for the values of settings, as annotations of their fields.

``sigma: Annotated[float, Tune(low=0.01, high=1.0, log=True)]`` declares the space of a setting, and
``Annotated[dict[str, Any], Tune("momentum", low=0.0, high=0.9)]`` that of a key of a table.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, final

from pydantic import BaseModel, Field, model_validator

from esbench.core.settings import Settings

Scalar: TypeAlias = bool | int | float | str


@final
class SettingSpace(Settings):
    """The search space of one setting: a range of numbers, or a list of values.

    Attributes:
        low, high: the ends of the range, both included; whole numbers if the setting is an integer.
        log: whether the range is searched on a logarithmic scale.
        choices: the values, in place of a range; a value may be a list.
        when: the setting is searched only if these other settings have these values, each one value
            or several; otherwise it keeps its default.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Scalar | list[Scalar], ...] = ()
    when: dict[str, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> SettingSpace:
        low, high = self.low, self.high
        if self.choices:
            if (low, high, self.log) != (None, None, False):
                raise ValueError("expected either choices or a range, not both")
            if len(set(map(repr, self.choices))) < len(self.choices):
                raise ValueError(f"choices = {list(self.choices)}: expected distinct values")
        elif low is None or high is None:
            raise ValueError("expected low and high, or choices")
        elif not low < high:
            raise ValueError(f"low = {low:g}, high = {high:g}: expected low < high")
        elif self.log and low <= 0:
            raise ValueError(f"low = {low:g} with log = true: expected a number > 0")
        return self

    def contains(self, value: Any) -> bool:
        """Whether a value lies in the space."""
        if self.choices:
            return value in self.choices
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (self.low or 0.0) <= value <= (self.high or 0.0)

    def is_active(self, settings: dict[str, Any]) -> bool:
        """Whether the condition holds for the other settings, by dotted name."""
        return all(
            settings.get(name) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.when.items()
        )

    @property
    def text(self) -> str:
        """The space as text, such as "0.01 to 1 (log)" or "16 | 32 | 64"."""
        if self.choices:
            text = " | ".join(map(str, self.choices))
        else:
            text = f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"
        conditions = [f"{name} = {_joined(wanted)}" for name, wanted in self.when.items()]
        return f"{text} if {' and '.join(conditions)}" if conditions else text


@final
class Tune:
    """The annotation of a field that ``esbench tune`` searches: a ``SettingSpace``.

    Not a model itself, because pydantic would take a model for the type of the field.
    """

    def __init__(self, key: str = "", /, **space: Any) -> None:
        """``key`` is the searched one of a field that is a table."""
        self.key = key
        self._space = space

    @functools.cached_property
    def space(self) -> SettingSpace:
        """The space, made on first use: a process that only trains needs none."""
        return SettingSpace(**self._space)


SearchSpace: TypeAlias = dict[str, SettingSpace]
"""The search space of an algorithm, by the dotted names of its settings."""


def space_of_field(model: type[BaseModel], name: str) -> SearchSpace:
    """The space of one field, by dotted name; that of the field it overrides if it has none."""
    for cls in model.__mro__:
        field = getattr(cls, "model_fields", {}).get(name)
        declared = [item for item in (field.metadata if field else ()) if isinstance(item, Tune)]
        if declared:
            return {f"{name}.{one.key}" if one.key else name: one.space for one in declared}
    return {}


def declared_space(model: type[BaseModel]) -> SearchSpace:
    """The search space that the fields of a model declare."""
    fields = (space_of_field(model, name) for name in model.model_fields)
    return {name: space for found in fields for name, space in found.items()}


def _joined(wanted: Scalar | tuple[Scalar, ...]) -> str:
    return " or ".join(map(str, wanted)) if isinstance(wanted, tuple) else str(wanted)
