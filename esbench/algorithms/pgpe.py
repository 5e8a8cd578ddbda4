"""PGPE and PEPG: Sehnke, Osendorfer, Rückstieß, Graves, Peters & Schmidhuber, "Parameter-exploring
policy gradients", Neural Networks 23(4), 2010 (doi:10.1016/j.neunet.2009.12.004).

The ranks and ClipUp of PGPE are as in Toklu, Liskowski & Srivastava, "ClipUp: A Simple and Powerful
Optimizer for Distribution-Based Policy Evolution", PPSN 2020 (arXiv:2008.02387); its defaults are
those of the authors' library.

PEPG is as in the package PEPG-ES (github.com/goktug97/PEPG-ES). It differs from PGPE in three ways.
The center uses Adam with weight decay; the deviations follow their gradient without a limit; the
estimates are divided by the N members instead of the N/2 pairs, so that the gradient of the
deviations is half of PGPE's. Two differences from the package:

- Its sigma can become zero or negative. Here one update leaves at least 1 % of a deviation; a
  smaller decrease, and every increase, equals the package's.
- It adds Adam's eps to sqrt(v), torch to sqrt(v / (1 - beta2^t)). The relative difference of a step
  is at most eps (1 - sqrt(1 - beta2^t)) / sqrt(v).

With utilities r, their mean b, and s = sigma * z, both ways of sampling have one formula:

    pairs:   1/n sum (r+ - r-)/2 s            = 1/N sum r_i s_i             over n = N/2 pairs
             1/n sum ((r+ + r-)/2 - b) (s^2 - sigma^2)/sigma
                                              = 1/N sum (r_i - b) (s_i^2 - sigma^2)/sigma
    singles: the right-hand sides, over N members.
"""

from __future__ import annotations

from abc import ABC
from typing import Annotated, ClassVar, Final, final

import numpy as np
from pydantic import Field

from esbench.algorithms import search_settings as fields
from esbench.algorithms.base import SeparableSearch, register_algorithm
from esbench.algorithms.shaping import SHAPINGS, all_equal
from esbench.core.arrays import Matrix, Vector
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune

# The part of a deviation that is left after one update. Without a limit on the change, a step could
# overshoot zero, and a deviation of zero never recovers.
SMALLEST_FRACTION: Final = 0.01


@final
class PGPESettings(fields.DeviationSettings):
    """Settings of PGPE; the defaults are those of Toklu et al.'s library pgpelib.

    The exceptions are ClipUp, which is optional there, and its learning rate: theirs, 0.15, suits
    their wider populations.
    """

    sigma: Annotated[fields.PerParameter | None, Tune(low=0.02, high=1.0, log=True)] = 0.1
    sigma_min: fields.SmallestSigma = None
    sigma_max: fields.LargestSigma = None

    sigma_max_change: fields.Positive | None = 0.2
    """Largest relative change of a standard deviation in one update, such as 0.2; one update always
    leaves at least 1 % of a deviation."""

    sigma_learning_rate: Annotated[fields.SigmaRate, Tune(low=0.02, high=0.5, log=True)] = 0.1
    sigma_learning_rate_decay: fields.SigmaRateDecay = 1.0
    shaping: fields.FitnessShaping = "centered"

    learning_rate: Annotated[fields.Positive, Tune(low=0.01, high=0.5, log=True)] = 0.05
    """Learning rate of the optimizer: for ClipUp, the length of the step that each gradient
    adds [parameter units]."""

    learning_rate_decay: fields.LearningRateDecay = 1.0
    optimizer: fields.OptimizerName = "clipup"
    optimizer_settings: fields.OptimizerSettings = Field(default_factory=dict)
    weight_decay: fields.WeightDecay = 0.0
    antithetic: fields.Antithetic = True


@final
class PEPGSettings(fields.DeviationSettings):
    """Settings of PEPG; the defaults are those of the package's examples, without weight decay."""

    always_uses_pairs: ClassVar[bool] = True

    sigma: Annotated[fields.PerParameter | None, Tune(low=0.05, high=5.0, log=True)] = 2.0
    sigma_min: fields.SmallestSigma = None
    sigma_max: fields.LargestSigma = None
    sigma_max_change: fields.SigmaChange = None
    sigma_learning_rate: Annotated[fields.SigmaRate, Tune(low=0.02, high=0.5, log=True)] = 0.2
    sigma_learning_rate_decay: fields.SigmaRateDecay = 1.0
    shaping: fields.FitnessShaping = "centered"
    learning_rate: Annotated[fields.LearningRate, Tune(low=0.01, high=1.0, log=True)] = 0.3
    learning_rate_decay: fields.LearningRateDecay = 1.0
    optimizer: fields.OptimizerName = "adam"
    optimizer_settings: fields.OptimizerSettings = Field(default_factory=dict)
    weight_decay: fields.WeightDecay = 0.0


class PGPEFamily(SeparableSearch, ABC):
    """PGPE and PEPG, which differ in the scale of the gradient of sigma.

    Attributes:
        sigma_divisor: what that gradient is divided by.
    """

    sigma_divisor: ClassVar[int]
    settings: PGPESettings | PEPGSettings

    @final
    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        settings = self.settings
        utilities = SHAPINGS[settings.shaping](returns)
        if all_equal(utilities):
            return  # no information: neither the momentum nor the weight decay moves anything
        utilities = utilities - utilities.mean()  # r - b
        noise, squares = population.weighted_moments(utilities)
        mu_gradient = self._sigma * noise / len(population)  # 1/N sum (r - b) s
        # 1/N sum (r - b) (s^2 - sigma^2)/sigma, with s = sigma z
        count = self.sigma_divisor * len(population)
        sigma_gradient = self._sigma * (squares - utilities.sum()) / count
        rate = settings.sigma_learning_rate * settings.sigma_learning_rate_decay**self.generation
        moved = self._sigma + rate * sigma_gradient
        moved = np.maximum(moved, SMALLEST_FRACTION * self._sigma)
        self._center = self._ascent.step(self._center, mu_gradient, self.generation)
        self._sigma = self.settings.limited(self._sigma, moved)


@final
@register_algorithm("pgpe")
class PGPE(PGPEFamily):
    """PGPE: gradients of the center, followed by ClipUp, and of one deviation per parameter."""

    Settings = PGPESettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004; Toklu et al. 2020"
    sigma_divisor = 1


@final
@register_algorithm("pepg")
class PEPG(PGPEFamily):
    """PEPG: PGPE with Adam and weight decay on the center, as in the package PEPG-ES."""

    Settings = PEPGSettings
    paper = "Sehnke et al. 2010, doi:10.1016/j.neunet.2009.12.004"
    sigma_divisor = 2  # 1/N sum over the N/2 pairs ((r+ + r-)/2 - b) (eps^2 - sigma^2)/sigma
