"""Flat observations and flat outputs for the spaces of Gymnasium."""

from __future__ import annotations

from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.errors import UsageError

Array: TypeAlias = npt.NDArray[Any]
Space: TypeAlias = gymnasium.Space[Any]


@final
class Observations:
    """Converts observations to rows: boxes are flattened, discrete ones become one-hot.

    Raises:
        UsageError: the space is neither Box nor Discrete, or has images without finite bounds.
    """

    def __init__(self, space: Space, environment: str) -> None:
        match space:
            case spaces.Discrete():
                self.size = int(space.n)
                self._start: int | None = int(space.start)
            case spaces.Box():
                if len(space.shape) >= 3 and not space.is_bounded():
                    raise UsageError(
                        f"{environment}: its observations are images {space.shape} with infinite "
                        "bounds, which cannot be scaled; expected finite bounds, such as 0 to 255"
                    )
                self.size = int(np.prod(space.shape))
                self._start = None
            case _:
                raise UsageError(
                    f"{environment}: its observation space is {_describe(space)}; expected a Box "
                    "or Discrete one (gymnasium.wrappers.FlattenObservation makes a Box of it)"
                )
        self.shape: tuple[int, ...] = space.shape or ()

    def encode(self, batch: Array) -> Array:
        """Convert k observations of the environment to [k, size]; boxes keep their dtype.

        The result can share memory with ``batch``.
        """
        if self._start is None:
            return batch.reshape(len(batch), self.size)
        encoded = np.zeros((len(batch), self.size))
        encoded[np.arange(len(batch)), batch.astype(np.int64) - self._start] = 1.0
        return encoded


@final
class Actions:
    """Converts outputs to actions: the index of the largest one, or values clipped to a box.

    Raises:
        UsageError: the space is neither Box nor Discrete.
    """

    def __init__(self, space: Space, environment: str) -> None:
        self.continuous = isinstance(space, spaces.Box)
        match space:
            case spaces.Discrete():
                self.size = int(space.n)
                self._start = int(space.start)
            case spaces.Box():
                self.size = int(np.prod(space.shape))
                self._low, self._high = space.low.reshape(-1), space.high.reshape(-1)
                self._shape, self._dtype = space.shape, space.dtype
            case _:
                raise UsageError(
                    f"{environment}: its action space is {_describe(space)}; expected a Box or "
                    "Discrete one"
                )

    def decode(self, outputs: npt.NDArray[np.float32]) -> Array:
        """Convert outputs [k, size] to k actions, in a new array."""
        if not self.continuous:
            chosen: Array = np.argmax(outputs, axis=1) + self._start
            return chosen
        clipped = np.minimum(np.maximum(outputs, self._low), self._high)
        actions: Array = clipped.astype(self._dtype, copy=False).reshape(-1, *self._shape)
        return actions


def _describe(space: Space) -> str:
    return f"a {type(space).__name__} space"
