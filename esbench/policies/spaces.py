"""Flat observations and flat outputs for the spaces of Gymnasium."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.core.errors import TrainingError
from esbench.core.flat_spaces import Array, Space, packed, parts, require_flat


@final
class Observations:
    """Converts observations to rows: boxes are flattened, discrete ones become one-hot.

    All others are flattened by Gymnasium.

    Attributes:
        size: the number of values in a row.
        shape: of an observation before it was flattened; () if discrete.
        pixels: the lowest and highest pixel, which may be infinite; None if the observations are
            not images. Images are boxes with three axes or more, or with two axes of bytes.

    Raises:
        UsageError: the space has a Text, Graph or Sequence space.
    """

    def __init__(self, space: Space, environment: str) -> None:
        require_flat(space, environment, "observation")
        self._space = space
        self._environment = environment
        self.shape: tuple[int, ...] = space.shape or ()
        self.pixels: tuple[float, float] | None = None
        match space:
            case spaces.Discrete():
                self.size = int(space.n)
            case spaces.Box():
                self.size = int(np.prod(space.shape))
                if len(space.shape) >= 3 or (len(space.shape) == 2 and space.dtype == np.uint8):
                    self.pixels = float(space.low.min()), float(space.high.max())
            case _:
                self.size = spaces.flatdim(space)
                self.shape = (self.size,)

    def encode(self, batch: Any) -> Array:
        """Convert k observations of the environment to [k, size]; boxes keep their dtype.

        The result can share memory with ``batch``.
        """
        match self._space:
            case spaces.Box():
                rows: Array = batch.reshape(len(batch), self.size)
                return rows
            case spaces.Discrete():
                encoded = np.zeros((len(batch), self.size))
                numbers = batch.astype(np.int64) - int(self._space.start)
                outside = (numbers < 0) | (numbers >= self.size)
                if outside.any():
                    raise TrainingError(
                        f"{self._environment}: the observation {batch[outside][0]} is outside of "
                        f"its space {self._space}"
                    )
                encoded[np.arange(len(batch)), numbers] = 1.0
                return encoded
        return np.array([spaces.flatten(self._space, each) for each in batch])


@final
class Actions:
    """Converts outputs to actions, component by component.

    A discrete component is the index of its largest output (two outputs if binary). Boxes are
    clipped, and rounded if their numbers are integers. The actions of a Dict or Tuple space lie in
    an array of objects.

    Raises:
        UsageError: the space has a space of another kind.
    """

    def __init__(self, space: Space, environment: str, *, inside: bool = False) -> None:
        if not inside:
            require_flat(space, environment, "action")
        self._space = space
        self._parts = [Actions(part, environment, inside=True) for part in parts(space)]
        self.continuous = isinstance(space, spaces.Box)
        match space:
            case spaces.Discrete():
                self.size = int(space.n)
                self._start, self._dtype = int(space.start), space.dtype
            case spaces.Box():
                self.size = int(np.prod(space.shape))
                self._low, self._high = space.low.reshape(-1), space.high.reshape(-1)
                self._shape, self._dtype = space.shape, space.dtype
            case spaces.MultiDiscrete():
                self._cut(space.nvec)
            case spaces.MultiBinary():
                self._cut(np.full(space.shape, 2))
            case _:
                self._cut(np.array([part.size for part in self._parts]))
                self.continuous = all(part.continuous for part in self._parts)

    def _cut(self, sizes: Array) -> None:
        """Give each component as many outputs as ``sizes`` says."""
        self._columns = [0, *np.cumsum(sizes).tolist()]
        self.size = self._columns[-1]

    def decode(self, outputs: npt.NDArray[np.float32]) -> Array:
        """Convert outputs [k, size] to k actions, in a new array."""
        match self._space:
            case spaces.Discrete():
                chosen: Array = np.argmax(outputs, axis=1) + self._start
                return chosen.astype(self._dtype, copy=False)
            case spaces.Box():
                clipped = np.minimum(np.maximum(outputs, self._low), self._high)
                if self._dtype.kind in "iu":
                    clipped = np.rint(clipped)
                actions: Array = clipped.astype(self._dtype, copy=False)
                return actions.reshape(len(outputs), *self._shape)
        cut = [outputs[:, first:last] for first, last in pairwise(self._columns)]
        if self._parts:
            columns = [part.decode(own) for part, own in zip(self._parts, cut, strict=True)]
            rows: list[Any] = list(zip(*columns, strict=True))
            if isinstance(self._space, spaces.Dict):
                rows = [dict(zip(self._space.spaces, row, strict=True)) for row in rows]
            return packed(rows, self._space)
        space: Any = self._space
        numbers = np.stack([np.argmax(own, axis=1) for own in cut], axis=1)
        numbers = numbers.reshape(-1, *space.shape) + getattr(space, "start", 0)
        return numbers.astype(space.dtype)
