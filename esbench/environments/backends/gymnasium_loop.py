"""The Gymnasium loop: plain Gymnasium environments, stepped one after the other.

It serves every environment. An environment that takes long to make (assets, a server, a large
model) gets fewer slots: as many as a worker makes in ``LONG`` seconds, but at least ``FEW``. The
number of slots changes no result.
"""

from __future__ import annotations

import time
from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.environments.backends.base import Array, Backend, register_backend
from esbench.environments.make import make_environment

LONG: Final = 4.0  # seconds to make the environments of a worker
FEW: Final = 8  # environments, however long they take


@final
@register_backend("gymnasium")
class GymnasiumBackend(Backend):
    """Any Gymnasium environment, exactly as ``gymnasium.make`` makes it.

    It has fewer slots than requested if an environment takes long to make.

    Raises:
        UsageError: the environment cannot be made. If only a later slot's environment fails, its
            own error is raised, because the input is not at fault.
    """

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """True."""
        return True

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        self._id, self._kwargs = environment_id, kwargs
        started = time.perf_counter()
        self._envs = [make_environment(environment_id, kwargs)]
        if slots > FEW and (time.perf_counter() - started) * slots > LONG:
            started = time.perf_counter()  # a second time: the first one includes imports
            self._envs.append(self._make())
            affordable = LONG / max(time.perf_counter() - started, LONG / slots)
            slots = max(FEW, int(affordable))
        self._describe(self._envs[0], slots)
        self.live = np.zeros(slots, dtype=np.bool_)
        self._rewards = np.zeros(slots)
        self._infos: list[dict[str, Any]] = [{}] * slots
        self._terminations = np.zeros(slots, dtype=np.bool_)
        self._truncations = np.zeros(slots, dtype=np.bool_)

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot, whose environment is made on first use."""
        while len(self._envs) <= slot:
            self._envs.append(self._make())
        self.observations[slot], self._infos[slot] = self._envs[slot].reset(seed=seed)
        self._terminations[slot] = self._truncations[slot] = False
        self.live[slot] = True

    def _make(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(self._id, disable_env_checker=True, **self._kwargs)

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        return self._infos[slot]

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The environment of a slot."""
        return self._envs[slot]

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots, one after the other."""
        envs, observations, rewards = self._envs, self.observations, self._rewards
        infos = self._infos
        rewards.fill(0.0)
        for slot in np.flatnonzero(self.live).tolist():
            observation, reward, terminated, truncated, infos[slot] = envs[slot].step(actions[slot])
            observations[slot] = observation
            rewards[slot] = reward
            if terminated or truncated:
                self._terminations[slot] = terminated
                self._truncations[slot] = truncated
                self.live[slot] = False
        return observations, rewards, self._terminations, self._truncations, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()
