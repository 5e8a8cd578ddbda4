"""OpenAI-ES: Salimans, Ho, Chen, Sidor & Sutskever, "Evolution Strategies as a Scalable
Alternative to Reinforcement Learning", 2017 (arXiv:1703.03864).

As in the authors' code, the estimate below has no factor 1/sigma (Adam is invariant to it) and the
weight decay acts on it at that scale. The paper's sigma is constant; ``sigma_decay`` is estool's.
"""

from __future__ import annotations

from typing import final

from esbench.algorithms.ascent import Ascent
from esbench.algorithms.base import Algorithm, State, fitting, register_algorithm, scale_of
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.settings import (
    AscentSettings,
    DecayingDeviationSettings,
    NonNegative,
    PairSettings,
    PerParameter,
    ShapingSettings,
)
from esbench.algorithms.shaping import SHAPINGS
from esbench.arrays import Matrix, Shapes, Vector


class OpenAIESSettings(AscentSettings, ShapingSettings, PairSettings, DecayingDeviationSettings):
    """Settings of OpenAI-ES; defaults of the paper's MuJoCo runs."""

    sigma: PerParameter | None = 0.02
    """Deviation of the population at the start: a number, or one for each parameter [parameter
    units]."""

    weight_decay: NonNegative = 0.005
    """L2 coefficient: this much of the centre is subtracted from the gradient estimate."""


@final
@register_algorithm("openai_es")
class OpenAIES(Algorithm[SampledPopulation]):
    """OpenAI-ES: rank-weighted noise, averaged, climbed by Adam."""

    Settings = OpenAIESSettings
    paper = "Salimans et al. 2017, arXiv:1703.03864"
    settings: OpenAIESSettings

    def __init__(
        self, settings: OpenAIESSettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = fitting("sigma", settings.initial_sigma(center.size), center.size)
        self._ascent = Ascent(settings, center.size)

    @property
    def sigma(self) -> float:
        """The deviation of the noise now."""
        return scale_of(self._decayed_sigma)

    @property
    def _decayed_sigma(self) -> float | Vector:
        return self.settings.decayed(self._sigma, self.generation)

    def _ask(self) -> SampledPopulation:
        return SampledPopulation(
            center=self._center,
            sigma=self._decayed_sigma,  # theta_t + sigma * eps_i           (algorithm 1, line 4)
            noise=self.gaussian_noise(),  # eps_i ~ N(0, I)                              (line 3)
            size=self.population_size,
            antithetic=self.settings.antithetic,  # mirrored sampling               (section 2.1)
        )

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = SHAPINGS[self.settings.shaping](returns)  # fitness shaping   (section 2.1)
        if (utilities == utilities[0]).all():
            return  # equal returns say nothing: no step, not even Adam's momentum or the decay
        gradient = population.weighted_noise(utilities) / len(population)  # 1/n sum F_i eps_i (5)
        self._center = self._ascent.step(self._center, gradient, self.generation)  #     (line 5)

    def _state_dict(self) -> State:
        return {"optimizer": self._ascent.state_dict()}

    def _load_state_dict(self, state: State) -> None:
        self._ascent.load_state_dict(state["optimizer"])
