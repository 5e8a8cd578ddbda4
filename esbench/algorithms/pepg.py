"""PEPG as in the package PEPG-ES (github.com/goktug97/PEPG-ES), after Sehnke et al., "Parameter-
exploring policy gradients", Neural Networks 23(4), 2010 (doi:10.1016/j.neunet.2009.12.004).

What sets it apart from ``pgpe``: Adam with weight decay on the centre, plain ascent with no limit
on the deviations, and pairs whose estimates are divided by the N members, not by the N/2 pairs,
which for the deviations is half of ``pgpe``'s.

Two deviations from the package:

- Its sigma can turn zero or negative. Here one update leaves at least 1 % of a deviation; any
  smaller decrease, and every increase, is the package's.
- It adds Adam's eps to sqrt(v), torch to sqrt(v / (1 - beta2^t)): a step differs by the fraction
  eps (1 - sqrt(1 - beta2^t)) / sqrt(v) at most, which for a gradient g is 3e-7 / |g| at the first
  update and 2e-8 / |g| after a hundred.
"""

from __future__ import annotations

from typing import final

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.separable import SeparableSearch, SeparableSettings, ascended
from esbench.algorithms.settings import NonNegative, PerParameter, Positive
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.arrays import Matrix, Vector


class PEPGSettings(SeparableSettings):
    """Settings of PEPG; defaults of the package's examples."""

    sigma: PerParameter | None = 2.0
    """Deviation that the search starts with: a number, or one for each parameter [parameter
    units]."""

    learning_rate: Positive = 0.3
    """Learning rate of the optimizer."""

    weight_decay: NonNegative = 0.005
    """L2 coefficient: this much of the centre is subtracted from the gradient estimate."""

    sigma_learning_rate: NonNegative = 0.2
    """Learning rate of the deviation; 0 keeps it constant."""

    @property
    def uses_pairs(self) -> bool:
        """Always."""
        return True


@final
@register_algorithm("pepg")
class PEPG(SeparableSearch):
    """PEPG: PGPE with Adam and weight decay on the centre, as in the package PEPG-ES."""

    Settings = PEPGSettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004"
    settings: PEPGSettings

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = SHAPINGS[self.settings.shaping](returns)
        if all_equal(utilities):
            return  # nothing to learn: not even the optimizer's moments or the decay move
        utilities = utilities - utilities.mean()  # r - b
        noise, squares = population.weighted_moments(utilities, utilities)
        # 1/N sum (r+ - r-) eps, with eps = sigma z
        mu_gradient = self._sigma * noise / len(population)
        # 1/N sum ((r+ + r-)/2 - b) (eps^2 - sigma^2)/sigma; a half, since members are in pairs
        sigma_gradient = self._sigma * (squares - utilities.sum()) / (2 * len(population))
        step = self.settings.sigma_rate(self.generation) * sigma_gradient
        self._center = self._ascent.step(self._center, mu_gradient, self.generation)
        self._sigma = ascended(self.settings, self._sigma, step)
