"""EGGROLL: Sarkar, Fellows, Duque et al., "Evolution Strategies at the Hyperscale", 2025
(arXiv:2511.16652).

OpenAI-ES whose noise is of rank r in every matrix of the policy: E = A B^T / sqrt(r). The estimate
is the paper's for Gaussian noise, with E for the score, and as in OpenAI-ES without the factor
1/sigma. The average of the members' noise is of full rank again.

The paper tunes deviation, rate and optimizer for every task. The defaults here are those of
``openai_es``, so that a comparison of the two compares their noise; the authors' code shapes
returns as ``shaping = "normalized"``.
"""

from __future__ import annotations

from typing import final

from esbench.algorithms.ascent import Ascent
from esbench.algorithms.base import Algorithm, State, register_algorithm
from esbench.algorithms.noise import LowRankNoise
from esbench.algorithms.openai_es import OpenAIESSettings
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.settings import Count, Positive
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.arrays import Matrix, Shapes, Vector
from esbench.seeding import noise_key


class EGGROLLSettings(OpenAIESSettings):
    """Settings of EGGROLL; defaults of OpenAI-ES."""

    rank: Count = 1
    """Rank of the noise in a matrix (the paper's r); vectors get full noise."""

    sigma: Positive | None = 0.02
    """Deviation of the population at the start, one number because another one for each parameter
    would raise the noise's rank [parameter units]."""


@final
@register_algorithm("eggroll")
class EGGROLL(Algorithm[SampledPopulation]):
    """EGGROLL: OpenAI-ES with low-rank noise in every matrix of the policy."""

    Settings = EGGROLLSettings
    paper = "Sarkar et al. 2025, arXiv:2511.16652"
    settings: EGGROLLSettings

    def __init__(
        self, settings: EGGROLLSettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = settings.initial_scale(center.size)
        self._ascent = Ascent(settings, center.size)

    @property
    def sigma(self) -> float:
        """The deviation of the noise now."""
        return self.settings.decayed(self._sigma, self.generation)

    def _ask(self) -> SampledPopulation:
        key = noise_key(self.seed, self.generation)  # other noise every generation
        return SampledPopulation(
            center=self._center,
            sigma=self.sigma,  # mu_t + sigma * E_i                               (algorithm 1)
            noise=LowRankNoise(key, self._center.size, self.shapes, self.settings.rank),
            size=self.population_size,
            antithetic=self.settings.antithetic,  # of a pair, A has the other sign
        )

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        if all_equal(returns):
            return  # equal returns say nothing: no step, not even Adam's momentum or the decay
        utilities = SHAPINGS[self.settings.shaping](returns)
        gradient = population.weighted_noise(utilities) / len(population)  # 1/N sum E_i f_i
        self._center = self._ascent.step(self._center, gradient, self.generation)

    def _state_dict(self) -> State:
        return {"optimizer": self._ascent.state_dict()}

    def _load_state_dict(self, state: State) -> None:
        self._ascent.load_state_dict(state["optimizer"])
