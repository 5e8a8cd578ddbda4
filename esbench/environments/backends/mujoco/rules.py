"""Observations, rewards and ends of Gymnasium's MuJoCo environments, for all slots at once.

The results are bit-identical to ``env.step``: the same operations in the same order and types,
elementwise or along the last axis of contiguous rows, which NumPy adds up like a single row. Where
NumPy's result can depend on the length of the array (sine, cosine, BLAS products), the code loops
over the slots and calls the function that Gymnasium calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.environments.backends.base import Array, Flags
from esbench.environments.backends.mujoco.physics import Physics, bytes_of

Info = dict[str, Any]


class Rules(ABC):
    """The rules of one environment, whose constants are those of its Gymnasium environment ``env``.

    ``physics`` is where the next step of each slot starts; ``state`` has its values and those of
    ``fields`` in all slots, [S, ...] per array. The entries of the last info are ``values`` and
    ``costs``, [k] each, which the info has with the opposite sign.
    """

    fields: ClassVar[tuple[str, ...]] = ()  # arrays of ``MjData`` that it reads after every step
    contact_forces: ClassVar[bool] = False  # reads ``cfrc_ext``, which is computed on request
    places: ClassVar[tuple[str, ...]] = ()  # the entries of the info that ``PLACES`` computes
    up: ClassVar[int] = 2  # the coordinate that is the height

    def __init__(self, env: Any, slots: int) -> None:
        self.env = env
        self.values: dict[str, Array] = {}
        self.costs: dict[str, Array] = {}
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

    @final
    def info(self, slot: int, data: Any) -> Info:
        """The info of the last step of a slot, as ``env.step`` returns it."""
        places = {name: PLACES[name](self, data) for name in self.places}
        values = {name: rows[slot] for name, rows in self.values.items()}
        return {**places, **values, **{name: -rows[slot] for name, rows in self.costs.items()}}

    @final
    def _coordinates(self, count: int, skipped: int = 0) -> list[Vector]:
        """The positions from ``skipped`` on and the velocities of the first slots."""
        return [self.state["qpos"][:count, skipped:], self.state["qvel"][:count]]


PLACES: Final[dict[str, Callable[[Rules, Any], Any]]] = {
    "x_position": lambda rules, data: data.qpos[0],
    "y_position": lambda rules, data: data.qpos[1],
    "z_distance_from_origin": lambda rules, data: (
        data.qpos[rules.up] - rules.env.init_qpos[rules.up]
    ),
    "distance_from_origin": lambda rules, data: np.linalg.norm(data.qpos[0:2], ord=2),
    "tendon_length": lambda rules, data: data.ten_length.copy(),
    "tendon_velocity": lambda rules, data: data.ten_velocity.copy(),
}


class StationaryRules(Rules, ABC):
    """Rules that compare no successive states."""

    @final
    def begin(self, slot: int) -> None:
        """Nothing to remember."""


class MovingRules(Rules, ABC):
    """Rewards for the speed along x of a point with ``axes`` coordinates: x, or x and y."""

    axes: ClassVar[int] = 2

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._dt = env.dt
        self._skipped = env.observation_structure["skipped_qpos"]
        self._before = np.zeros((slots, self.axes))

    @final
    def begin(self, slot: int) -> None:
        """Remember the point."""
        self._before[slot] = self._points(slice(slot, slot + 1))[0]

    @final
    def _move(self, count: int) -> Vector:
        """The speed along x in the last step, [k]."""
        points, before = self._points(slice(count)), self._before[:count]
        velocities = (points - before) / self._dt
        before[:] = points
        speed: Vector = velocities[:, 0]
        self.values["x_velocity"] = speed
        if self.axes > 1:
            self.values["y_velocity"] = velocities[:, 1]
        return speed

    @abstractmethod
    def _points(self, slots: slice) -> Vector:
        """The point of some slots, [k, axes]."""


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
