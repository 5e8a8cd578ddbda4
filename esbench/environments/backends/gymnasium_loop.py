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
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from numpy import ndarray

from esbench.core.flat_spaces import never_flat
from esbench.environments.backends.backend import Array, Backend, StepResult, register_backend
from esbench.environments.make_environment import Wrappers, make_environment
from esbench.environments.returned_values import ReturnedValues

LONG: Final = 4.0  # seconds to make the environments of a worker
FEW: Final = 8  # environments, however long they take
FLOATS: Final = {np.dtype(name) for name in ("float16", "float32", "float64")}


@final
@register_backend("gymnasium")
class GymnasiumBackend(Backend):
    """Any Gymnasium environment, exactly as ``gymnasium.make`` makes it.

    Observations that are neither boxes nor discrete are checked, and flattened by Gymnasium.

    Raises:
        UsageError: the environment cannot be made.
    """

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """True."""
        return True

    def __init__(
        self, environment_id: str, kwargs: dict[str, Any], slots: int, wrappers: Wrappers = ()
    ) -> None:
        self._given = environment_id, kwargs, wrappers
        started = time.perf_counter()
        self._envs = [self._make()]
        if slots > FEW and (time.perf_counter() - started) * slots > LONG:
            started = time.perf_counter()  # a second time: the first one includes imports
            self._envs.append(self._make())
            affordable = LONG / max(time.perf_counter() - started, LONG / slots)
            slots = max(FEW, int(affordable))
        self._describe(self._envs[0], slots)
        self._infos: list[dict[str, Any]] = [{}] * slots
        self._returned = ReturnedValues(environment_id, self.single_observation_space)
        self._shape = self.observations.shape[1:]
        self._usual: Any = int if self.observations.ndim == 1 else ndarray
        self._flat = self.observations.reshape(-1)  # a view
        self._may_be_infinite = self.observations.dtype.kind == "f"
        self._fitting = FLOATS if self._may_be_infinite else {self.observations.dtype}

    def _make(self) -> gymnasium.Env[Any, Any]:
        return flattened(make_environment(*self._given), self._given[0])

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot, whose environment is made on first use."""
        while len(self._envs) <= slot:
            self._envs.append(self._make())
        answer = self._envs[slot].reset(seed=seed)
        observation, self._infos[slot] = self._returned.of_reset(answer)
        self.observations[slot] = self._returned.observation(observation)
        self._terminations[slot] = self._truncations[slot] = False
        self.live[slot] = True

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        return self._infos[slot]

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The environment of a slot."""
        return self._envs[slot]

    def step(self, actions: Array) -> StepResult:
        """Step the live slots, one after the other."""
        envs, observations, rewards = self._envs, self.observations, self._rewards
        infos, returned, shape, usual = self._infos, self._returned, self._shape, self._usual
        sized, fitting = usual is ndarray, self._fitting
        rewards.fill(0.0)
        slots = np.flatnonzero(self.live)
        earned = []
        for slot in slots.tolist():
            answer = envs[slot].step(actions[slot])
            try:
                observation, reward, terminated, truncated, infos[slot] = answer
            except (TypeError, ValueError):
                raise returned.not_of_step(answer) from None
            # What is looked at, such as a list or a scalar, is rare.
            if observation.__class__ is not usual or (
                sized and (observation.shape != shape or observation.dtype not in fitting)
            ):
                observation = returned.observation(observation)
            observations[slot] = observation
            earned.append(reward)
            if terminated is False and truncated is False:
                continue
            if returned.flag("terminated", terminated) | returned.flag("truncated", truncated):
                self._terminations[slot] = terminated
                self._truncations[slot] = truncated
                self.live[slot] = False
        if earned:
            rewards[slots] = returned.rewards(earned)
        if self._may_be_infinite and not self._flat.dot(self._flat) < np.inf:  # or it overflows
            returned.require_finite(observations)
        return observations, rewards, self._terminations, self._truncations, {}

    def close(self) -> None:
        """Close every environment."""
        while self._envs:
            self._envs.pop().close()


def flattened(env: gymnasium.Env[Any, Any], name: str) -> gymnasium.Env[Any, Any]:
    """The environment, with vectors for composite observations if they can be flattened."""
    space = env.observation_space
    plain = isinstance(space, spaces.Box | spaces.Discrete) or never_flat(space)
    if plain or not spaces.flatdim(space):
        return env
    fit = ReturnedValues(name, space).observation
    flat: gymnasium.Env[Any, Any] = TransformObservation(
        env,
        lambda observation: spaces.flatten(space, fit(observation)),
        spaces.flatten_space(space),
    )
    return flat
