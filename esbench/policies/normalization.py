"""Running observation statistics: gathered by episode in float64, merged in member order.

Within a generation the statistics are frozen, so what a member sees does not depend on which
episodes ended before its own (unlike a filter that updates in mid-episode).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from esbench.arrays import Vector
from esbench.policies.base import Rows

INITIAL_COUNT = 1e-2
STD_FLOOR = 1e-2

Moments: TypeAlias = tuple[int, Vector, Vector]


@final
@dataclass(frozen=True, eq=False)
class Normalizer:
    """Mean 0, deviation 1 and a clip at ``clip`` deviations; frozen for one generation.

    Attributes:
        mean: [n]; scale: [n], one over the deviation; clip: in deviations.
    """

    mean: Vector
    scale: Vector
    clip: float

    def scale_into(self, shown: Rows, centred: Vector) -> None:
        """Write what a policy is shown for observations [k, n] less the mean, which it changes."""
        centred *= self.scale
        np.maximum(centred, -self.clip, out=centred)
        np.minimum(centred, self.clip, out=centred)
        shown[...] = centred


@final
class ObservationStatistics:
    """Count, mean and sum of squared deviations of every observation of the population so far.

    Starts as ``INITIAL_COUNT`` observations of mean 0 and deviation 1; deviations have the floor
    ``STD_FLOOR``, so an input that never moves is not blown up.
    """

    def __init__(self, size: int) -> None:
        self.count = INITIAL_COUNT
        self.mean = np.zeros(size)
        self.squares = np.full(size, INITIAL_COUNT)

    def normalizer(self, clip: float) -> Normalizer:
        """Return the frozen normaliser of the statistics so far."""
        deviation = np.maximum(np.sqrt(self.squares / self.count), STD_FLOOR)
        return Normalizer(self.mean.copy(), 1.0 / deviation, clip)

    def merge(self, moments: Moments, shift: Vector) -> None:
        """Add one episode (Chan, Golub & LeVeque 1983, eq. 2.1).

        Args:
            moments: number of observations, and their sum and sum of squares after ``shift`` was
                subtracted, [n] each.
            shift: [n]; the mean under which the episode ran, which keeps the sums accurate.
        """
        count, total, squares = moments
        if count == 0:
            return
        offset = total / count
        mean = shift + offset
        delta = mean - self.mean
        merged = self.count + count
        within = np.maximum(squares - total * offset, 0.0)
        self.squares = self.squares + within + delta * delta * (self.count * count / merged)
        self.mean = self.mean + delta * (count / merged)
        self.count = merged

    def state_dict(self) -> dict[str, Vector]:
        """Return count, mean and squares as arrays; a copy."""
        return {
            "count": np.array(self.count),
            "mean": self.mean.copy(),
            "squares": self.squares.copy(),
        }

    def load_state_dict(self, state: dict[str, Vector]) -> None:
        """Restore what ``state_dict`` returned."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"])
        self.squares = np.array(state["squares"])
