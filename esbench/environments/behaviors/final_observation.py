"""The last observation of an episode: the default, for any environment (Conti et al. 2018)."""

from __future__ import annotations

from typing import final

from esbench.arrays import Vector
from esbench.environments.behaviors.base import (
    Behavior,
    BehaviorSettings,
    SlotView,
    register_behavior,
)


@final
@register_behavior("final_observation")
class FinalObservation(Behavior):
    """The last observation."""

    Settings = BehaviorSettings

    def begin(self, view: SlotView) -> None:
        """Need nothing."""

    def step(self, view: SlotView) -> None:
        """Need nothing."""

    def end(self, view: SlotView) -> Vector:
        """Return the last observation, flattened."""
        return view.observation
