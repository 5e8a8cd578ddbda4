"""Observations, rewards and ends of Gymnasium's MuJoCo environments, for all slots at once.

The results are bit-identical to ``env.step``: the same operations in the same order and types,
elementwise or along the last axis of contiguous rows, which NumPy adds up like a single row. Where
NumPy's result can depend on the length of the array (sine, cosine, BLAS products), the code loops
over the slots and calls the function that Gymnasium calls.
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
    """The rules of one environment.

    A subclass declares ``fields`` and implements ``observe``, ``evaluate`` and ``info``. All
    constants are read from a Gymnasium environment made with the same arguments.

    Attributes:
        fields: the arrays of ``MjData`` that it reads after every step, besides the physics.
        contact_forces: whether it reads ``cfrc_ext``, which is computed only on request.
        env: the unwrapped Gymnasium environment.
        physics: the state from which the next step of each slot starts.
        state: values of the physics and of ``fields`` in all slots, [S, ...] per array.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    contact_forces: ClassVar[bool] = False

    def __init__(self, env: Any, slots: int) -> None:
        """Allocate ``slots`` copies of the fields."""
        self.env = env
        self.physics = Physics(env.data, slots)
        self._others: dict[str, Vector] = {
            field: np.zeros((slots, *getattr(env.data, field).shape)) for field in self.fields
        }
        self.state = self.physics.state | self._others

    @final
    def copies(self, slot: int, data: Any) -> list[tuple[memoryview, memoryview]]:
        """The memory to copy after every step of a slot: pairs of target and source in ``data``."""
        pairs = ((rows[slot], getattr(data, field)) for field, rows in self._others.items())
        return [(bytes_of(row), bytes_of(source)) for row, source in pairs if row.size]

    @final
    def save(self, slot: int) -> list[bytes]:
        """A copy of the state of a slot."""
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

    @abstractmethod
    def begin(self, slot: int) -> None:
        """Called when an episode begins or continues in a slot.

        Rules whose rewards compare two successive states remember the state here.
        """

    @abstractmethod
    def observe(self, out: Vector) -> None:
        """Write the observations of the first slots, [k, n]."""

    @abstractmethod
    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Compute rewards and terminations, each [k].

        Args:
            actions: [k, n], of the first k slots.
            live: the slots that were stepped; the results of the others are undefined.
        """

    @abstractmethod
    def info(self, slot: int, data: Any) -> Info:
        """The info of the last step of a slot, as ``env.step`` returns it."""


def squares(rows: Array) -> Array:
    """The sum of squares of each row, [k], in the type of the rows."""
    flat = rows.reshape(len(rows), -1)
    total: Array = np.add.reduce(flat * flat, axis=1)
    return total


def all_finite(rows: Vector) -> Flags:
    """Whether each row is finite, [k]."""
    finite: Flags = np.logical_and.reduce(np.isfinite(rows), axis=1)
    return finite


def strictly_between(bounds: tuple[float, float], values: Vector) -> Flags:
    """Whether low < value < high, elementwise; false for NaN."""
    low, high = bounds
    return (low < values) & (values < high)


def clip(values: Vector, low: float, high: float) -> None:
    """Clip in place. For small arrays this is faster than ``np.clip``."""
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
