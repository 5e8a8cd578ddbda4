"""The RAM of an Atari game over an episode: the behavior of Atari games in Conti et al. 2018.

The authors keep the RAM of every step and, to compare two episodes, repeat the last state of the
shorter one. Here, an interval and a number of samples give a vector of fixed length.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError
from esbench.core.settings import Count
from esbench.environments.behaviors.base import (
    Behavior,
    BehaviorSettings,
    SlotView,
    register_behavior,
)


@final
class RamTrajectorySettings(BehaviorSettings):
    """Settings of the RAM trajectory."""

    interval: Count = 100
    """A sample is taken at the start and then at this interval [environment steps]."""

    samples: Count = 32
    """Samples per behavior, 128 numbers each; a shorter episode repeats its last frame, and a
    longer one is cut after the last sample [frames]."""


@final
@register_behavior("ram_trajectory")
class RamTrajectory(Behavior):
    """The RAM of an Atari game at regular intervals."""

    Settings = RamTrajectorySettings
    settings: RamTrajectorySettings

    def begin(self, view: SlotView) -> None:
        """Take the first sample; UsageError if the environment is not an Atari game."""
        self._frames = [self._ram(view)]
        self._steps = 0

    def step(self, view: SlotView) -> None:
        """Take a sample after every ``interval`` steps."""
        self._steps += 1
        if self._steps % self.settings.interval == 0 and len(self._frames) < self.settings.samples:
            self._frames.append(self._ram(view))

    def end(self, view: SlotView) -> Vector:
        """The samples [samples * 128], one after the other."""
        left = self.settings.samples - len(self._frames)
        frames = [*self._frames, *([self._ram(view)] * left)]
        return np.concatenate(frames).astype(np.float64)

    def _ram(self, view: SlotView) -> np.ndarray[Any, np.dtype[np.uint8]]:
        game: Any = view.environment.unwrapped
        if not hasattr(game, "ale"):
            raise UsageError(
                f"behavior ram_trajectory: {self.environment} is not an Atari game; expected an "
                "environment such as ALE/Pong-v5, or use behavior final_observation"
            )
        ram: np.ndarray[Any, np.dtype[np.uint8]] = game.ale.getRAM()  # a new array
        return ram
