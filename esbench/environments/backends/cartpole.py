"""CartPole for all slots at once, bit-identical to Gymnasium's.

Gymnasium's vectorized CartPole draws all first states from one generator, so that it cannot seed
single episodes. The equations here are the same, in the same order. Episodes begin in the plain
environment. The tests compare NumPy's sine and cosine of arrays with those of numbers.
"""

from __future__ import annotations

from typing import Any, final

import gymnasium
import numpy as np

from esbench.core.arrays import Vector
from esbench.environments.backends.backend import (
    Array,
    MovableBackend,
    StepResult,
    register_backend,
)


@final
@register_backend("cartpole")
class CartPoleBackend(MovableBackend):
    """Gymnasium's CartPole, one vectorized step for all slots."""

    name = "cartpole"
    entry_points = ("gymnasium.envs.classic_control.cartpole:CartPoleEnv",)
    plays = "Gymnasium's CartPole"

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        super().__init__(environment_id, kwargs, slots)
        self._state = np.zeros((4, slots))

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot."""
        self.observations[slot], _ = self._env.reset(seed=seed)
        self._state[:, slot] = self._plain.state
        self._begin(slot)

    def _save(self, slot: int) -> Vector:
        return self._state[:, slot].copy()

    def _restore(self, slot: int, state: Vector) -> None:
        self._state[:, slot] = state

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def info(self, slot: int) -> dict[str, Any]:
        """An empty info, as CartPole gives it."""
        return {}

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """An environment whose ``state`` is that of the slot, even after later steps."""
        return self._lend(state=self._state[:, slot])

    def step(self, actions: Array) -> StepResult:
        """Step the live slots; actions [k] are 0 or 1."""
        env, count = self._plain, len(actions)
        live = self.live[:count]
        moved = self._moved(self._state[:, :count], actions)
        np.copyto(self._state[:, :count], moved, where=live)
        np.copyto(self.observations[:count], moved.T, where=live[:, None], casting="same_kind")
        far = np.abs(moved[0]) > env.x_threshold
        fallen = far | (np.abs(moved[2]) > env.theta_threshold_radians)
        if env._sutton_barto_reward:
            return self._settle(np.where(fallen, -1.0, 0.0), fallen)
        return self._settle(np.ones(count), fallen)

    def _moved(self, state: Vector, actions: Array) -> Vector:
        """The states [4, k] one step later.

        Florian 2007, "Correct equations for the dynamics of the cart-pole system", as in Gymnasium.
        """
        env = self._plain
        _, x_dot, theta, theta_dot = state
        force = np.where(actions == 1, env.force_mag, -env.force_mag)
        cosine, sine = np.cos(theta), np.sin(theta)
        temp = (force + env.polemass_length * np.square(theta_dot) * sine) / env.total_mass
        theta_acc = (env.gravity * sine - cosine * temp) / (
            env.length * (4.0 / 3.0 - env.masspole * np.square(cosine) / env.total_mass)
        )
        x_acc = temp - env.polemass_length * theta_acc * cosine / env.total_mass
        velocities = np.stack([x_dot, x_acc, theta_dot, theta_acc])
        moved: Vector = state + env.tau * velocities
        return moved
