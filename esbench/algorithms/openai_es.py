"""OpenAI-ES: Salimans, Ho, Chen, Sidor & Sutskever, "Evolution Strategies as a Scalable
Alternative to Reinforcement Learning", 2017 (arXiv:1703.03864).

As in the authors' code, the estimate below has no factor 1/sigma (Adam is invariant to it), and the
weight decay acts on it at that scale. The paper's sigma is constant; ``sigma_decay`` is estool's.
"""

from __future__ import annotations

from abc import ABC
from typing import Annotated, Any, final

from pydantic import Field

from esbench.algorithms import search_settings as fields
from esbench.algorithms.base import DecayingSearch, register_algorithm
from esbench.algorithms.optimizers import Ascent
from esbench.algorithms.shaping import utilities
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune


class OpenAIESFamilySettings(fields.DeviationSettings, ABC):
    """Settings of OpenAI-ES and of the algorithms built on it; defaults of its MuJoCo runs."""

    sigma: Annotated[fields.PerParameter | None, Tune(low=0.01, high=0.5, log=True)] = 0.02
    sigma_decay: fields.SigmaDecay = 1.0
    sigma_min: fields.SmallestDecayed = None
    antithetic: fields.Antithetic = True
    shaping: fields.FitnessShaping = "centered"
    learning_rate: Annotated[fields.LearningRate, Tune(low=0.003, high=0.3, log=True)] = 0.01
    learning_rate_decay: fields.LearningRateDecay = 1.0
    optimizer: fields.OptimizerName = "adam"
    optimizer_settings: Annotated[
        fields.OptimizerSettings, Tune("momentum", low=0.0, high=0.95, when={"optimizer": "sgd"})
    ] = Field(default_factory=dict)
    weight_decay: Annotated[fields.WeightDecay, Tune(choices=(0.0, 0.001, 0.005, 0.02))] = 0.005


@final
class OpenAIESSettings(OpenAIESFamilySettings):
    """Settings of OpenAI-ES; the defaults are those of the paper's MuJoCo runs."""


class OpenAIESFamily(DecayingSearch[SampledPopulation], ABC):
    """OpenAI-ES with any noise eps_i: members are theta_t + sigma * eps_i (algorithm 1, line 4)."""

    settings: OpenAIESFamilySettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._ascent = Ascent(self.settings, self._center.size)

    @final
    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        shaping, paired = self.settings.shaping, self.settings.uses_pairs
        fitness = utilities(shaping, returns, paired=paired)  # fitness shaping   (section 2.1)
        if (fitness == fitness[0]).all():
            return  # no information: neither the momentum nor the weight decay moves anything
        gradient = population.weighted_noise(fitness) / len(population)  # 1/n sum F_i eps_i   (5)
        self._center = self._ascent.step(self._center, gradient, self.generation)  #     (line 5)

    @final
    def _state_dict(self) -> State:
        return {"optimizer": self._ascent.optimizer.state_dict()}

    @final
    def _load_state_dict(self, state: State) -> None:
        self._ascent.optimizer.load_state_dict(state["optimizer"])


@final
@register_algorithm("openai_es")
class OpenAIES(OpenAIESFamily):
    """OpenAI-ES: the rank-weighted average of Gaussian noise, followed by Adam."""

    Settings = OpenAIESSettings
    paper = "Salimans et al. 2017, arXiv:1703.03864"

    def _ask(self) -> SampledPopulation:
        return self.sampled(self._decayed_sigma)  # eps_i ~ N(0, I)          (algorithm 1, line 3)
