"""The base class of optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from esbench.arrays import Vector

State = dict[str, Any]


class Optimizer(ABC):
    """Turns gradient estimates into steps uphill."""

    @abstractmethod
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """The new centre, [P].

        Args:
            center: [P].
            gradient: [P], points to higher returns.
            scale: factor on the learning rate and on every setting in its units.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """The state: a table of arrays, numbers and tables."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""
