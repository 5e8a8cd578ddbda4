"""ClipUp."""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.algorithms.optimizers.base import Optimizer, State, number
from esbench.arrays import Vector


@final
class ClipUp(Optimizer):
    """ClipUp (Toklu, Liskowski & Srivastava 2020, algorithm 2).

    v <- clip(momentum * v + learning_rate * g / |g|, max_speed). A zero gradient adds nothing and
    the velocity decays. ``max_speed`` defaults to twice the learning rate.
    """

    def __init__(
        self, learning_rate: float, momentum: float = 0.9, max_speed: float | None = None
    ) -> None:
        if max_speed is not None:
            max_speed = number("max_speed", max_speed, above=0.0)
        self.learning_rate = number("learning_rate", learning_rate, at_least=0.0)
        self.momentum = number("momentum", momentum, at_least=0.0, below=1.0)
        self.max_speed = 2 * learning_rate if max_speed is None else max_speed
        self._velocity: Vector | None = None

    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P]; ``scale`` multiplies the largest speed too."""
        velocity = np.zeros_like(center) if self._velocity is None else self._velocity
        velocity = self.momentum * velocity
        length = _norm(gradient)
        if length > 0.0:
            velocity = velocity + scale * self.learning_rate * (gradient / length)
        speed = _norm(velocity)
        if speed > scale * self.max_speed:
            velocity = velocity * (scale * self.max_speed / speed)
        self._velocity = velocity
        return center + velocity

    def state_dict(self) -> State:
        """Return the velocity; empty before the first step."""
        return {} if self._velocity is None else {"velocity": self._velocity.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restore the velocity."""
        velocity = state.get("velocity")
        self._velocity = None if velocity is None else np.array(velocity)


def _norm(vector: Vector) -> float:
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))
