"""CEM: Rubinstein, "The Cross-Entropy Method for Combinatorial and Continuous Optimization",
Methodology and Computing in Applied Probability 1(2), 1999 (doi:10.1023/A:1010091220143).

With the decaying extra variance Z_t of Szita & Lorincz, "Learning Tetris Using the Noisy
Cross-Entropy Method", Neural Computation 18(12), 2006 (doi:10.1162/neco.2006.18.12.2936). They
divide the elites' squared deviations by their number; here, as in evotorch, the divisor is one less
(ddof = 1), which makes the variance unbiased and matters with few elites.
"""

from __future__ import annotations

from typing import Annotated, Any, final

import numpy as np
from pydantic import Field, model_validator

from esbench.algorithms import search_settings as fields
from esbench.algorithms.base import Algorithm, register_algorithm, scale_of
from esbench.algorithms.shaping import ranks
from esbench.core.arrays import Matrix, Shapes, State, Vector
from esbench.core.errors import UsageError
from esbench.core.population import SampledPopulation
from esbench.core.search_space import Tune
from esbench.core.settings import Count


@final
class CEMSettings(fields.DeviationSettings):
    """Settings of CEM."""

    sigma: Annotated[fields.PerParameter | None, Tune(low=0.05, high=2.0, log=True)] = 0.5
    sigma_min: fields.SmallestSigma = None
    sigma_max: fields.LargestSigma = None
    sigma_max_change: fields.SigmaChange = None

    elite_ratio: Annotated[float, Field(gt=0, lt=1), Tune(low=0.125, high=0.5)] = 0.25
    """Fraction of the members that count as elites, to which the next generation is fitted; rounded
    down to whole members, at least 2."""

    extra_sigma_ratio: Annotated[fields.NonNegative, Tune(low=0.0, high=0.5)] = 0.1
    """Extra standard deviation against early convergence, as a multiple of the initial sigma: its
    square is added to the elites' variance, and shrinks every generation; 0 adds none."""

    extra_sigma_generations: Count = 50
    """Generations over which the extra variance falls linearly to 0 [generations]."""

    @model_validator(mode="after")
    def _enough_elites(self) -> CEMSettings:
        if self.population_size is not None:
            self.num_elites(self.population_size)
        return self

    def num_elites(self, size: int) -> int:
        """The number of elites among ``size`` members; UsageError if it is below 2."""
        number = int(round(self.elite_ratio * size, 9))  # 0.29 * 100 is 28.999999999999996
        if number < 2:
            raise UsageError(
                f"elite_ratio = {self.elite_ratio} of population_size = {size} is {number}: "
                "expected at least 2 elites, to compute a variance"
            )
        return number


@final
@register_algorithm("cem")
class CEM(Algorithm[SampledPopulation]):
    """CEM: a Gaussian, fitted to the best members of every generation."""

    Settings = CEMSettings
    paper = "Rubinstein 1999, doi:10.1023/A:1010091220143; Szita & Lorincz 2006"
    settings: CEMSettings

    def __init__(self, settings: Any, center: Vector, seed: int, shapes: Shapes = ()) -> None:
        super().__init__(settings, center, seed, shapes)
        self.settings.num_elites(self.population_size)
        self._first_sigma = self.settings.initial_sigma(self._center.size)
        self._sigma = np.zeros(self._center.size) + self._first_sigma

    @property
    def sigma(self) -> float:
        """The root mean square of the deviations."""
        return scale_of(self._sigma)

    def _ask(self) -> SampledPopulation:
        return self.sampled(self._sigma)  # x_i ~ N(mu_t, sigma_t^2)

    def _tell(self, population: SampledPopulation, returns: Vector, behaviors: Matrix) -> None:
        weights = elite_weights(returns, self.settings.num_elites(len(population)))
        mean, variance = fit(population, weights)
        self._center = self._center + self._sigma * mean  # mu_(t+1) = mean of the elites
        refitted = np.sqrt(self._sigma**2 * variance + self._extra_variance())
        self._sigma = self.settings.limited(self._sigma, refitted)

    def _extra_variance(self) -> float | Vector:
        """Z_(t+1)."""
        settings = self.settings
        left = max(0.0, 1.0 - (self.generation + 1) / settings.extra_sigma_generations)
        return left * np.square(settings.extra_sigma_ratio * self._first_sigma)

    def _state_dict(self) -> State:
        return {"sigma": self._sigma.copy()}

    def _load_state_dict(self, state: State) -> None:
        self._sigma = np.array(state["sigma"])


def elite_weights(returns: Vector, elites: int) -> Vector:
    """1 for an elite and 0 for the other members, [N].

    Members that tie for the last places share them evenly, so the order of members does not matter.
    """
    places = ranks(returns)
    last = np.sort(places)[-elites]
    better, tied = places > last, places == last
    weights: Vector = better + tied * ((elites - better.sum()) / tied.sum())
    return weights


def fit(population: SampledPopulation, weights: Vector) -> tuple[Vector, Vector]:
    """The weighted mean and the unbiased variance of the members' noise, [P].

    The variance has the divisor of reliability weights, sum(w) - sum(w^2) / sum(w), which is N - 1
    for N members of weight 1.

    One pass with O(P) memory and without cancellation: West, "Updating mean and variance estimates:
    an improved method", Communications of the ACM 22(9), 1979.
    """
    mean, squares = np.zeros(population.center.size), np.zeros(population.center.size)
    total = 0.0
    for member in np.flatnonzero(weights).tolist():
        weight = float(weights[member])
        total += weight
        for place, noise in population.noise.blocks(population.row(member)):
            off = noise - mean[place]
            mean[place] += (weight / total) * off
            squares[place] += weight * off * (noise - mean[place])
    # Sorted, so that the order of members does not matter.
    squared_weights = float(np.sum(np.sort(weights) ** 2))
    return mean, squares / (total - squared_weights / total)
