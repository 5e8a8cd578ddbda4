"""ClipUp."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.algorithms.optimizers.base import Optimizer, State
from esbench.algorithms.settings import Positive
from esbench.arrays import Vector
from esbench.settings import Settings


@final
class ClipUpSettings(Settings):
    """Settings of ClipUp; the default of ``max_speed`` is twice the learning rate."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    max_speed: Positive | None = None


@final
class ClipUp(Optimizer):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A gradient of zero adds nothing,
    so the velocity decays.
    """

    Settings = ClipUpSettings

    def __init__(self, learning_rate: float, settings: ClipUpSettings) -> None:
        self._learning_rate = learning_rate
        self._momentum = settings.momentum
        self._max_speed = settings.max_speed or 2 * learning_rate
        self._velocity: Vector | None = None

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new centre, [P]; ``scale`` also multiplies the maximum speed."""
        velocity = np.zeros_like(center) if self._velocity is None else self._velocity
        velocity = self._momentum * velocity
        length = _norm(gradient)
        if length > 0.0:
            velocity = velocity + scale * self._learning_rate * (gradient / length)
        speed = _norm(velocity)
        if speed > scale * self._max_speed:
            velocity = velocity * (scale * self._max_speed / speed)
        self._velocity = velocity
        return center + velocity

    def state_dict(self) -> State:
        """The velocity; empty before the first step."""
        return {} if self._velocity is None else {"velocity": self._velocity.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the velocity."""
        velocity = state.get("velocity")
        self._velocity = None if velocity is None else np.array(velocity)


def _norm(vector: Vector) -> float:
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))
