"""Pure random search: the baseline that every algorithm must beat.

Every generation samples around the starting point, whatever was learnt before; the centre is the
best member seen (Rastrigin, "The convergence of the random search method in the extremal control of
a many parameter system", 1963).
"""

from __future__ import annotations

from typing import final

import numpy as np

from esbench.algorithms.base import Algorithm, AlgorithmSettings, Positive, State
from esbench.population import Distribution, Population, Vector
from esbench.registry import register_algorithm
from esbench.seeding import noise_key


class RandomSearchSettings(AlgorithmSettings):
    """Settings of random search.

    Attributes:
        sigma: half-width (uniform) or deviation (gaussian) of the samples, in parameter units.
        distribution: of the samples: gaussian or uniform.
    """

    sigma: Positive = 1.0
    distribution: Distribution = "gaussian"


@final
@register_algorithm("random_search")
class RandomSearch(Algorithm):
    """Random search (Rastrigin 1963): keeps the best of independent samples."""

    Settings = RandomSearchSettings
    settings: RandomSearchSettings

    def __init__(self, settings: RandomSearchSettings, center: Vector, seed: int) -> None:
        super().__init__(settings, center, seed)
        self._origin = self._center.copy()
        self._best_return = -np.inf

    @property
    def sigma(self) -> float:
        """The scale of the samples; constant."""
        return self.settings.sigma

    def _ask(self) -> Population:
        return Population(
            center=self._origin,
            sigma=self.settings.sigma,
            key=noise_key(self.seed, self.generation),
            size=self.settings.population_size,
            antithetic=False,
            distribution=self.settings.distribution,
        )

    def _tell(self, population: Population, returns: Vector) -> None:
        finite = np.where(np.isfinite(returns), returns, -np.inf)
        best = int(np.argmax(finite))
        if finite[best] > self._best_return:
            self._best_return = float(finite[best])
            self._center = population.member(best)

    def _state_dict(self) -> State:
        return {"origin": self._origin.copy(), "best_return": np.array(self._best_return)}

    def _load_state_dict(self, state: State) -> None:
        self._origin = np.array(state["origin"])
        self._best_return = float(state["best_return"])
