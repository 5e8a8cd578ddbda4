"""Observations, rewards and ends of Gymnasium's MuJoCo environments, for all slots at once.

The results are bit-identical to ``env.step``: the same operations in the same order and types,
elementwise or along the last axis of contiguous rows, which NumPy adds up like a single row. Where
NumPy's result can depend on the length of the array (sine, cosine, BLAS products), the code loops
over the slots and calls the function that Gymnasium calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.environments.backends.backend import Array, Flags

Info = dict[str, Any]


class Rules(ABC):
    """The rules of one environment, whose constants are those of its Gymnasium environment ``env``.

    ``state`` has qpos, qvel, ctrl and ``fields`` of all slots, [S, ...] each. The entries of the
    last info are ``values`` and ``costs``, [k] each, which the info has with the opposite sign.
    ``before`` [S, axes] is what the rewards of the next step are compared with.
    """

    fields: ClassVar[tuple[str, ...]] = ()  # arrays of ``MjData`` that it reads after every step
    contact_forces: ClassVar[bool] = False  # reads ``cfrc_ext``, which is computed on request
    places: ClassVar[tuple[str, ...]] = ()  # the entries of the info that ``PLACES`` computes
    up: ClassVar[int] = 2  # the coordinate that is the height
    axes: ClassVar[int] = 0

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        self.env, self.state = env, state
        self.values: dict[str, Array] = {}
        self.costs: dict[str, Array] = {}
        self.before = np.zeros((len(state["qpos"]), self.axes))

    @abstractmethod
    def begin(self, slot: int) -> None:
        """Called when an episode begins in a slot."""

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


@final
class Reacher(StationaryRules):
    """Reacher-v5."""

    fields = ("xpos",)

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._tip, self._target = (env.data.body(name).id for name in ("fingertip", "target"))

    def observe(self, out: Vector) -> None:
        """Write cosines and sines of the joints, the target, velocities and the vector to go."""
        qpos, count = self.state["qpos"], len(out)
        for slot in range(count):
            angles = qpos[slot, :2]
            out[slot, 0:2] = np.cos(angles)
            out[slot, 2:4] = np.sin(angles)
        target = 4 + qpos.shape[1] - 2
        out[:, 4:target] = qpos[:count, 2:]
        out[:, target : target + 2] = self.state["qvel"][:count, :2]
        out[:, target + 2 :] = self._way(count)[:, :2]

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward -distance - effort; never terminate."""
        env, count = self.env, len(actions)
        distance = -_lengths(self._way(count), live) * env._reward_dist_weight
        effort = -squares(actions) * env._reward_control_weight
        self.values.update(reward_dist=distance, reward_ctrl=effort)
        return distance + effort, np.zeros(count, np.bool_)

    def _way(self, count: int) -> Vector:
        places = self.state["xpos"][:count]
        way: Vector = places[:, self._tip] - places[:, self._target]
        return way


@final
class Pusher(StationaryRules):
    """Pusher-v5."""

    fields = ("xpos",)

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        names = ("tips_arm", "object", "goal")
        self._arm, self._object, self._goal = (env.data.body(name).id for name in names)

    def observe(self, out: Vector) -> None:
        """Write seven joints, their velocities, and three positions."""
        count = len(out)
        places = self.state["xpos"][:count]
        bodies = [places[:, body] for body in (self._arm, self._object, self._goal)]
        joints = [self.state["qpos"][:count, :7], self.state["qvel"][:count, :7]]
        np.concatenate([*joints, *bodies], axis=1, out=out)

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward -distance - effort - nearness; never terminate."""
        env, count = self.env, len(actions)
        places = self.state["xpos"][:count]
        ways = [places[:, self._object] - places[:, body] for body in (self._arm, self._goal)]
        near = -_lengths(ways[0], live) * env._reward_near_weight
        distance = -_lengths(ways[1], live) * env._reward_dist_weight
        effort = -squares(actions) * env._reward_control_weight
        self.values.update(reward_dist=distance, reward_ctrl=effort, reward_near=near)
        return distance + effort + near, np.zeros(count, np.bool_)


def _lengths(vectors: Vector, live: Sequence[int]) -> Vector:
    """The Euclidean norms of the live rows, [k]; 0 for the others."""
    lengths = np.zeros(len(vectors))
    for slot in live:
        lengths[slot] = np.linalg.norm(vectors[slot])
    return lengths


@final
class InvertedPendulum(StationaryRules):
    """InvertedPendulum-v5."""

    def observe(self, out: Vector) -> None:
        """Write positions and velocities."""
        np.concatenate(self._coordinates(len(out)), axis=1, out=out)

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward 1 while the pole stands; terminate when it falls."""
        seen = np.concatenate(self._coordinates(len(actions)), axis=1)
        standing = all_finite(seen) & ~(np.abs(seen[:, 1]) > 0.2)
        self.values["reward_survive"] = rewards = standing.astype(np.float64)
        return rewards, ~standing


@final
class InvertedDoublePendulum(StationaryRules):
    """InvertedDoublePendulum-v5."""

    fields = ("qfrc_constraint", "site_xpos")

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._distance, self._speed = np.zeros((2, len(state["qpos"])))
        self.costs.update(distance_penalty=self._distance, velocity_penalty=self._speed)

    def observe(self, out: Vector) -> None:
        """Write the cart's position, sines and cosines of the angles, velocities and a force."""
        count = len(out)
        qpos = self.state["qpos"]
        angles = qpos.shape[1] - 1
        for slot in range(count):
            out[slot, 1 : 1 + angles] = np.sin(qpos[slot, 1:])
            out[slot, 1 + angles : 1 + 2 * angles] = np.cos(qpos[slot, 1:])
        out[:, 0] = qpos[:count, 0]
        out[:, 1 + 2 * angles : -1] = np.clip(self.state["qvel"][:count], -10, 10)
        out[:, -1] = np.clip(self.state["qfrc_constraint"][:count, 0], -10, 10)

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward alive - distance - speed; terminate when the poles fall."""
        count = len(actions)
        fallen = self.state["site_xpos"][:count, 0, 2] <= 1
        for slot in live:  # NumPy squares a scalar in another way than an array
            x, _, y = self.state["site_xpos"][slot, 0]
            v1, v2 = self.state["qvel"][slot, 1:3]
            self._distance[slot] = 0.01 * x**2 + (y - 2) ** 2
            self._speed[slot] = 1e-3 * v1**2 + 5e-3 * v2**2
        alive = self.env._healthy_reward * (~fallen).astype(np.float64)
        self.values["reward_survive"] = alive
        rewards: Vector = alive - self._distance[:count] - self._speed[:count]
        return rewards, fallen
