"""SNES: Schaul, Glasmachers & Schmidhuber, "High Dimensions and Heavy Tails for Natural Evolution
Strategies", GECCO 2011 (doi:10.1145/2001576.2001692).

Algorithm numbers below are those of Wierstra, Schaul, Glasmachers, Sun, Peters & Schmidhuber,
"Natural Evolution Strategies", JMLR 15, 2014 (arXiv:1106.4487).
"""

from __future__ import annotations

from abc import ABC
from typing import final

import numpy as np

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.separable import SeparableSearch, SeparableSettings
from esbench.algorithms.settings import (
    AscentSettings,
    Count,
    DeviationSettings,
    NonNegative,
    PairSettings,
    PerParameter,
    Positive,
    ShapingSettings,
    SigmaRateSettings,
)
from esbench.algorithms.shaping import SHAPINGS, Shaping, all_equal
from esbench.arrays import Matrix, Vector


class NaturalSettings(
    AscentSettings, ShapingSettings, SigmaRateSettings, PairSettings, DeviationSettings, ABC
):
    """Settings that natural evolution strategies share; the defaults are those of the papers."""

    population_size: Count | None = None
    """Members per generation; by default 4 + floor(3 ln P) for P parameters [members]."""

    sigma: PerParameter | None = 0.1
    optimizer: str = "sgd"

    shaping: Shaping = "nes"
    """Fitness shaping, which turns returns into utilities: nes (logarithmic utilities), centered
    (ranks in [-0.5, 0.5]), linear (ranks in [0, 1]), normalized (z-scores) or raw; all but nes are
    then shifted to sum 0 and divided by the sum of their magnitudes."""

    antithetic: bool = False


@final
class SNESSettings(NaturalSettings, SeparableSettings):
    """Settings of SNES."""

    learning_rate: Positive = 1.0
    """Learning rate of the optimizer; with sgd, 1 moves the centre to the weighted mean of the
    members."""

    sigma_learning_rate: NonNegative | None = None
    """Learning rate of the standard deviation; by default (3 + ln P) / (5 sqrt(P)) for P
    parameters. A given value replaces the default (evotorch multiplies by it, unless
    scale_learning_rate = False)."""


@final
@register_algorithm("snes")
class SNES(SeparableSearch):
    """SNES: the natural gradient of the centre and of one deviation per parameter."""

    Settings = SNESSettings
    paper = "Schaul et al. 2011, doi:10.1145/2001576.2001692; Wierstra et al. 2014, arXiv:1106.4487"
    settings: SNESSettings

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = utilities_of(returns, self.settings.shaping)  # u_k             (section 3.1)
        if not utilities.any():
            return  # no information: neither the momentum nor the weight decay moves anything
        noise, squares = population.weighted_moments(utilities, utilities)
        gradient = self._sigma * noise  # sigma grad_mu J, grad_mu J = sum u_k s_k
        self._center = self._ascent.step(self._center, gradient, self.generation)
        self._adapt_sigma(squares - utilities.sum())  # grad_sigma J = sum u_k (s_k^2 - 1)

    def _adapt_sigma(self, gradient: Vector) -> None:
        size = self._center.size
        eta = float((3.0 + np.log(size)) / (5.0 * np.sqrt(size)))  # eta_sigma      (table 1)
        rate = self.settings.sigma_rate(self.generation, default=eta)
        grown = self._sigma * np.exp(0.5 * rate * gradient)  # sigma exp(eta_sigma/2 grad_sigma J)
        self._sigma = self.settings.controlled(self._sigma, grown)


def utilities_of(returns: Vector, shaping: Shaping) -> Vector:
    """The weights of the members, [N], with sum 0; all 0 if the returns carry no information.

    The learning rates are made for ``nes`` utilities, whose magnitudes sum to about 1. As in
    evotorch, those of any other shaping are divided by their sum, so that the same rates fit. Here
    they are first shifted to sum 0, so that a constant added to all returns changes nothing;
    evotorch's SNES does not do so.
    """
    values = SHAPINGS[shaping](returns)
    if all_equal(values):
        return np.zeros_like(values)
    if shaping == "nes":
        return values
    shifted = values - values.mean()
    weights: Vector = shifted / np.abs(shifted).sum()
    return weights
