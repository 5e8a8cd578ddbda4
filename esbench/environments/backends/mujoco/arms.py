"""Reacher and Pusher: rewards for small distances between bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.environments.backends.mujoco.rules import Array, Flags, Info, Rules, Vector, squares


@final
class Reacher(Rules):
    """Reacher-v5."""

    fields = ("xpos",)

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._tip, self._target = (env.data.body(name).id for name in ("fingertip", "target"))
        self._distance = np.zeros(slots)
        self._effort: Array = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Nothing to remember."""

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
        way = self._way(count)
        self._distance = -_lengths(way, live) * env._reward_dist_weight
        self._effort = -squares(actions) * env._reward_control_weight
        return self._distance + self._effort, np.zeros(count, np.bool_)

    def info(self, slot: int, data: Any) -> Info:
        """The parts of the reward."""
        return {"reward_dist": self._distance[slot], "reward_ctrl": self._effort[slot]}

    def _way(self, count: int) -> Vector:
        places = self.state["xpos"][:count]
        way: Vector = places[:, self._tip] - places[:, self._target]
        return way


@final
class Pusher(Rules):
    """Pusher-v5."""

    fields = ("xpos",)

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        names = ("tips_arm", "object", "goal")
        self._arm, self._object, self._goal = (env.data.body(name).id for name in names)
        self._near = self._distance = np.zeros(slots)
        self._effort: Array = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Nothing to remember."""

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
        near = places[:, self._object] - places[:, self._arm]
        far = places[:, self._object] - places[:, self._goal]
        self._near = -_lengths(near, live) * env._reward_near_weight
        self._distance = -_lengths(far, live) * env._reward_dist_weight
        self._effort = -squares(actions) * env._reward_control_weight
        return self._distance + self._effort + self._near, np.zeros(count, np.bool_)

    def info(self, slot: int, data: Any) -> Info:
        """The parts of the reward."""
        return {
            "reward_dist": self._distance[slot],
            "reward_ctrl": self._effort[slot],
            "reward_near": self._near[slot],
        }


def _lengths(vectors: Vector, live: Sequence[int]) -> Vector:
    """The Euclidean norms of the live rows, [k]; 0 for the others."""
    lengths = np.zeros(len(vectors))
    for slot in live:
        lengths[slot] = np.linalg.norm(vectors[slot])
    return lengths
