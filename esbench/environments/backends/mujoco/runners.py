"""HalfCheetah, Hopper, Walker2d and Swimmer: rewards for the speed along x."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.environments.backends.mujoco.rules import (
    Array,
    Flags,
    Info,
    Rules,
    Vector,
    clip,
    squares,
    strictly_between,
)


class Runner(Rules, ABC):
    """Robots in a plane: reward for speed along x and for being healthy, less effort."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._dt = env.dt
        self._skipped = env.observation_structure["skipped_qpos"]
        self._before = np.zeros(slots)
        self._velocity = self._forward = self._survive = np.zeros(slots)
        self._effort: Array = np.zeros(slots)

    @final
    def begin(self, slot: int) -> None:
        """Remember x, the first coordinate."""
        self._before[slot] = self.state["qpos"][slot, 0]

    @final
    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward forward + survive - effort; terminate robots that are not healthy."""
        env, count = self.env, len(actions)
        x, before = self.state["qpos"][:count, 0], self._before[:count]
        self._velocity = (x - before) / self._dt
        before[:] = x
        self._forward = env._forward_reward_weight * self._velocity
        self._effort = env._ctrl_cost_weight * squares(actions)
        healthy = self._healthy(count)
        if healthy is None:
            return self._forward - self._effort, np.zeros(count, np.bool_)
        self._survive = healthy * env._healthy_reward
        rewards: Vector = (self._forward + self._survive) - self._effort
        return rewards, ~healthy & bool(env._terminate_when_unhealthy)

    @abstractmethod
    def _healthy(self, count: int) -> Flags | None:
        """Which robots are healthy, [k]; None if health is not rewarded."""

    @final
    def _rewards(self, slot: int) -> Info:
        return {"reward_forward": self._forward[slot], "reward_ctrl": -self._effort[slot]}


@final
class HalfCheetah(Runner):
    """HalfCheetah-v5."""

    def observe(self, out: Vector) -> None:
        """Write positions without x, and velocities."""
        _write(out, self.state, self._skipped)

    def info(self, slot: int, data: Any) -> Info:
        """Position, velocity and the parts of the reward."""
        place = {"x_position": data.qpos[0], "x_velocity": self._velocity[slot]}
        return {**place, **self._rewards(slot)}

    def _healthy(self, count: int) -> None:
        return None


class Legged(Runner, ABC):
    """Runners that can fall; their velocities are clipped."""

    @final
    def observe(self, out: Vector) -> None:
        """Write positions without x, and velocities."""
        velocities = _write(out, self.state, self._skipped)
        clip(velocities, -10.0, 10.0)

    @final
    def info(self, slot: int, data: Any) -> Info:
        """Position, velocity and the parts of the reward."""
        return {
            "x_position": data.qpos[0],
            "z_distance_from_origin": data.qpos[1] - self.env.init_qpos[1],
            "x_velocity": self._velocity[slot],
            **self._rewards(slot),
            "reward_survive": self._survive[slot],
        }


@final
class Hopper(Legged):
    """Hopper-v5."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        low, high = env._healthy_state_range
        low_z, high_z = env._healthy_z_range
        low_angle, high_angle = env._healthy_angle_range
        # Height, angle (which has two ranges), the other joints and the velocities.
        rest = env.model.nq - 3 + env.model.nv
        self._low = np.array([low_z, max(low, low_angle), *[low] * rest])
        self._high = np.array([high_z, min(high, high_angle), *[high] * rest])

    def _healthy(self, count: int) -> Flags:
        qpos, qvel = self.state["qpos"][:count, 1:], self.state["qvel"][:count]
        values = np.concatenate([qpos, qvel], axis=1)
        healthy: Flags = np.logical_and.reduce((self._low < values) & (values < self._high), axis=1)
        return healthy


@final
class Walker2d(Legged):
    """Walker2d-v5."""

    def _healthy(self, count: int) -> Flags:
        height, angle = self.state["qpos"][:count, 1], self.state["qpos"][:count, 2]
        return strictly_between(self.env._healthy_z_range, height) & strictly_between(
            self.env._healthy_angle_range, angle
        )


@final
class Swimmer(Rules):
    """Swimmer-v5, which also moves along y."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._skipped = env.observation_structure["skipped_qpos"]
        self._before = np.zeros((slots, 2))
        self._velocity = np.zeros((slots, 2))
        self._forward = np.zeros(slots)
        self._effort: Array = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Remember (x, y)."""
        self._before[slot] = self.state["qpos"][slot, :2]

    def observe(self, out: Vector) -> None:
        """Write positions without x and y, and velocities."""
        _write(out, self.state, self._skipped)

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward forward - effort; never terminate."""
        env, count = self.env, len(actions)
        place, before = self.state["qpos"][:count, :2], self._before[:count]
        self._velocity = (place - before) / env.dt
        before[:] = place
        self._forward = env._forward_reward_weight * self._velocity[:, 0]
        self._effort = env._ctrl_cost_weight * squares(actions)
        return self._forward - self._effort, np.zeros(count, np.bool_)

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
        }


def _write(out: Vector, state: dict[str, Vector], skipped: int) -> Vector:
    """Write positions from ``skipped`` on, and velocities; return the view of the velocities."""
    split, count = state["qpos"].shape[1] - skipped, len(out)
    velocities: Vector = out[:, split:]
    out[:, :split] = state["qpos"][:count, skipped:]
    velocities[:] = state["qvel"][:count]
    return velocities
