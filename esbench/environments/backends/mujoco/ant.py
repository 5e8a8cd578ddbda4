"""Ant: a reward for the speed along x, less effort and contact forces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.environments.backends.mujoco.rules import (
    Array,
    Flags,
    Info,
    Rules,
    Vector,
    all_finite,
    squares,
)


@final
class Ant(Rules):
    """Ant-v5."""

    fields = ("xpos", "cfrc_ext")
    contact_forces = True

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._body = env.data.body(env._main_body).id
        self._skipped = env.observation_structure["skipped_qpos"]
        self._before = np.zeros((slots, 2))
        self._velocity = np.zeros((slots, 2))
        self._forward = self._survive = self._contact = np.zeros(slots)
        self._effort: Array = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Remember the position of the main body."""
        self._before[slot] = self.state["xpos"][slot, self._body, :2]

    def observe(self, out: Vector) -> None:
        """Write positions without x and y, velocities and clipped contact forces."""
        count = len(out)
        parts = [self.state["qpos"][:count, self._skipped :], self.state["qvel"][:count]]
        if self.env._include_cfrc_ext_in_observation:
            parts.append(self._contact_forces(count)[:, 1:].reshape(count, -1))
        np.concatenate(parts, axis=1, out=out)

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward (forward + survive) - (effort + contact); terminate if not healthy."""
        env, count = self.env, len(actions)
        place, before = self.state["xpos"][:count, self._body, :2], self._before[:count]
        self._velocity = (place - before) / env.dt
        before[:] = place
        healthy = self._healthy(count)
        self._forward = self._velocity[:, 0] * env._forward_reward_weight
        self._survive = healthy * env._healthy_reward
        self._effort = env._ctrl_cost_weight * squares(actions)
        self._contact = env._contact_cost_weight * squares(self._contact_forces(count))
        rewards = (self._forward + self._survive) - (self._effort + self._contact)
        return rewards, ~healthy & bool(env._terminate_when_unhealthy)

    def info(self, slot: int, data: Any) -> Info:
        """Position, velocity and the parts of the reward."""
        return {
            "x_position": data.qpos[0],
            "y_position": data.qpos[1],
            "distance_from_origin": np.linalg.norm(data.qpos[0:2], ord=2),
            "x_velocity": self._velocity[slot, 0],
            "y_velocity": self._velocity[slot, 1],
            "reward_forward": self._forward[slot],
            "reward_ctrl": -self._effort[slot],
            "reward_contact": -self._contact[slot],
            "reward_survive": self._survive[slot],
        }

    def _contact_forces(self, count: int) -> Vector:
        low, high = self.env._contact_force_range
        forces: Vector = np.clip(self.state["cfrc_ext"][:count], low, high)
        return forces

    def _healthy(self, count: int) -> Flags:
        low, high = self.env._healthy_z_range
        qpos, qvel = self.state["qpos"][:count], self.state["qvel"][:count]
        height: Flags = (low <= qpos[:, 2]) & (qpos[:, 2] <= high)
        return height & all_finite(qpos) & all_finite(qvel)
