"""PGPE: Sehnke, Osendorfer, Rückstieß, Graves, Peters & Schmidhuber, "Parameter-exploring policy
gradients", Neural Networks 23(4), 2010 (doi:10.1016/j.neunet.2009.12.004).

Ranks and ClipUp are as in Toklu, Liskowski & Srivastava, "ClipUp: A Simple and Powerful Optimizer
for Distribution-Based Policy Evolution", PPSN 2020 (arXiv:2008.02387); the defaults are those of
the authors' library.

With utilities r, their mean b, and s = sigma * z, both ways of sampling have one formula:

    pairs:   1/n sum (r+ - r-)/2 s            = 1/N sum r_i s_i             over n = N/2 pairs
             1/n sum ((r+ + r-)/2 - b) (s^2 - sigma^2)/sigma
                                              = 1/N sum (r_i - b) (s_i^2 - sigma^2)/sigma
    singles: the right-hand sides, over N members.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, final

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.separable import SeparableSearch, SeparableSettings, ascended
from esbench.algorithms.settings import NonNegative, PairSettings, PerParameter, Positive
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.arrays import Matrix, Vector


@final
class PGPESettings(PairSettings, SeparableSettings):
    """Settings of PGPE; the defaults are those of Toklu et al.'s library pgpelib."""

    sigma: PerParameter | None = 0.1

    learning_rate: Positive = 0.15
    """Learning rate of the optimizer: for ClipUp, the length of the step that each gradient
    adds [parameter units]."""

    optimizer: str = "clipup"

    sigma_learning_rate: NonNegative = 0.1
    """Learning rate of the standard deviation; 0 keeps it constant."""

    sigma_max_change: Positive | None = 0.2
    """Largest relative change of a standard deviation in one update, such as 0.2; one update always
    leaves at least 1 % of a deviation."""


class PGPEFamily(SeparableSearch, ABC):
    """PGPE and PEPG, which differ in the scale of the gradient of sigma.

    Attributes:
        sigma_divisor: what that gradient is divided by.
    """

    sigma_divisor: ClassVar[int]

    @final
    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = SHAPINGS[self.settings.shaping](returns)
        if all_equal(utilities):
            return  # no information: neither the momentum nor the weight decay moves anything
        utilities = utilities - utilities.mean()  # r - b
        noise, squares = population.weighted_moments(utilities, utilities)
        mu_gradient = self._sigma * noise / len(population)  # 1/N sum (r - b) s
        # 1/N sum (r - b) (s^2 - sigma^2)/sigma, with s = sigma z
        count = self.sigma_divisor * len(population)
        sigma_gradient = self._sigma * (squares - utilities.sum()) / count
        step = self.settings.sigma_rate(self.generation) * sigma_gradient
        self._center = self._ascent.step(self._center, mu_gradient, self.generation)
        self._sigma = ascended(self.settings, self._sigma, step)


@final
@register_algorithm("pgpe")
class PGPE(PGPEFamily):
    """PGPE: gradients of the centre, followed by ClipUp, and of one deviation per parameter."""

    Settings = PGPESettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004; Toklu et al. 2020"
    sigma_divisor = 1
