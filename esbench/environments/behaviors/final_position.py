"""Where a robot ends: the behaviour of locomotion tasks in Conti et al. 2018."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from esbench.arrays import Vector
from esbench.environments.behaviors.base import (
    Behavior,
    BehaviorSettings,
    SlotView,
    register_behavior,
)
from esbench.errors import UsageError


@final
@register_behavior("final_position")
class FinalPosition(Behavior):
    """Where a robot ends, (x, y)."""

    Settings = BehaviorSettings

    def begin(self, view: SlotView) -> None:
        """Know of no step yet."""
        self._stepped = False

    def step(self, view: SlotView) -> None:
        """Need nothing but that there was a step."""
        self._stepped = True

    def end(self, view: SlotView) -> Vector:
        """Return (x, y), with 0 for what a robot on a line or in a plane does not have.

        They are the info's ``x_position`` and ``y_position``, as in Gymnasium's MuJoCo tasks, or
        else the first two generalised coordinates of the MuJoCo data. NaN if they are only in the
        info of steps, and there was none.

        Raises:
            UsageError: the environment has neither.
        """
        info = view.info
        if "x_position" in info:
            return np.array([info["x_position"], info.get("y_position", 0.0)], dtype=np.float64)
        coordinates = _coordinates(view.environment.unwrapped)
        if coordinates is not None:
            position = np.zeros(2)
            position[: coordinates.size] = coordinates[:2]
            return position
        if not self._stepped:
            return np.full(2, np.nan)
        raise UsageError(
            f"behavior final_position: {self.environment} has neither x_position in its info nor "
            "MuJoCo data (data.qpos); expected one of them (or take behavior final_observation)"
        )


def _coordinates(environment: Any) -> Vector | None:
    data = getattr(environment, "data", None)
    coordinates = getattr(data, "qpos", None)
    return None if coordinates is None else np.asarray(coordinates).reshape(-1)
