"""The final position of a robot: the behavior of locomotion tasks in Conti et al. 2018."""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError
from esbench.environments.behaviors.base import Behavior, SlotView, register_behavior


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
