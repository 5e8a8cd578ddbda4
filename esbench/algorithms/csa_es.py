"""CSA-ES: the (mu/mu_w, lambda) evolution strategy with cumulative step-size adaptation.

Equation numbers are those of Hansen, "The CMA Evolution Strategy: A Tutorial", 2016
(arXiv:1604.00772), with the covariance matrix fixed to C = I. Analysis: Chotard, Auger & Hansen,
"Cumulative Step-size Adaptation on Linear Functions", PPSN 2012 (arXiv:1206.1208).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, final

import numpy as np

from esbench.algorithms.base import Algorithm, register_algorithm
from esbench.algorithms.search_settings import AtLeastTwo, DeviationSettings, Positive
from esbench.algorithms.shaping import shared_by_ties
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune

SIGMA_RANGE: Final = (1e-300, 1e32)  # the upper limit is that of the library ``cmaes``


@final
class CSAESSettings(DeviationSettings):
    """Settings of CSA-ES; the learning rates are those of the tutorial."""

    population_size: Annotated[AtLeastTwo | None, Tune(low=8, high=128, log=True)] = None
    """Members per generation; by default 4 + floor(3 ln P) for P parameters [members]."""

    sigma: Annotated[Positive | None, Tune(low=0.02, high=1, log=True)] = 0.1
    """Standard deviation of the population at the start [parameter units]."""


@final
@register_algorithm("csa_es")
class CSAES(Algorithm[SampledPopulation]):
    """CSA-ES: the weighted mean of the better half, and one step size for all parameters."""

    Settings = CSAESSettings
    paper = "Hansen 2016, arXiv:1604.00772; Chotard et al. 2012, arXiv:1206.1208"
    settings: CSAESSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self._sigma = float(self.settings.initial_sigma(self._center.size))
        self._path = np.zeros(self._center.size)

    @property
    def sigma(self) -> float:
        """The step size."""
        return self._sigma

    def _ask(self) -> SampledPopulation:
        return self.sampled(self._sigma)  # x_k = m + sigma z_k, z_k ~ N(0, I)       (38) - (40)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        weights = recombination_weights(len(population))
        mass = selection_mass(weights)
        size = self._center.size
        rate = (mass + 2.0) / (size + mass + 5.0)  # c_sigma                                  (55)
        damping = 1.0 + 2.0 * max(0.0, np.sqrt((mass - 1.0) / (size + 1.0)) - 1.0) + rate  #  (55)
        length = np.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2))  # E||N(0, I)||

        # Ties share weights and make <y>_w shorter. With the mass of the shared weights, the path
        # still has the length of N(0, I) if the returns are random.
        shared = shared_by_ties(weights, returns)
        step = population.weighted_noise(shared)  # <y>_w                                     (41)
        center = self._center + self._sigma * step  #                                         (42)
        scale = np.sqrt(rate * (2.0 - rate) * selection_mass(shared))
        path = (1.0 - rate) * self._path + scale * step  #                                    (43)
        growth = np.exp(rate / damping * (np.sqrt(np.sum(path**2)) / length - 1.0))
        self._center, self._path = center, path
        self._sigma = float(np.clip(self._sigma * growth, *SIGMA_RANGE))  #                   (44)

    def _state_dict(self) -> State:
        return {"sigma": self._sigma, "path": self._path.copy()}

    def _load_state_dict(self, state: State) -> None:
        self._sigma = float(state["sigma"])
        self._path = np.array(state["path"])


def selection_mass(weights: Vector) -> float:
    """mu_eff of weights [N] that sum to 1 (equation 8); their order does not change a bit."""
    return 1.0 / float(np.sum(np.sort(-weights) ** 2))


def recombination_weights(size: int) -> Vector:
    """The positive weights by place, the best first, [N]; they sum to 1 (equations 49 to 53)."""
    parents = size // 2
    weights = np.zeros(size)
    weights[:parents] = np.log((size + 1.0) / 2.0) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    return weights
