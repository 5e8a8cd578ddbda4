"""What a Gymnasium environment makes of MuJoCo's state: observations, rewards and ends.

For all slots at once, and bit-identical to ``env.step``: the same operations in the same order and
in the same types, elementwise or along the last axis of contiguous rows, which NumPy adds up as it
adds up one row. Where its result can depend on the length of the array (sine and cosine, products
with BLAS, ``einsum``) they go through the slots and calls what Gymnasium calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Info = dict[str, Any]


class Rules(ABC):
    """One kind of environment.

    A family declares ``fields`` and writes ``observe``, ``evaluate`` and ``info``; all constants
    are those of a Gymnasium environment made with the same arguments.

    Attributes:
        fields: the arrays of ``MjData`` that it reads after every step.
        contact_forces: whether it reads ``cfrc_ext``, which is computed only on request.
        env: the unwrapped Gymnasium environment.
        state: of each field, its values in all slots, [S, ...].
    """

    fields: ClassVar[tuple[str, ...]] = ("qpos", "qvel")
    contact_forces: ClassVar[bool] = False

    def __init__(self, env: Any, slots: int) -> None:
        """Make room for ``slots`` copies of the fields."""
        self.env = env
        self.state: dict[str, Vector] = {
            field: np.zeros((slots, *getattr(env.data, field).shape)) for field in self.fields
        }

    @final
    def copies(self, slot: int, data: Any) -> list[tuple[memoryview, memoryview]]:
        """Return what to copy after every step of a slot: targets, and their sources in ``data``.

        As memory, because an assignment between small arrays takes twice as long or more.
        """
        pairs = ((rows[slot], getattr(data, field)) for field, rows in self.state.items())
        return [(bytes_of(row), bytes_of(source)) for row, source in pairs if row.size]

    @abstractmethod
    def begin(self, slot: int) -> None:
        """Know that a slot has just been reset and read."""

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


def bytes_of(array: Array) -> memoryview:
    """Return the memory of a contiguous array."""
    return array.data.cast("B")


def squares(rows: Array) -> Array:
    """Return the sum of each row's squares, [k], in the rows' own type."""
    flat = rows.reshape(len(rows), -1)
    total: Array = np.sum(np.square(flat), axis=1)
    return total


def all_finite(rows: Vector) -> Flags:
    """Return whether all of a row is finite, [k]."""
    finite: Flags = np.logical_and.reduce(np.isfinite(rows), axis=1)
    return finite


def strictly_between(low: float, values: Vector, high: float) -> Flags:
    """Return low < values < high; false for NaN."""
    return (low < values) & (values < high)
