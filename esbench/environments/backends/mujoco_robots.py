"""HalfCheetah, Hopper, Walker2d, Swimmer, Ant and the humanoids: robots that move."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.environments.backends.backend import Array, Flags
from esbench.environments.backends.mujoco_rules import (
    Rules,
    StationaryRules,
    all_finite,
    clip,
    squares,
    strictly_between,
)

# The fields that an observation may include, and the first entry that it shows.
INCLUDED: Final = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}


class Locomotion(Rules, ABC):
    """Rewards for the speed along x of a point and for health, less costs.

    The point has ``axes`` coordinates: x, or x and y.
    """

    axes = 2

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._dt = env.dt
        self._skipped = env.observation_structure["skipped_qpos"]

    @final
    def begin(self, slot: int) -> None:
        """Remember the point."""
        self.before[slot] = self._points(slice(slot, slot + 1))[0]

    @final
    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward (forward + survive) - costs; terminate robots that are not healthy."""
        env, count = self.env, len(actions)
        points, before = self._points(slice(count)), self.before[:count]
        velocities = (points - before) / self._dt
        before[:] = points
        forward = env._forward_reward_weight * velocities[:, 0]
        self.values.update(zip(("x_velocity", "y_velocity"), velocities.T, strict=False))
        self.values["reward_forward"] = forward
        self.costs = self._costs(actions)
        costs = functools.reduce(np.add, self.costs.values())
        healthy = self._healthy(count)
        if healthy is None:
            return forward - costs, np.zeros(count, np.bool_)
        self.values["reward_survive"] = survive = healthy * env._healthy_reward
        return (forward + survive) - costs, ~healthy & bool(env._terminate_when_unhealthy)

    @abstractmethod
    def _points(self, slots: slice) -> Vector:
        """The point of some slots, [k, axes]."""

    @abstractmethod
    def _costs(self, actions: Array) -> dict[str, Array]:
        """The costs by their name in the info, [k] each."""

    @abstractmethod
    def _healthy(self, count: int) -> Flags | None:
        """Which robots are healthy, [k]; None if health is not rewarded."""


class Runner(Locomotion, ABC):
    """Robots in a plane, whose only cost is that of their actions."""

    axes = 1
    up = 1
    clips: ClassVar[bool] = False  # the observed velocities

    @final
    def observe(self, out: Vector) -> None:
        """Write positions without those of the point, and velocities."""
        parts = self._coordinates(len(out), self._skipped)
        np.concatenate(parts, axis=1, out=out)
        if self.clips:
            clip(out[:, parts[0].shape[1] :], -10.0, 10.0)

    @final
    def _points(self, slots: slice) -> Vector:
        return self.state["qpos"][slots, : self.axes]

    @final
    def _costs(self, actions: Array) -> dict[str, Array]:
        return {"reward_ctrl": self.env._ctrl_cost_weight * squares(actions)}


@final
class HalfCheetah(Runner):
    """HalfCheetah-v5."""

    places = ("x_position",)

    def _healthy(self, count: int) -> None:
        return None


@final
class Swimmer(Runner):
    """Swimmer-v5, which also moves along y."""

    axes = 2
    places = ("x_position", "y_position", "distance_from_origin")

    def _healthy(self, count: int) -> None:
        return None


@final
class Hopper(Runner):
    """Hopper-v5."""

    clips = True
    places = ("x_position", "z_distance_from_origin")

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        low, high = env._healthy_state_range
        low_z, high_z = env._healthy_z_range
        low_angle, high_angle = env._healthy_angle_range
        # Height, angle (which has two ranges), the other joints and the velocities.
        rest = env.model.nq - 3 + env.model.nv
        self._low = np.array([low_z, max(low, low_angle), *[low] * rest])
        self._high = np.array([high_z, min(high, high_angle), *[high] * rest])

    def _healthy(self, count: int) -> Flags:
        values = np.concatenate(self._coordinates(count, skipped=1), axis=1)
        healthy: Flags = np.logical_and.reduce((self._low < values) & (values < self._high), axis=1)
        return healthy


@final
class Walker2d(Runner):
    """Walker2d-v5."""

    clips = True
    places = ("x_position", "z_distance_from_origin")

    def _healthy(self, count: int) -> Flags:
        height, angle = self.state["qpos"][:count, 1], self.state["qpos"][:count, 2]
        return strictly_between(self.env._healthy_z_range, height) & strictly_between(
            self.env._healthy_angle_range, angle
        )


@final
class Ant(Locomotion):
    """Ant-v5."""

    contact_forces = True
    fields = ("xpos", "cfrc_ext")
    places = ("x_position", "y_position", "distance_from_origin")

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._body = env.data.body(env._main_body).id

    def observe(self, out: Vector) -> None:
        """Write positions without x and y, velocities and clipped contact forces."""
        count = len(out)
        parts = self._coordinates(count, self._skipped)
        if self.env._include_cfrc_ext_in_observation:
            parts.append(self._forces(count)[:, 1:].reshape(count, -1))
        np.concatenate(parts, axis=1, out=out)

    def _points(self, slots: slice) -> Vector:
        return self.state["xpos"][slots, self._body, :2]

    def _healthy(self, count: int) -> Flags:
        low, high = self.env._healthy_z_range
        qpos, qvel = self._coordinates(count)
        height: Flags = (low <= qpos[:, 2]) & (qpos[:, 2] <= high)
        return height & all_finite(qpos) & all_finite(qvel)

    def _costs(self, actions: Array) -> dict[str, Array]:
        env = self.env
        return {
            "reward_ctrl": env._ctrl_cost_weight * squares(actions),
            "reward_contact": env._contact_cost_weight * squares(self._forces(len(actions))),
        }

    def _forces(self, count: int) -> Vector:
        low, high = self.env._contact_force_range
        forces: Vector = np.clip(self.state["cfrc_ext"][:count], low, high)
        return forces


class HumanoidRules(Rules, ABC):
    """The observation, which both share."""

    fields = (*INCLUDED, "xipos")
    contact_forces = True

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._skipped = env.observation_structure["skipped_qpos"]
        # Gymnasium tests "is True", so 1 does not count.
        included = {field: getattr(env, f"_include_{field}_in_observation") for field in INCLUDED}
        self._shown = [field for field, value in included.items() if value is True]

    @final
    def observe(self, out: Vector) -> None:
        """Write positions without x and y, velocities, and the included fields of the bodies."""
        count = len(out)
        parts = self._coordinates(count, self._skipped)
        for field in self._shown:
            parts.append(self.state[field][:count, INCLUDED[field] :].reshape(count, -1))
        np.concatenate(parts, axis=1, out=out)


@final
class Humanoid(HumanoidRules, Locomotion):
    """Humanoid-v5; its velocity is that of the center of mass."""

    places = (
        "x_position",
        "y_position",
        "tendon_length",
        "tendon_velocity",
        "distance_from_origin",
    )

    def __init__(self, env: Any, state: Mapping[str, Vector]) -> None:
        super().__init__(env, state)
        self._mass = env.model.body_mass
        self._total_mass = self._mass.sum()

    def _points(self, slots: slice) -> Vector:
        # einsum adds the bodies in their order, as for one slot.
        weighted = np.einsum("b,sbj->sj", self._mass, self.state["xipos"][slots])
        centers: Vector = weighted[:, :2] / self._total_mass
        return centers

    def _healthy(self, count: int) -> Flags:
        return strictly_between(self.env._healthy_z_range, self.state["qpos"][:count, 2])

    def _costs(self, actions: Array) -> dict[str, Array]:
        env, count = self.env, len(actions)
        forces = env._contact_cost_weight * squares(self.state["cfrc_ext"][:count])
        return {
            "reward_ctrl": env._ctrl_cost_weight * squares(self.state["ctrl"][:count]),
            "reward_contact": np.clip(forces, *self.env._contact_cost_range),
        }


@final
class HumanoidStandup(HumanoidRules, StationaryRules):
    """HumanoidStandup-v5: a reward for height; it never terminates."""

    places = (
        "x_position",
        "y_position",
        "z_distance_from_origin",
        "tendon_length",
        "tendon_velocity",
    )

    def evaluate(self, actions: Array, live: Sequence[int]) -> tuple[Vector, Flags]:
        """Reward up - effort - impact + 1; never terminate."""
        env, count = self.env, len(actions)
        up = (self.state["qpos"][:count, 2] - 0) / env.model.opt.timestep
        effort = env._ctrl_cost_weight * squares(self.state["ctrl"][:count])
        impact = np.clip(
            env._impact_cost_weight * squares(self.state["cfrc_ext"][:count]),
            *env._impact_cost_range,
        )
        self.values["reward_linup"] = up
        self.costs.update(reward_quadctrl=effort, reward_impact=impact)
        return up - effort - impact + 1, np.zeros(count, np.bool_)
