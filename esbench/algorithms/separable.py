"""The base of PGPE, PEPG and SNES, which learn a centre and one deviation per parameter."""

from __future__ import annotations

from abc import ABC
from typing import Final, final

import numpy as np

from esbench.algorithms.ascent import Ascent
from esbench.algorithms.base import Algorithm, State, fitting, scale_of
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.settings import (
    AdaptiveDeviationSettings,
    AscentSettings,
    ShapingSettings,
    SigmaRateSettings,
)
from esbench.arrays import Shapes, Vector

SMALLEST_FRACTION: Final = 0.01  # of a deviation that is left after one update


class SeparableSettings(
    AscentSettings, ShapingSettings, SigmaRateSettings, AdaptiveDeviationSettings, ABC
):
    """Settings that PGPE, PEPG and SNES share."""


class SeparableSearch(Algorithm[SampledPopulation], ABC):
    """Samples from N(mu, diag(sigma^2)); a subclass implements ``_tell``, which updates both."""

    settings: SeparableSettings

    def __init__(
        self, settings: SeparableSettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        sigma = fitting("sigma", settings.initial_sigma(center.size), center.size)
        self._sigma = np.zeros(center.size) + sigma
        self._ascent = Ascent(settings, center.size)

    @final
    @property
    def sigma(self) -> float:
        """The root mean square of the deviations."""
        return scale_of(self._sigma)

    @final
    def _ask(self) -> SampledPopulation:
        return SampledPopulation(
            center=self._center,
            sigma=self._sigma,  # mu + sigma z_i
            noise=self.gaussian_noise(),  # z_i ~ N(0, I)
            size=self.population_size,
            antithetic=self.settings.uses_pairs,
        )

    @final
    def _state_dict(self) -> State:
        return {"sigma": self._sigma.copy(), "optimizer": self._ascent.state_dict()}

    @final
    def _load_state_dict(self, state: State) -> None:
        self._sigma = np.array(state["sigma"])
        self._ascent.load_state_dict(state["optimizer"])


def ascended(settings: AdaptiveDeviationSettings, sigma: Vector, step: Vector) -> Vector:
    """The deviations sigma + step, [P], within the bounds of the settings.

    Without a limit on the change, a step could overshoot zero, and a deviation of zero never
    recovers. Therefore at least 1 % of a deviation is left.
    """
    return settings.controlled(sigma, np.maximum(sigma + step, SMALLEST_FRACTION * sigma))
