"""CartPole for all slots at once, bit-identical to Gymnasium's.

Gymnasium's vectorised CartPole draws all first states from one generator, so that it cannot seed
single episodes. The equations here are the same, in the same order. Episodes begin in the plain
environment. The tests compare NumPy's sine and cosine of arrays with those of numbers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast, final

import gymnasium
import numpy as np

from esbench.environments.backends.base import Array, MovableBackend, not_served, register_backend
from esbench.environments.backends.episode_ends import EpisodeEnds, Flags, Vector
from esbench.environments.make import entry_point, make_environment

ENTRY_POINT: Final = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"


@final
class _CartPoleEpisode(NamedTuple):
    """A running episode."""

    state: Vector
    observation: Array
    elapsed: int


@final
@register_backend("cartpole")
class CartPoleBackend(MovableBackend):
    """Gymnasium's CartPole, one vectorised step for all slots.

    Raises:
        UsageError: the environment cannot be made or is not CartPole.
    """

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        self._env = make_environment(environment_id, kwargs)
        if not self.serves(environment_id, kwargs):
            raise not_served("cartpole", environment_id, "Gymnasium's CartPole")
        self._plain = cast(Any, self._env.unwrapped)
        self._describe(self._env, slots)
        self._state = np.zeros((4, slots))
        self._ends = EpisodeEnds(self._env, slots)
        self.live = self._ends.live

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether the environment is CartPole, under any name, and is not rendered."""
        return entry_point(environment_id, kwargs) == ENTRY_POINT

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot."""
        self.observations[slot], _ = self._env.reset(seed=seed)
        self._state[:, slot] = self._plain.state
        self._ends.begin(slot)

    def save(self, slot: int) -> _CartPoleEpisode:
        """A copy of the running episode of a slot."""
        place, seen = self._state[:, slot].copy(), self.observations[slot].copy()
        return _CartPoleEpisode(place, seen, int(self._ends.elapsed[slot]))

    def restore(self, slot: int, saved: _CartPoleEpisode) -> None:
        """Continue a saved episode."""
        self._state[:, slot], self.observations[slot] = saved.state, saved.observation
        self._ends.begin(slot, saved.elapsed)

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def info(self, slot: int) -> dict[str, Any]:
        """An empty info, as CartPole gives it."""
        return {}

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """An environment whose ``state`` is that of the slot, also after later steps."""
        lent: gymnasium.Env[Any, Any] = object.__new__(type(self._plain))
        vars(lent).update(vars(self._plain), state=self._state[:, slot])
        return lent

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots; actions [k] are 0 or 1."""
        if actions.max() > 1 or actions.min() < 0:
            raise ValueError(f"actions from {actions.min()} to {actions.max()}: expected 0 and 1")
        count, ends = len(actions), self._ends
        live = self.live[:count]
        moved = self._moved(self._state[:, :count], actions)
        np.copyto(self._state[:, :count], moved, where=live)
        np.copyto(self.observations[:count], moved.T, where=live[:, None], casting="same_kind")
        fallen = self._fallen(moved)
        ends.settle(self._rewards(fallen), fallen)
        return self.observations, ends.rewards, ends.terminations, ends.truncations, {}

    def _moved(self, state: Vector, actions: Array) -> Vector:
        """The states [4, k] one step later.

        Florian 2007, "Correct equations for the dynamics of the cart-pole system", as in Gymnasium.
        """
        env = self._plain
        x, x_dot, theta, theta_dot = state
        force = np.where(actions == 1, env.force_mag, -env.force_mag)
        cosine, sine = np.cos(theta), np.sin(theta)
        temp = (force + env.polemass_length * np.square(theta_dot) * sine) / env.total_mass
        theta_acc = (env.gravity * sine - cosine * temp) / (
            env.length * (4.0 / 3.0 - env.masspole * np.square(cosine) / env.total_mass)
        )
        x_acc = temp - env.polemass_length * theta_acc * cosine / env.total_mass
        moved: Vector = np.stack(
            [
                x + env.tau * x_dot,
                x_dot + env.tau * x_acc,
                theta + env.tau * theta_dot,
                theta_dot + env.tau * theta_acc,
            ]
        )
        return moved

    def _fallen(self, state: Vector) -> Flags:
        far, wide = self._plain.x_threshold, self._plain.theta_threshold_radians
        x, theta = state[0], state[2]
        fallen: Flags = (x < -far) | (x > far) | (theta < -wide) | (theta > wide)
        return fallen

    def _rewards(self, fallen: Flags) -> Vector:
        if self._plain._sutton_barto_reward:
            return np.where(fallen, -1.0, 0.0)
        return np.ones(len(fallen))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self._env.close()
