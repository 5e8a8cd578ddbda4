"""The bases of algorithms that sample around a center with one deviation, or one per parameter."""

from __future__ import annotations

from abc import ABC
from typing import Any, final

import numpy as np

from esbench.algorithms.base import Algorithm, PopulationT, scale_of
from esbench.algorithms.optimizers import Ascent
from esbench.algorithms.search_settings import fitting
from esbench.core.arrays import Shapes, State, Vector
from esbench.core.population import SampledPopulation


class DecayingSearch(Algorithm[PopulationT], ABC):
    """A search whose standard deviation depends on the generation only.

    Its settings are ``DeviationSettings`` with ``sigma_decay`` and ``sigma_min``.
    """

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = self.settings.initial_sigma(self._center.size)

    @final
    @property
    def sigma(self) -> float:
        """The standard deviation of the noise now (its root mean square, for a vector)."""
        return scale_of(self._decayed_sigma)

    @final
    @property
    def _decayed_sigma(self) -> float | Vector:
        """The standard deviation of the noise now, a number or [P]."""
        now: float | Vector = self._sigma * self.settings.sigma_decay**self.generation
        least = fitting("sigma_min", self.settings.sigma_min or 0.0, self._center.size)
        vector = isinstance(now, np.ndarray) or isinstance(least, np.ndarray)
        return np.maximum(now, least) if vector else max(now, least)


class SeparableSearch(Algorithm[SampledPopulation], ABC):
    """Samples from N(mu, diag(sigma^2)); a subclass implements ``_tell``, which updates both."""

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        size = self._center.size
        self._sigma = np.zeros(size) + self.settings.initial_sigma(size)
        self._ascent = Ascent(self.settings, size)

    @final
    @property
    def sigma(self) -> float:
        """The root mean square of the deviations."""
        return scale_of(self._sigma)

    @final
    def _ask(self) -> SampledPopulation:
        return self.sampled(self._sigma)  # mu + sigma z_i, z_i ~ N(0, I)

    @final
    def _state_dict(self) -> State:
        return {"sigma": self._sigma.copy(), "optimizer": self._ascent.optimizer.state_dict()}

    @final
    def _load_state_dict(self, state: State) -> None:
        self._sigma = np.array(state["sigma"])
        self._ascent.optimizer.load_state_dict(state["optimizer"])
