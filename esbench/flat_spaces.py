"""Which spaces of Gymnasium become vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import gymnasium
from gymnasium import spaces

Space: TypeAlias = gymnasium.Space[Any]

FLAT: Final = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def parts(space: Space) -> Iterable[Space]:
    """The spaces directly inside a Dict, Tuple or OneOf space; none for the others."""
    match space:
        case spaces.Dict():
            return space.spaces.values()
        case spaces.Tuple() | spaces.OneOf():
            return space.spaces
    return ()


def never_flat(space: Space) -> str:
    """The class of the first space inside that has no vectors, such as Text; empty if none."""
    if isinstance(space, spaces.Dict | spaces.Tuple | spaces.OneOf):
        return next(filter(None, map(never_flat, parts(space))), "")
    return "" if isinstance(space, FLAT) else type(space).__name__
