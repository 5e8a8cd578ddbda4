"""What a Gymnasium environment makes of MuJoCo's state: observations, rewards and ends.

For all slots at once, and bit-identical to ``env.step``: the same operations in the same order and
in the same types, elementwise or along the last axis of contiguous rows, which NumPy adds up as it
adds up one row. Where its result can depend on the length of the array (sine and cosine, products
with BLAS) they go through the slots and call what Gymnasium calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from esbench.environments.backends.mujoco.physics import Physics, bytes_of

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Info = dict[str, Any]


class Rules(ABC):
    """One kind of environment.

    A family declares ``fields`` and writes ``observe``, ``evaluate`` and ``info``; all constants
    are those of a Gymnasium environment made with the same arguments.

    Attributes:
        fields: the arrays of ``MjData`` that it reads after every step, besides its physics.
        contact_forces: whether it reads ``cfrc_ext``, which is computed only on request.
        env: the unwrapped Gymnasium environment.
        physics: what the next step of each slot goes on from.
        state: of each of its fields and of the others, the values in all slots, [S, ...].
    """

    fields: ClassVar[tuple[str, ...]] = ()
    contact_forces: ClassVar[bool] = False

    def __init__(self, env: Any, slots: int) -> None:
        """Make room for ``slots`` copies of the fields."""
        self.env = env
        self.physics = Physics(env.data, slots)
        self._others: dict[str, Vector] = {
            field: np.zeros((slots, *getattr(env.data, field).shape)) for field in self.fields
        }
        self.state = self.physics.state | self._others

    @final
    def copies(self, slot: int, data: Any) -> list[tuple[memoryview, memoryview]]:
        """Return what to copy out of ``data`` after every step of a slot: targets, and sources."""
        pairs = ((rows[slot], getattr(data, field)) for field, rows in self._others.items())
        return [(bytes_of(row), bytes_of(source)) for row, source in pairs if row.size]

    @final
    def save(self, slot: int) -> list[bytes]:
        """Return a copy of a slot's state."""
        return [bytes(memory) for memory in self._memory(slot)]

    @final
    def restore(self, slot: int, saved: list[bytes]) -> None:
        """Put a saved state into a slot."""
        for memory, copy in zip(self._memory(slot), saved, strict=True):
            memory[:] = copy
        self.begin(slot)

    def _memory(self, slot: int) -> list[memoryview]:
        others = (bytes_of(rows[slot]) for rows in self._others.values() if rows.size)
        return [self.physics.row(slot), *others]

    def begin(self, slot: int) -> None:  # noqa: B027  # most families need nothing of it
        """Know that an episode begins, or goes on, from a slot's state.

        A family whose rewards compare a step with the one before remembers that state.
        """

    @abstractmethod
    def observe(self, out: Vector) -> None:
        """Write the observations of the first slots, [k, n]."""

    @abstractmethod
    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Return rewards and terminations, each [k].

        Args:
            actions: [k, n], as they were given to the first k slots.
            live: the slots that were stepped; what is returned for others has no meaning.
        """

    @abstractmethod
    def info(self, slot: int, data: Any) -> Info:
        """Return the info of a slot's last step, as ``env.step`` gives it."""


def squares(rows: Array) -> Array:
    """Return the sum of each row's squares, [k], in the rows' own type."""
    flat = rows.reshape(len(rows), -1)
    total: Array = np.add.reduce(flat * flat, axis=1)
    return total


def all_finite(rows: Vector) -> Flags:
    """Return whether all of a row is finite, [k]."""
    finite: Flags = np.logical_and.reduce(np.isfinite(rows), axis=1)
    return finite


def strictly_between(bounds: tuple[float, float], values: Vector) -> Flags:
    """Return low < values < high; false for NaN."""
    low, high = bounds
    return (low < values) & (values < high)


def clip(values: Vector, low: float, high: float) -> None:
    """Clip in place: what ``np.clip`` does, at a third of its time for small arrays."""
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
