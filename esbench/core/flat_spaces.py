"""Which spaces of Gymnasium become vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.core.errors import UsageError

Array: TypeAlias = npt.NDArray[Any]
Space: TypeAlias = gymnasium.Space[Any]

FLAT: Final = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
COMPOSITE: Final = (spaces.Dict, spaces.Tuple, spaces.OneOf)
MOST_NUMBERS: Final = 10**8  # of an observation or an action


def parts(space: Space) -> Iterable[Space]:
    """The spaces directly inside a Dict, Tuple or OneOf space; none for the others."""
    match space:
        case spaces.Dict():
            return space.spaces.values()
        case spaces.Tuple() | spaces.OneOf():
            return space.spaces
    return ()


def nested(space: Space) -> Iterator[Space]:
    """A space and all spaces inside it."""
    yield space
    for part in parts(space):
        yield from nested(part)


def require_space(name: str, space: object) -> None:
    """Raises UsageError if a space is none of Gymnasium, is too large or has impossible bounds."""
    if not isinstance(space, gymnasium.Space):
        raise UsageError(f"its {name} is {type(space).__name__}; expected a space of Gymnasium")
    for each in nested(space):
        size = 0
        match each:
            case spaces.Box():
                size = math.prod(each.shape)
                if size <= MOST_NUMBERS and not np.all(each.low <= each.high):  # nor if one is NaN
                    raise UsageError(
                        f"its {name} has a lower bound that is not at most the upper one"
                    )
            case spaces.Discrete():
                size = int(each.n)
            case spaces.MultiDiscrete():
                size = int(each.nvec.sum(dtype=np.float64))
            case spaces.MultiBinary():
                size = math.prod(each.shape)
        if size > MOST_NUMBERS:
            raise UsageError(f"its {name} has {size:,} numbers; expected at most {MOST_NUMBERS:,}")


def never_flat(space: Space) -> str:
    """The class of the first space inside that has no vectors, such as Text; empty if none.

    A composite space without parts is one.
    """
    for each in nested(space):
        if isinstance(each, COMPOSITE) and not parts(each):
            return f"empty {type(each).__name__}"
        if not isinstance(each, (*FLAT, *COMPOSITE)):
            return type(each).__name__
    return ""


def require_flat(space: Space, environment: str, kind: str) -> None:
    """Raises UsageError if a space, an "observation" or an "action" one, does not become vectors.

    Actions cannot be of a OneOf space, whose parts have different sizes.
    """
    found = never_flat(space)
    if kind == "action" and any(isinstance(each, spaces.OneOf) for each in nested(space)):
        found = found or "OneOf"
    if found:
        article = "an" if found.startswith("empty") else "a"
        raise UsageError(
            f"{environment}: its {kind} space has {article} {found} space; expected Box, Discrete, "
            "MultiBinary or MultiDiscrete ones, also inside Dict and Tuple"
        )
    if not spaces.flatdim(space):
        raise UsageError(f"{environment}: its {kind} space has no numbers; expected at least one")


def packed(actions: list[Any], space: Space) -> Array:
    """Actions of a space as an array, as a backend takes them; of objects if Dict or Tuple."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.array(actions)
    objects = np.empty(len(actions), object)
    for number, action in enumerate(actions):
        objects[number] = action
    return objects
