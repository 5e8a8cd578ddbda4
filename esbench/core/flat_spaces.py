"""Which spaces of Gymnasium become vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.core.errors import UsageError

Space: TypeAlias = gymnasium.Space[Any]

FLAT: Final = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


MOST_NUMBERS: Final = 10**8  # of an observation or an action


def require_space(name: str, space: object) -> None:
    """Raises UsageError if a space is none of Gymnasium, is too large or has impossible bounds."""
    if not isinstance(space, gymnasium.Space):
        raise UsageError(f"its {name} is {type(space).__name__}; expected a space of Gymnasium")
    for part in parts(space):
        require_space(name, part)
    size = 0
    match space:
        case spaces.Box():
            size = math.prod(space.shape)
            if size <= MOST_NUMBERS and not np.all(space.low <= space.high):  # nor if one is NaN
                raise UsageError(f"its {name} has a lower bound that is not at most the upper one")
        case spaces.Discrete():
            size = int(space.n)
        case spaces.MultiDiscrete():
            size = int(space.nvec.sum(dtype=np.float64))
        case spaces.MultiBinary():
            size = math.prod(space.shape)
    if size > MOST_NUMBERS:
        raise UsageError(f"its {name} has {size:,} numbers; expected at most {MOST_NUMBERS:,}")


def parts(space: Space) -> Iterable[Space]:
    """The spaces directly inside a Dict, Tuple or OneOf space; none for the others."""
    match space:
        case spaces.Dict():
            return space.spaces.values()
        case spaces.Tuple() | spaces.OneOf():
            return space.spaces
    return ()


def never_flat(space: Space) -> str:
    """The class of the first space inside that has no vectors, such as Text; empty if none.

    A Dict or Tuple space without parts is one.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple | spaces.OneOf):
        inside = parts(space)
        if not inside:
            return f"empty {type(space).__name__}"
        return next(filter(None, map(never_flat, inside)), "")
    return "" if isinstance(space, FLAT) else type(space).__name__
