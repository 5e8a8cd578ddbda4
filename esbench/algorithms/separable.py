"""What PGPE, PEPG and SNES share: a centre and a deviation for each parameter, both climbed."""

from __future__ import annotations

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

LEFT: Final = 0.01  # the part of a deviation that an ascent leaves at least


class SeparableSettings(
    AscentSettings, ShapingSettings, SigmaRateSettings, AdaptiveDeviationSettings
):
    """Settings of all of them."""


class SeparableSearch(Algorithm[SampledPopulation]):
    """Samples from N(mu, diag(sigma^2)); a family writes how mu and sigma learn, ``_tell``."""

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
    """Return the deviations sigma + step, [P], within the settings' bounds.

    With no limit on its change, plain ascent can overshoot zero, and from zero no deviation comes
    back: 1 % is left whatever the step.
    """
    return settings.controlled(sigma, np.maximum(sigma + step, LEFT * sigma))
