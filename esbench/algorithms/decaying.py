"""The base of algorithms that sample around a centre with a decaying standard deviation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from esbench.algorithms.base import Algorithm, fitting, scale_of
from esbench.algorithms.noise import Noise
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.settings import DecayingDeviationSettings
from esbench.arrays import Shapes, Vector


class DecayingSearch(Algorithm[SampledPopulation], ABC):
    """Samples center + sigma * noise, where sigma depends on the generation only."""

    settings: DecayingDeviationSettings

    def __init__(
        self,
        settings: DecayingDeviationSettings,
        center: Vector,
        seed: int,
        shapes: Shapes | None = None,
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = fitting("sigma", settings.decaying_sigma(center.size), center.size)

    @final
    @property
    def sigma(self) -> float:
        """The standard deviation of the noise now (its root mean square, for a vector)."""
        return scale_of(self._decayed_sigma)

    @final
    @property
    def _decayed_sigma(self) -> float | Vector:
        """The standard deviation of the noise now, a number or [P]."""
        return self.settings.decayed(self._sigma, self.generation)

    @abstractmethod
    def _noise(self) -> Noise:
        """The noise of this generation."""

    @final
    def _ask(self) -> SampledPopulation:
        return SampledPopulation(
            center=self._center,
            sigma=self._decayed_sigma,
            noise=self._noise(),
            size=self.population_size,
            antithetic=self.settings.uses_pairs,
        )
