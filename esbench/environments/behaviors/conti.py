"""The behaviors of Conti et al. 2018 (arXiv:1712.06560): the end of an episode, and its memory."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError
from esbench.core.settings import Count
from esbench.environments.behaviors.behavior import (
    Behavior,
    BehaviorSettings,
    SlotView,
    register_behavior,
)


@final
@register_behavior("final_observation")
class FinalObservation(Behavior):
    """The last observation."""

    def begin(self, view: SlotView) -> None:
        """Do nothing."""

    def step(self, view: SlotView) -> None:
        """Do nothing."""

    def end(self, view: SlotView) -> Vector:
        """The last observation, flattened."""
        return view.observation


@final
@register_behavior("final_position")
class FinalPosition(Behavior):
    """The final position of a robot, (x, y)."""

    def begin(self, view: SlotView) -> None:
        """Begin an episode without steps."""
        self._stepped = False

    def step(self, view: SlotView) -> None:
        """Remember that there was a step."""
        self._stepped = True

    def end(self, view: SlotView) -> Vector:
        """The position (x, y), with 0 for a missing coordinate.

        It is the info's ``x_position`` and ``y_position``, as in Gymnasium's MuJoCo tasks, or else
        the first two generalized coordinates of the MuJoCo data. NaN if the environment has no such
        data and the episode had no step whose info could hold the position.

        Raises:
            UsageError: the environment has neither.
        """
        info = view.info
        if "x_position" in info:
            return np.array([info["x_position"], info.get("y_position", 0.0)], dtype=np.float64)
        data = getattr(view.environment.unwrapped, "data", None)
        coordinates = getattr(data, "qpos", None)
        if coordinates is not None:
            first = np.ravel(coordinates)[:2]
            return np.pad(first, (0, 2 - first.size))
        if not self._stepped:
            return np.full(2, np.nan)
        raise UsageError(
            f"behavior final_position: {self.environment} has neither x_position in its info nor "
            "MuJoCo data (data.qpos); expected one of them, or use behavior final_observation"
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
