"""The reference backend: plain Gymnasium environments, stepped one after the other.

Measured on two cores (HalfCheetah-v5, 33 environments, random actions, medians of nine rounds in
turn): 33.2 us a step, as a bare loop over the same environments; ``SyncVectorEnv`` takes 38.3 us,
for infos and copies that nobody here reads.

Where an environment takes long to make (assets, a server, a large model), a worker has as many as
it makes in ``LONG`` seconds instead of dozens, but ``FEW`` at least. With 64 members, two workers
and 0.5 s to make one, the first generation came 5.3 to 5.9 s after the start and not 18 to 19; the
19 generations after it, of steps that cost nothing, took 1.1 to 2.9 s and not 1.1 to 1.4 (three
rounds in turn). The bits are equal.
"""

from __future__ import annotations

import time
from typing import Any, Final, final

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from esbench.environments.backends.base import Array, Backend, register_backend
from esbench.environments.make import make_environment

LONG: Final = 4.0  # seconds to make a worker's environments
FEW: Final = 8  # of them, however long it takes


@final
@register_backend("gymnasium")
class GymnasiumBackend(Backend):
    """Any Gymnasium environment, exactly as ``gymnasium.make`` gives it.

    It has fewer slots than asked for if an environment takes long to make.

    Raises:
        UsageError: the environment cannot be made. One that can be made once and not again, for
            another slot, raises its own error: that is no fault of the input.
    """

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Say so of everything."""
        return True

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        self._id, self._kwargs = environment_id, kwargs
        started = time.perf_counter()
        self._envs = [make_environment(environment_id, kwargs)]
        if slots > FEW and (time.perf_counter() - started) * slots > LONG:
            started = time.perf_counter()  # once more: the first time, modules are imported
            self._envs.append(self._make())
            affordable = LONG / max(time.perf_counter() - started, LONG / slots)
            slots = max(FEW, int(affordable))
        self.num_envs = slots
        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, slots)
        self.action_space = batch_space(self.single_action_space, slots)
        self.live = np.zeros(slots, dtype=np.bool_)
        space = self.single_observation_space
        self.observations = np.zeros((slots, *(space.shape or ())), dtype=space.dtype)
        self._rewards = np.zeros(slots)
        self._infos: list[dict[str, Any]] = [{}] * slots
        self._terminations = np.zeros(slots, dtype=np.bool_)
        self._truncations = np.zeros(slots, dtype=np.bool_)

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot; environments are built when a slot is first used."""
        while len(self._envs) <= slot:
            self._envs.append(self._make())
        self.observations[slot], self._infos[slot] = self._envs[slot].reset(seed=seed)
        self._terminations[slot] = self._truncations[slot] = False
        self.live[slot] = True

    def _make(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(self._id, disable_env_checker=True, **self._kwargs)

    def expose(self) -> None:
        """Do nothing more: everything is kept anyway."""

    def info(self, slot: int) -> dict[str, Any]:
        """Return the last info of a slot."""
        return self._infos[slot]

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Return the environment of a slot."""
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
