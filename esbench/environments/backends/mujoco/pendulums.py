"""InvertedPendulum and InvertedDoublePendulum: a reward for every step with the pole upright."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.environments.backends.mujoco.rules import Array, Flags, Info, Rules, Vector, all_finite


@final
class InvertedPendulum(Rules):
    """InvertedPendulum-v5."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._standing = np.zeros(slots, dtype=np.bool_)

    def begin(self, slot: int) -> None:
        """Nothing to remember."""

    def observe(self, out: Vector) -> None:
        """Write positions and velocities."""
        out[:] = self._observations(len(out))

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward 1 while the pole stands; terminate when it falls."""
        seen = self._observations(len(actions))
        self._standing = all_finite(seen) & ~(np.abs(seen[:, 1]) > 0.2)
        return self._standing.astype(np.float64), ~self._standing

    def info(self, slot: int, data: Any) -> Info:
        """The reward."""
        return {"reward_survive": int(self._standing[slot])}

    def _observations(self, count: int) -> Vector:
        return np.concatenate([self.state["qpos"][:count], self.state["qvel"][:count]], axis=1)


@final
class InvertedDoublePendulum(Rules):
    """InvertedDoublePendulum-v5."""

    fields = ("qfrc_constraint", "site_xpos")

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._alive = np.zeros(slots)
        self._distance, self._speed = np.zeros(slots), np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Nothing to remember."""

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
        self._alive = self.env._healthy_reward * (~fallen).astype(np.float64)
        rewards: Vector = self._alive - self._distance[:count] - self._speed[:count]
        return rewards, fallen

    def info(self, slot: int, data: Any) -> Info:
        """The parts of the reward."""
        return {
            "reward_survive": self._alive[slot],
            "distance_penalty": -self._distance[slot],
            "velocity_penalty": -self._speed[slot],
        }
