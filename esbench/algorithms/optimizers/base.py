"""What an optimizer is; how one checks a number that it is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from esbench.arrays import Vector

State = dict[str, Any]


class Optimizer(ABC):
    """Turns gradients into steps uphill."""

    @abstractmethod
    def step(self, center: Vector, gradient: Vector, scale: float = 1.0) -> Vector:
        """Return the new centre, [P].

        Args:
            center: [P].
            gradient: [P], points to higher returns.
            scale: factor on the learning rate, and on what is given in its units.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Return the state as a table of arrays, numbers and tables."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned, exactly."""


def number(
    name: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """Return a setting as a finite number within these bounds.

    Raises:
        TypeError: it is no number.
        ValueError: it is not within them.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} = {value!r}: expected a number")
    if not (at_least <= value and above < value < below):
        bounds = {"at least": at_least, "above": above, "below": below}
        said = [f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound)]
        raise ValueError(f"{name} = {value!r}: expected {' and '.join(said) or 'a finite number'}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Return a setting that is true or false.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} = {value!r}: expected true or false")
    return value
