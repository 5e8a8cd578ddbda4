"""Robots that stay in place: two arms, rewarded for small distances, and two pendulums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.environments.backends.base import Array, Flags
from esbench.environments.backends.mujoco.rules import StationaryRules, all_finite, squares


@final
class Reacher(StationaryRules):
    """Reacher-v5."""

    fields = ("xpos",)

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
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

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
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

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._distance, self._speed = np.zeros(slots), np.zeros(slots)
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
