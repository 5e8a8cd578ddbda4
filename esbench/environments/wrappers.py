"""Wrappers for an environment's table ``wrappers``."""

from __future__ import annotations

import copy
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt

from esbench.errors import UsageError


@final
class NewInstance(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes a new instance of the environment for every episode.

    For an environment whose ``reset`` leaves state of earlier episodes behind. It must come before
    other wrappers that do not inherit from ``gymnasium.utils.RecordConstructorArgs``.

    Raises:
        UsageError: such a wrapper comes before it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        below = () if env.spec is None else env.spec.additional_wrappers
        for wrapper in below:
            if wrapper.kwargs is None:
                raise UsageError(
                    f"NewInstance cannot make {wrapper.name} again, which comes before it; "
                    "expected NewInstance first in the list of wrappers"
                )
        self._spec = copy.deepcopy(env.spec)  # with arguments that no episode has changed
        self._used = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode in a new instance."""
        if self._used:
            assert self._spec is not None, "made by gymnasium.make"
            self.env.close()
            self.env = gymnasium.make(copy.deepcopy(self._spec), disable_env_checker=True)
        self._used = True
        return super().reset(seed=seed, options=options)


@final
class ChannelsFirst(
    gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Images [height, width, channels] as [channels, height, width], for convolutional policies.

    Raises:
        UsageError: the observations are no such images.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.observation_space
        if not (isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3):
            raise UsageError(
                f"ChannelsFirst: the observations are {space}; expected images [height, width, "
                "channels]"
            )
        self.observation_space = gymnasium.spaces.Box(
            self.observation(space.low), self.observation(space.high), dtype=space.dtype.type
        )

    def observation(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The image with its last axis first."""
        return np.moveaxis(observation, -1, 0)
