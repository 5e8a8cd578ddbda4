"""Wrappers for an environment's table ``wrappers``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import RecordConstructorArgs

from esbench.core.errors import UsageError, require_integer


@final
class NewInstance(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes a new instance of the environment for every episode.

    For an environment whose ``reset`` leaves state of earlier episodes behind. It must come before
    other wrappers that do not inherit from ``gymnasium.utils.RecordConstructorArgs``.

    Raises:
        UsageError: such a wrapper, or a function that returns another environment, comes before it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        wrappers = env.spec.additional_wrappers if env.spec else ()
        unknown = [wrapper.name for wrapper in wrappers if wrapper.kwargs is None]
        if env.spec is None or unknown:
            raise UsageError(
                f"NewInstance cannot make {(*unknown, type(env).__name__)[0]} again; expected "
                "NewInstance first in the list of wrappers"
            )
        self._spec = copy.deepcopy(env.spec)  # with arguments that no episode has changed
        self._used = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode in a new instance."""
        if self._used:
            self.env.close()
            self.env = gymnasium.make(copy.deepcopy(self._spec), disable_env_checker=True)
        self._used = True
        return super().reset(seed=seed, options=options)


@final
class ChannelsFirst(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Images [height, width, channels] as [channels, height, width], for convolutional policies.

    Raises:
        UsageError: the observations are no such images.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = _box(env, 3, "images [height, width, channels]")
        low, high = self.observation(space.low), self.observation(space.high)
        self.observation_space = Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The image with its last axis first."""
        return np.moveaxis(observation, -1, 0)


@final
class SelectEntries(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Some entries of a vector, in the order of ``indices``, such as the bytes of a memory.

    Raises:
        UsageError: the observations are no vectors, or ``indices`` are not different numbers of
            their entries.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], indices: Sequence[int]) -> None:
        RecordConstructorArgs.__init__(self, indices=indices)
        super().__init__(env)
        space = _box(env, 1, "vectors [n]")
        if not isinstance(indices, list | tuple) or not 0 < len(set(indices)) == len(indices):
            raise UsageError(f"indices = {indices!r}: expected different ones, such as [0, 1]")
        for index in indices:
            require_integer("indices", index, 0, space.shape[0] - 1)
        self._indices = np.asarray(indices)
        low, high = self.observation(space.low), self.observation(space.high)
        self.observation_space = Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The entries."""
        return np.take(observation, self._indices)


@final
class AppendDifferences(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """A vector [n] and its difference to the one before, as one vector [2 n] of floats.

    For a policy without memory where positions are observed and velocities are not. The first
    difference of an episode is 0. The floats have 32 bits, or 64 where these lose digits.

    Raises:
        UsageError: the observations are no vectors.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = _box(env, 1, "vectors [n]")
        self._dtype = np.result_type(space.dtype, np.float32)
        low, high = space.low.astype(self._dtype), space.high.astype(self._dtype)
        with np.errstate(over="ignore"):  # bounds near the largest float: no bound
            least, most = np.concatenate([low, low - high]), np.concatenate([high, high - low])
        self.observation_space = Box(least, most, dtype=self._dtype.type)
        self._previous: npt.NDArray[Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode."""
        self._previous = None
        return super().reset(seed=seed, options=options)

    def observation(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The vector and its difference to the last one."""
        current = np.array(observation, self._dtype)
        previous = current if self._previous is None else self._previous
        self._previous = current
        return np.concatenate([current, current - previous])


@final
class OrderedActions(gymnasium.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """One number in [-1, 1] instead of a Discrete action: equal intervals, in the actions' order.

    For actions that have an order, such as left, nothing and right. A policy then learns one output
    instead of one for each action.

    Raises:
        UsageError: the actions are not Discrete.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, Discrete):
            raise UsageError(f"the actions are {space}; expected Discrete ones")
        self._first, self._count = int(space.start), int(space.n)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: npt.NDArray[Any]) -> np.int64:
        """The action in whose interval the number lies."""
        interval = int((float(action[0]) + 1.0) / 2.0 * self._count)
        return np.int64(self._first + min(interval, self._count - 1))


def _box(env: gymnasium.Env[Any, Any], axes: int, expected: str) -> Box:
    """The space of the observations; UsageError unless it is a Box with ``axes`` axes."""
    space = env.observation_space
    if not (isinstance(space, Box) and len(space.shape) == axes):
        raise UsageError(f"the observations are {space}; expected {expected}")
    return space
