"""Checks of observations that Gymnasium flattens, whose ``flatten`` takes values outside a space.

Each check returns the observation with parts of fitting types, or raises TrainingError, which names
the environment and the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from esbench.core.flat_spaces import Space
from esbench.environments.returned_values import FLOATS, Array, ReturnedValues

ObservationCheck: TypeAlias = Callable[[Any], Any]


def observation_check(space: Space, environment: str, part: str = "") -> ObservationCheck:
    """The check of the observations of a space, or of a part of them, such as ``['goal'][0]``."""
    what = f"the part {part} of an observation" if part else "an observation"
    returned = ReturnedValues(environment, space, what)

    def inside(parts: Iterable[tuple[Any, Space]]) -> list[ObservationCheck]:
        return [observation_check(each, environment, f"{part}[{key!r}]") for key, each in parts]

    match space:
        case spaces.Dict():
            return _dict_check(returned, list(space.spaces), inside(space.spaces.items()))
        case spaces.Tuple():
            return _tuple_check(returned, inside(enumerate(space.spaces)))
        case spaces.OneOf():
            (index,) = inside([(0, spaces.Discrete(len(space.spaces)))])
            return _one_of_check(returned, index, inside((1, each) for each in space.spaces))
        case spaces.Box():
            return _box_check(returned, space)
        case spaces.Discrete():
            return _discrete_check(returned, int(space.start), int(space.start + space.n - 1))
        case spaces.MultiDiscrete():
            return _array_check(returned, space, space.start, space.start + (space.nvec - 1))
    low = np.zeros(space.shape or (), np.int8)  # MultiBinary
    return _array_check(returned, space, low, low + 1)


def _dict_check(
    returned: ReturnedValues, keys: list[Any], checks: list[ObservationCheck]
) -> ObservationCheck:
    """The check of a Dict space, which ignores keys that the space lacks."""

    def check(value: Any) -> Any:
        try:
            parts = [value[key] for key in keys]
        except (IndexError, KeyError, TypeError, ValueError):
            raise returned.unfit(value, f"the keys {keys}") from None
        return {key: each(part) for key, each, part in zip(keys, checks, parts, strict=True)}

    return check


def _tuple_check(returned: ReturnedValues, checks: list[ObservationCheck]) -> ObservationCheck:
    def check(value: Any) -> Any:
        parts = returned.parts(value, len(checks))
        return tuple([each(part) for each, part in zip(checks, parts, strict=True)])

    return check


def _one_of_check(
    returned: ReturnedValues, index: ObservationCheck, checks: list[ObservationCheck]
) -> ObservationCheck:
    def check(value: Any) -> Any:
        number, part = returned.parts(value, 2)
        number = int(index(number))
        return number, checks[number](part)

    return check


def _box_check(returned: ReturnedValues, space: spaces.Box) -> ObservationCheck:
    shape, fitting = space.shape, FLOATS if space.dtype.kind == "f" else {space.dtype}

    def check(value: Any) -> Any:
        if value.__class__ is np.ndarray and value.shape == shape and value.dtype in fitting:
            return value
        return returned.observation(value)

    return check


def _discrete_check(returned: ReturnedValues, low: int, high: int) -> ObservationCheck:
    def check(value: Any) -> Any:
        number = value if value.__class__ is int else returned.observation(value)
        if low <= number <= high:
            return number
        raise returned.outside(number, low, high)

    return check


def _array_check(
    returned: ReturnedValues, space: Space, low: Array, high: Array
) -> ObservationCheck:
    shape = space.shape

    def check(value: Any) -> Any:
        if not (
            value.__class__ is np.ndarray and value.shape == shape and value.dtype.kind in "iub"
        ):
            value = returned.observation(value)
        if np.count_nonzero((value < low) | (value > high)):  # faster than any() of a few
            raise returned.outside(value, low, high)
        return value

    return check
