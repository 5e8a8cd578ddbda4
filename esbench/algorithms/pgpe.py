"""PGPE: Sehnke, Osendorfer, Rückstieß, Graves, Peters & Schmidhuber, "Parameter-exploring policy
gradients", Neural Networks 23(4), 2010 (doi:10.1016/j.neunet.2009.12.004).

With ranks and ClipUp as in Toklu, Liskowski & Srivastava, "ClipUp: A Simple and Powerful Optimizer
for Distribution-Based Policy Evolution", PPSN 2020 (arXiv:2008.02387), and the defaults of those
authors' library.

With r the utilities, b their mean and s = sigma * z, both ways of sampling are one formula:

    pairs:   1/n sum (r+ - r-)/2 s            = 1/N sum r_i s_i             over n = N/2 pairs
             1/n sum ((r+ + r-)/2 - b) (s^2 - sigma^2)/sigma
                                              = 1/N sum (r_i - b) (s_i^2 - sigma^2)/sigma
    singles: the right-hand sides, over N members.
"""

from __future__ import annotations

from typing import final

from esbench.algorithms.base import register_algorithm
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.separable import SeparableSearch, SeparableSettings, ascended
from esbench.algorithms.settings import NonNegative, PairSettings, PerParameter, Positive
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.arrays import Matrix, Vector


class PGPESettings(PairSettings, SeparableSettings):
    """Settings of PGPE; defaults of Toklu et al.'s library pgpelib."""

    sigma: PerParameter | None = 0.1
    """Deviation that the search starts with: a number, or one for each parameter [parameter
    units]."""

    learning_rate: Positive = 0.15
    """Learning rate of the optimizer: for ClipUp, the length of the step that each gradient
    adds [parameter units]."""

    optimizer: str = "clipup"
    """adam, sgd, clipup or another class of torch.optim, in any case."""

    sigma_learning_rate: NonNegative = 0.1
    """Learning rate of the deviation; 0 keeps it constant."""

    sigma_max_change: Positive | None = 0.2
    """Largest relative change of a deviation in one update, such as 0.2; whatever it is, one
    update leaves at least 1 % of a deviation."""


@final
@register_algorithm("pgpe")
class PGPE(SeparableSearch):
    """PGPE: gradients for the centre, climbed by ClipUp, and for each parameter's deviation."""

    Settings = PGPESettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004; Toklu et al. 2020"
    settings: PGPESettings

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        utilities = SHAPINGS[self.settings.shaping](returns)
        if all_equal(utilities):
            return  # nothing to learn: not even the optimizer's momentum or the decay moves
        utilities = utilities - utilities.mean()  # r - b
        noise, squares = population.weighted_moments(utilities, utilities)
        mu_gradient = self._sigma * noise / len(population)  # 1/N sum (r - b) s
        # 1/N sum (r - b) (s^2 - sigma^2)/sigma, with s = sigma z
        sigma_gradient = self._sigma * (squares - utilities.sum()) / len(population)
        step = self.settings.sigma_rate(self.generation) * sigma_gradient
        self._center = self._ascent.step(self._center, mu_gradient, self.generation)
        self._sigma = ascended(self.settings, self._sigma, step)
