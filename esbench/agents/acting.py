"""Policies that act in a Gymnasium environment, and their actions as those of its space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.core.errors import TrainingError
from esbench.core.flat_spaces import Array, Space

Environment: TypeAlias = gymnasium.Env[Any, Any]
MakeEnvironment: TypeAlias = Callable[[], Environment]


class ActingPolicy(Protocol):
    """A policy that acts in a Gymnasium environment.

    One that needs masks of the actions also has ``masks(env)``, whose result ``act`` takes as its
    second argument.
    """

    def reset(self) -> None:
        """Forget the episode; called at the start of every episode."""

    def act(self, observation: Any) -> Any:
        """The action for one observation."""


def in_space(space: Space, action: Any, who: str) -> Any:
    """The action in the type and shape of its space; numbers of a Box are clipped to its bounds.

    Like those of a search, they are rounded if the Box is one of integers.

    Raises:
        TrainingError: it is none of the space; the message begins with ``who`` chose it.
    """
    match space:
        case spaces.Dict():
            if isinstance(action, Mapping) and action.keys() == space.keys():
                return {key: in_space(part, action[key], who) for key, part in space.items()}
        case spaces.Tuple():
            if isinstance(action, tuple | list) and len(action) == len(space):
                pairs = zip(space, action, strict=True)
                return tuple([in_space(part, each, who) for part, each in pairs])
        case spaces.Box():
            if (numbers := _numbers(action, space)) is not None:
                found, is_whole = np.clip(numbers, space.low, space.high), space.dtype.kind in "iu"
                if is_whole and found.dtype.kind == "f":
                    found = np.rint(found)
                with np.errstate(over="ignore", invalid="ignore"):
                    cast: Array = found.astype(space.dtype)
                if np.array_equal(cast, found) if is_whole else np.isfinite(cast).all():
                    return cast
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            if (numbers := _numbers(action, space)) is not None:
                whole = numbers.astype(space.dtype)[()]  # a scalar if the space is Discrete
                if np.array_equal(whole, numbers) and space.contains(whole):
                    return whole
        case _:
            return action
    raise TrainingError(f"{who} chose {action!r}; expected one of {space}")


def _numbers(action: Any, space: Space) -> Array | None:
    """The action as finite numbers in the shape of the space; None if that is not possible."""
    try:
        found = np.asarray(action)
    except (TypeError, ValueError, RuntimeError):  # no array, or a tensor that has a gradient
        return None
    shape = space.shape or ()
    longer = [[side for side in each if side != 1] for each in (found.shape, shape)]
    if found.dtype.kind not in "buif" or longer[0] != longer[1] or not np.isfinite(found).all():
        return None
    return found.reshape(shape)
