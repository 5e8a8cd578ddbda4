"""The last observation of an episode: the default, for any environment (Conti et al. 2018)."""

from __future__ import annotations

from typing import final

from esbench.core.arrays import Vector
from esbench.environments.behaviors.base import Behavior, SlotView, register_behavior


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
