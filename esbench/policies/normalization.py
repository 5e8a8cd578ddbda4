"""Running observation statistics, gathered per episode in float64 and merged in member order.

Within a generation the statistics are frozen, so the inputs of a member do not depend on the order
in which episodes end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Vector
from esbench.policies.policy import Rows

INITIAL_COUNT = 1e-2
STD_FLOOR = 1e-2

Moments: TypeAlias = tuple[int, Vector, Vector]


@final
@dataclass(frozen=True, eq=False)
class Normalizer:
    """Normalizes observations to mean 0 and deviation 1; frozen for one generation."""

    mean: Vector  # [n]
    scale: Vector  # one over the standard deviation, [n]
    clip: float  # largest absolute value after normalization [deviations]

    def scale_into(self, shown: Rows, centered: Vector) -> None:
        """Write normalized observations to ``shown``; overwrites ``centered`` (less the mean)."""
        centered *= self.scale
        np.maximum(centered, -self.clip, out=centered)
        np.minimum(centered, self.clip, out=centered)
        shown[...] = centered


def policy_inputs(observations: npt.NDArray[Any], normalizer: Normalizer | None) -> Rows:
    """The inputs of a policy for observations [k, n], normalized if there is a normalizer."""
    inputs = observations.astype(np.float32)
    if normalizer is not None:
        normalizer.scale_into(inputs, observations - normalizer.mean)
    return inputs


@final
class ObservationStatistics:
    """Count, mean and sum of squared deviations of all observations of the population so far.

    Starts as ``INITIAL_COUNT`` observations of mean 0 and deviation 1. Deviations have the lower
    bound ``STD_FLOOR``, so that constant inputs are not amplified; OpenAI's code has 0.1.
    """

    def __init__(self, size: int) -> None:
        self.count = INITIAL_COUNT
        self.mean = np.zeros(size)
        self.squares = np.full(size, INITIAL_COUNT)

    def normalizer(self, clip: float) -> Normalizer:
        """A normalizer with the current statistics."""
        deviation = np.maximum(np.sqrt(self.squares / self.count), STD_FLOOR)
        return Normalizer(self.mean.copy(), 1.0 / deviation, clip)

    def merge(self, moments: Moments, shift: Vector) -> None:
        """Add one episode (Chan, Golub & LeVeque 1983, eq. 2.1).

        ``moments`` are the number of its observations, and the sum and sum of squares of these
        less ``shift`` [n], the mean during the episode, which keeps the sums accurate.
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
        """Copies of count, mean and squares, as arrays."""
        return {name: np.array(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: dict[str, Vector]) -> None:
        """Restore the result of ``state_dict``."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"])
        self.squares = np.array(state["squares"])
