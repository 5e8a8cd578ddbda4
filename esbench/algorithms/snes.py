"""SNES: Schaul, Glasmachers & Schmidhuber, "High Dimensions and Heavy Tails for Natural Evolution
Strategies", GECCO 2011 (doi:10.1145/2001576.2001692).

Algorithm numbers below are those of Wierstra, Schaul, Glasmachers, Sun, Peters & Schmidhuber,
"Natural Evolution Strategies", JMLR 15, 2014 (arXiv:1106.4487).
"""  # noqa: D205

from __future__ import annotations

from typing import final

import numpy as np

from esbench.algorithms.ascent import Ascent
from esbench.algorithms.base import Algorithm, State, fitting, scale_of
from esbench.algorithms.settings import (
    AscentSettings,
    Count,
    NonNegative,
    PairSettings,
    PerParameter,
    Positive,
    ShapingSettings,
    SigmaRateSettings,
)
from esbench.noise import Matrix, Shapes, Vector
from esbench.population import SampledPopulation
from esbench.registry import register_algorithm
from esbench.shaping import SHAPINGS, Shaping, all_equal


class SNESSettings(AscentSettings, ShapingSettings, PairSettings, SigmaRateSettings):
    """Settings of SNES; defaults of the paper."""

    population_size: Count | None = None
    """Members a generation; by default 4 + floor(3 ln P) for P parameters [members]."""

    sigma: PerParameter | None = 0.1
    """Deviation that the search starts with: a number, or one for each parameter [parameter
    units]."""

    learning_rate: Positive = 1.0
    """Learning rate of the optimizer; with sgd, 1 moves the centre to the weighted mean of the
    members."""

    optimizer: str = "sgd"
    """clipup, or a class of torch.optim in any case: adam, sgd, ..."""

    sigma_learning_rate: NonNegative | None = None
    """Learning rate of the deviation, by default (3 + ln P) / (5 sqrt(P)) for P parameters; a
    given one replaces that (evotorch multiplies by it, unless scale_learning_rate = False)."""

    shaping: Shaping = "nes"
    """What returns are turned into before they are averaged: nes (logarithmic utilities), centered
    (ranks in [-0.5, 0.5]), linear (ranks in [0, 1]), normalized (z-scores) or raw; all but nes are
    then shifted to sum 0 and divided by the sum of their magnitudes."""

    antithetic: bool = False
    """Whether to sample in pairs, centre plus and minus the same noise."""


@final
@register_algorithm("snes")
class SNES(Algorithm[SampledPopulation]):
    """SNES: natural gradient of the centre and of each parameter's deviation."""

    Settings = SNESSettings
    paper = "Schaul et al. 2011, doi:10.1145/2001576.2001692; Wierstra et al. 2014, arXiv:1106.4487"
    settings: SNESSettings

    def __init__(
        self, settings: SNESSettings, center: Vector, seed: int, shapes: Shapes | None = None
    ) -> None:
        super().__init__(settings, center, seed, shapes)
        sigma = fitting("sigma", settings.initial_sigma(center.size), center.size)
        self._sigma = np.zeros(center.size) + sigma
        self._ascent = Ascent(settings, center.size)

    @property
    def sigma(self) -> float:
        """The root mean square of the deviations."""
        return scale_of(self._sigma)

    def _ask(self) -> SampledPopulation:
        return SampledPopulation(
            center=self._center,
            sigma=self._sigma,  # z_k = mu + sigma s_k                            (algorithm 6)
            noise=self.gaussian_noise(),  # s_k ~ N(0, I)
            size=self.population_size,
            antithetic=self.settings.antithetic,
        )

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = utilities_of(returns, self.settings.shaping)  # u_k             (section 3.1)
        if not utilities.any():
            return  # nothing to learn: not even the optimizer's momentum or the decay moves
        noise, squares = population.weighted_moments(utilities, utilities)
        gradient = self._sigma * noise  # sigma grad_mu J, grad_mu J = sum u_k s_k
        self._center = self._ascent.step(self._center, gradient, self.generation)
        self._adapt_sigma(squares - utilities.sum())  # grad_sigma J = sum u_k (s_k^2 - 1)

    def _adapt_sigma(self, gradient: Vector) -> None:
        settings, rate = self.settings, self.settings.sigma_learning_rate
        if rate is None:
            size = self._center.size
            rate = (3.0 + float(np.log(size))) / (5.0 * float(np.sqrt(size)))  # eta_sigma (table 1)
        rate *= settings.sigma_learning_rate_decay**self.generation
        grown = self._sigma * np.exp(0.5 * rate * gradient)  # sigma exp(eta_sigma/2 grad_sigma J)
        self._sigma = settings.controlled(self._sigma, grown)

    def _state_dict(self) -> State:
        return {"sigma": self._sigma.copy(), "optimizer": self._ascent.state_dict()}

    def _load_state_dict(self, state: State) -> None:
        self._sigma = np.array(state["sigma"])
        self._ascent.load_state_dict(state["optimizer"])


def utilities_of(returns: Vector, shaping: Shaping) -> Vector:
    """Return the weights of the members, [N], with sum 0; all are 0 if there is nothing to learn.

    The learning rates are made for ``nes`` utilities, whose magnitudes sum to about 1. Those of any
    other shaping are divided by their sum, as in evotorch, so that the same rates fit; and first
    shifted to sum 0, which evotorch's SNES does not do, so that a constant added to all returns
    changes nothing.
    """
    values = SHAPINGS[shaping](returns)
    if all_equal(values):
        return np.zeros_like(values)
    if shaping == "nes":
        return values
    shifted = values - values.mean()
    weights: Vector = shifted / np.abs(shifted).sum()
    return weights
