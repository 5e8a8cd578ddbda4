"""What an Atari game's memory goes through: the behaviour of Atari games in Conti et al. 2018.

The authors keep the RAM of every step and compare two episodes by repeating the last state of the
shorter one; a vector of fixed length needs a limit and, to reach far, an interval.
"""

from __future__ import annotations

from typing import Annotated, Any, final

import numpy as np
from pydantic import Field

from esbench.arrays import Vector
from esbench.environments.behaviors.base import (
    Behavior,
    BehaviorSettings,
    SlotView,
    register_behavior,
)
from esbench.errors import UsageError

Count = Annotated[int, Field(ge=1)]


class RamTrajectorySettings(BehaviorSettings):
    """Settings of the RAM trajectory."""

    interval: Count = 100
    """A frame is taken at the start and after every so many steps [environment steps]."""

    samples: Count = 32
    """Frames that make a behaviour, 128 numbers each; the last frame of a shorter episode takes
    the places that are left, and what comes after the last sample is not seen [frames]."""


@final
@register_behavior("ram_trajectory")
class RamTrajectory(Behavior):
    """The RAM of an Atari game at regular intervals."""

    Settings = RamTrajectorySettings
    settings: RamTrajectorySettings

    def begin(self, view: SlotView) -> None:
        """Take the first frame.

        Raises:
            UsageError: the environment is no Atari game.
        """
        self._frames = [self._ram(view)]
        self._steps = 0

    def step(self, view: SlotView) -> None:
        """Take a frame after every ``interval`` steps."""
        self._steps += 1
        if self._steps % self.settings.interval == 0 and len(self._frames) < self.settings.samples:
            self._frames.append(self._ram(view))

    def end(self, view: SlotView) -> Vector:
        """Return the frames [samples * 128], one after the other."""
        left = self.settings.samples - len(self._frames)
        frames = [*self._frames, *([self._ram(view)] * left)]
        return np.concatenate(frames).astype(np.float64)

    def _ram(self, view: SlotView) -> np.ndarray[Any, np.dtype[np.uint8]]:
        game: Any = view.environment.unwrapped
        if not hasattr(game, "ale"):
            raise UsageError(
                f"behavior ram_trajectory: {self.environment} is no Atari game; expected an "
                "environment such as ALE/Pong-v5 (or take behavior final_observation)"
            )
        ram: np.ndarray[Any, np.dtype[np.uint8]] = game.ale.getRAM()  # a new array
        return ram
