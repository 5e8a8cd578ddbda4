"""Pure random search (Rastrigin, "The convergence of the random search method in the extremal
control of a many parameter system", 1963): the baseline that every algorithm must beat.

Every generation samples around the starting point; the center is the best member so far, with the
observation statistics that it has played with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, final

import numpy as np

from esbench.algorithms.base import Algorithm, register_algorithm, scale_of
from esbench.algorithms.search_settings import DeviationSettings, PerParameter
from esbench.algorithms.shaping import worst_if_not_finite
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.noise import NOISES, Distribution
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune
from esbench.core.seeding import noise_key


@final
class RandomSearchSettings(DeviationSettings):
    """Settings of random search."""

    sigma: Annotated[PerParameter | None, Tune(low=0.05, high=3.0, log=True)] = 1.0
    """Standard deviation (gaussian) or half-width (uniform) of the samples: one number, or one per
    parameter [parameter units]."""

    distribution: Annotated[Distribution, Tune(choices=("gaussian", "uniform"))] = "gaussian"
    """Distribution of the samples."""


@final
@register_algorithm("random_search")
class RandomSearch(Algorithm[SampledPopulation]):
    """Random search: keeps the best of independent samples around the start."""

    Settings = RandomSearchSettings
    paper = "Rastrigin 1963"
    uses_equal_returns = True
    settings: RandomSearchSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = self.settings.initial_sigma(self._center.size)
        self.plan = replace(self.plan, center_lineage=1, center_is_member=True)
        self._origin = self._center.copy()
        self._best_return = -np.inf

    @property
    def sigma(self) -> float:
        """The scale of the samples; constant."""
        return scale_of(self._sigma)

    def _ask(self) -> SampledPopulation:
        kind = NOISES[self.settings.distribution]
        noise = kind(noise_key(self.seed, self.generation), self._origin.size)
        return self.sampled(self._sigma, noise, self._origin)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        values = worst_if_not_finite(returns)
        best = int(np.argmax(values))
        if values[best] > self._best_return:
            self._best_return = float(values[best])
            self._center = population.member(best)

    def _state_dict(self) -> State:
        return {"origin": self._origin.copy(), "best_return": np.array(self._best_return)}

    def _load_state_dict(self, state: State) -> None:
        self._origin = np.array(state["origin"])
        self._best_return = float(state["best_return"])
