"""OpenAI-ES: Salimans, Ho, Chen, Sidor & Sutskever, "Evolution Strategies as a Scalable
Alternative to Reinforcement Learning", 2017 (arXiv:1703.03864).

As in the authors' code, the estimate below has no factor 1/sigma (Adam is invariant to it) and the
weight decay acts on it at that scale.
"""  # noqa: D205

from __future__ import annotations

from typing import Annotated, Any, final

from pydantic import Field

from esbench.algorithms.base import Algorithm, AlgorithmSettings, Positive, State
from esbench.optimizers import make_optimizer
from esbench.population import Population, Vector
from esbench.registry import register_algorithm
from esbench.seeding import noise_key
from esbench.shaping import SHAPINGS, Shaping


class OpenAIESSettings(AlgorithmSettings):
    """Settings of OpenAI-ES; defaults of the paper's MuJoCo runs.

    Attributes:
        sigma: deviation of the noise, in parameter units.
        learning_rate: of the optimizer.
        optimizer: ``adam``, any other class of ``torch.optim``, or ``clipup``.
        optimizer_settings: further arguments of the optimizer.
        shaping: of the returns: centered, nes, linear, normalized or raw.
        antithetic: sample in mirrored pairs.
        weight_decay: L2 coefficient, subtracted from the gradient estimate.
    """

    sigma: Positive = 0.02
    learning_rate: Positive = 0.01
    optimizer: str = "adam"
    optimizer_settings: dict[str, Any] = Field(default_factory=dict)
    shaping: Shaping = "centered"
    antithetic: bool = True
    weight_decay: Annotated[float, Field(ge=0)] = 0.005

    @property
    def uses_pairs(self) -> bool:
        """Whether the noise is mirrored."""
        return self.antithetic


@final
@register_algorithm("openai_es")
class OpenAIES(Algorithm):
    """OpenAI-ES (Salimans et al. 2017): rank-weighted noise, averaged, climbed by Adam."""

    Settings = OpenAIESSettings
    settings: OpenAIESSettings

    def __init__(self, settings: OpenAIESSettings, center: Vector, seed: int) -> None:
        super().__init__(settings, center, seed)
        self._optimizer = make_optimizer(
            settings.optimizer, center.size, settings.learning_rate, settings.optimizer_settings
        )

    @property
    def sigma(self) -> float:
        """The deviation of the noise; constant."""
        return self.settings.sigma

    def _ask(self) -> Population:
        return Population(
            center=self._center,
            sigma=self.settings.sigma,  # theta_t + sigma * eps_i           (algorithm 1, line 4)
            key=noise_key(self.seed, self.generation),  # eps_i ~ N(0, I)                (line 3)
            size=self.settings.population_size,
            antithetic=self.settings.antithetic,  # mirrored sampling               (section 2.1)
        )

    def _tell(self, population: Population, returns: Vector) -> None:
        utilities = SHAPINGS[self.settings.shaping](returns)  # fitness shaping   (section 2.1)
        if (utilities == utilities[0]).all():
            return  # equal returns say nothing: no step, not even Adam's momentum or the decay
        gradient = population.weighted_noise(utilities) / len(population)  # 1/n sum F_i eps_i (5)
        gradient -= self.settings.weight_decay * self._center  # weight decay       (section 2.1)
        self._center = self._optimizer.step(self._center, gradient)  # theta_t+1         (line 5)

    def _state_dict(self) -> State:
        return {"optimizer": self._optimizer.state_dict()}

    def _load_state_dict(self, state: State) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
