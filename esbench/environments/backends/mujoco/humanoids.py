"""Humanoid and HumanoidStandup: large observations, costs of effort and of contacts."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from esbench.environments.backends.mujoco.rules import (
    Array,
    Flags,
    Info,
    Rules,
    Vector,
    squares,
    strictly_between,
)


class HumanoidRules(Rules, ABC):
    """The observation, which both share."""

    fields = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext", "xipos")
    contact_forces = True

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._skipped = env.observation_structure["skipped_qpos"]
        # Gymnasium tests "is True", so 1 does not count.
        self._cinert = env._include_cinert_in_observation is True
        self._cvel = env._include_cvel_in_observation is True
        self._actuator = env._include_qfrc_actuator_in_observation is True
        self._cfrc = env._include_cfrc_ext_in_observation is True

    @final
    def observe(self, out: Vector) -> None:
        """Write positions without x and y, velocities, and the included fields of the bodies."""
        count, state = len(out), self.state
        parts = [state["qpos"][:count, self._skipped :], state["qvel"][:count]]
        if self._cinert:
            parts.append(state["cinert"][:count, 1:].reshape(count, -1))
        if self._cvel:
            parts.append(state["cvel"][:count, 1:].reshape(count, -1))
        if self._actuator:
            parts.append(state["qfrc_actuator"][:count, 6:])
        if self._cfrc:
            parts.append(state["cfrc_ext"][:count, 1:].reshape(count, -1))
        np.concatenate(parts, axis=1, out=out)


@final
class Humanoid(HumanoidRules):
    """Humanoid-v5; its velocity is that of the centre of mass."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._mass = env.model.body_mass
        self._total_mass = self._mass.sum()
        self._before = np.zeros((slots, 2))
        self._velocity = np.zeros((slots, 2))
        self._forward = self._survive = self._effort = self._contact = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Remember the centre of mass."""
        self._before[slot] = self._centers_of_mass(slice(slot, slot + 1))[0]

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward (forward + survive) - (effort + contact); terminate if not healthy."""
        env, count = self.env, len(actions)
        place, before = self._centers_of_mass(slice(count)), self._before[:count]
        self._velocity = (place - before) / env.dt
        before[:] = place
        healthy = strictly_between(env._healthy_z_range, self.state["qpos"][:count, 2])
        self._forward = env._forward_reward_weight * self._velocity[:, 0]
        self._survive = healthy * env._healthy_reward
        self._effort = env._ctrl_cost_weight * squares(self.state["ctrl"][:count])
        self._contact = np.clip(
            env._contact_cost_weight * squares(self.state["cfrc_ext"][:count]),
            *env._contact_cost_range,
        )
        rewards = (self._forward + self._survive) - (self._effort + self._contact)
        return rewards, ~healthy & bool(env._terminate_when_unhealthy)

    def info(self, slot: int, data: Any) -> Info:
        """Position, velocity, tendons and the parts of the reward."""
        return {
            "x_position": data.qpos[0],
            "y_position": data.qpos[1],
            "tendon_length": data.ten_length.copy(),
            "tendon_velocity": data.ten_velocity.copy(),
            "distance_from_origin": np.linalg.norm(data.qpos[0:2], ord=2),
            "x_velocity": self._velocity[slot, 0],
            "y_velocity": self._velocity[slot, 1],
            "reward_survive": self._survive[slot],
            "reward_forward": self._forward[slot],
            "reward_ctrl": -self._effort[slot],
            "reward_contact": -self._contact[slot],
        }

    def _centers_of_mass(self, slots: slice) -> Vector:
        """Centres [k, 2]; einsum adds the bodies in their order, as for one slot."""
        weighted = np.einsum("b,sbj->sj", self._mass, self.state["xipos"][slots])
        places: Vector = weighted[:, :2] / self._total_mass
        return places


@final
class HumanoidStandup(HumanoidRules):
    """HumanoidStandup-v5: a reward for height; it never terminates."""

    def __init__(self, env: Any, slots: int) -> None:
        super().__init__(env, slots)
        self._up = self._effort = self._impact = np.zeros(slots)

    def begin(self, slot: int) -> None:
        """Nothing to remember."""

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward up - effort - impact + 1; never terminate."""
        env, count = self.env, len(actions)
        self._up = (self.state["qpos"][:count, 2] - 0) / env.model.opt.timestep
        self._effort = env._ctrl_cost_weight * squares(self.state["ctrl"][:count])
        self._impact = np.clip(
            env._impact_cost_weight * squares(self.state["cfrc_ext"][:count]),
            *env._impact_cost_range,
        )
        return self._up - self._effort - self._impact + 1, np.zeros(count, np.bool_)

    def info(self, slot: int, data: Any) -> Info:
        """Position, tendons and the parts of the reward."""
        return {
            "x_position": data.qpos[0],
            "y_position": data.qpos[1],
            "z_distance_from_origin": data.qpos[2] - self.env.init_qpos[2],
            "tendon_length": data.ten_length.copy(),
            "tendon_velocity": data.ten_velocity.copy(),
            "reward_linup": self._up[slot],
            "reward_quadctrl": -self._effort[slot],
            "reward_impact": -self._impact[slot],
        }
