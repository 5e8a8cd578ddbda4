"""What is measured of an update beside the returns: the numbers that ``esbench diagnose`` reads.

Nothing here changes what is learnt, and everything is a function of the trial alone: products are
summed without BLAS, and noise is drawn again from its keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.population import Population, SampledPopulation
from esbench.algorithms.shaping import centered, worst_if_not_finite
from esbench.arrays import Vector
from esbench.policies.normalization import Normalizer

State = dict[str, Any]

# For ``split_half_cosine`` the noise is drawn a second time, but not more numbers than these: 14 ms
# on one core. It is all of 128 pairs with 5,702 parameters, the network of HalfCheetah-v5; with 1.7
# million parameters, where a row tells more, it is four rows of a hundred.
MOST_DRAWS: Final = 1 << 20
LEAST_ROWS: Final = 4  # two a half: the smallest number whose ranks can agree or not


@final
@dataclass(frozen=True)
class Measures:
    """What was measured of one update; the fields are explained in ``GenerationRecord``."""

    update_norm: float
    tied_returns: float
    update_cosine: float
    split_half_cosine: float
    center_norm: float
    distance: float
    observation_drift: float


@final
class Gauge:
    """Measures the updates of one trial, generation after generation.

    All it remembers is where the search started, which whoever builds the trial knows, and the
    last update.
    """

    def __init__(self, start: Vector) -> None:
        """Begin at the centre that the search starts from, [P]."""
        self._start = start.copy()
        self._last: Vector | None = None

    def measure(
        self,
        population: Population,
        fitness: Vector,
        centers: tuple[Vector, Vector],
        normalizers: tuple[Normalizer | None, Normalizer | None],
        ranked: bool,
    ) -> Measures:
        """Return the measures of an update, and remember it.

        Args:
            population: whose members were evaluated.
            fitness: what the algorithm was told of them, [N].
            centers: before and after the update, [P] each.
            normalizers: of the population's observations before and after, or None.
            ranked: whether the update follows ``fitness`` alone, so that its halves agree.
        """
        before, after = centers
        update = after - before
        last, self._last = self._last, update
        return Measures(
            update_norm=norm(update),
            tied_returns=tied_share(fitness),
            update_cosine=math.nan if last is None else cosine(update, last),
            split_half_cosine=split_half_cosine(population, fitness) if ranked else math.nan,
            center_norm=norm(before),
            distance=norm(after - self._start),
            observation_drift=drift(*normalizers),
        )

    def state_dict(self) -> State:
        """Return the last update; empty before the first. It is not copied: nobody changes it."""
        return {} if self._last is None else {"last_update": self._last}

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""
        self._last = state.get("last_update")


def tied_share(returns: Vector) -> float:
    """Return the share of members, in [0, 1], whose return another member has too.

    Args:
        returns: [N]; all that are not finite are equal, as they are to the algorithms.
    """
    _, counts = np.unique(worst_if_not_finite(returns), return_counts=True)
    return float(counts[counts > 1].sum() / returns.size)


def norm(vector: Vector) -> float:
    """Return the Euclidean length of a vector [P]."""
    return float(np.sqrt(np.sum(vector * vector)))


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of the angle between two vectors [P]; NaN if one of them is zero."""
    lengths = norm(one) * norm(other)
    return float(np.sum(one * other)) / lengths if lengths > 0.0 else math.nan


def split_half_cosine(population: Population, returns: Vector) -> float:
    """Return the cosine between the updates that the two halves of a population would make.

    A half's update is the mean of its members' standard noise z, weighted by the centred ranks u
    that their returns have in the whole population: 1/n sum_i (u_i z_i), which is what algorithms
    here average, up to their own shaping, scale and optimizer. Even and odd rows of noise are the
    halves, so antithetic pairs stay together.

    It measures the signal-to-noise ratio of an update g, |E g|^2 / E|g - E g|^2 (Roberts & Tedrake,
    "Signal-to-noise ratio analysis of policy gradient algorithms", NIPS 2008): with a and b of the
    halves, a.b estimates |E g|^2 and |a - b|^2 / 4 the noise of their mean. With a cosine r and |a|
    = |b| the ratio is 2 r / (1 - r), as Spearman and Brown (1910) have it for correlations. The
    cosine is what is kept, because its mean over generations is not biased: if the returns have
    nothing to do with the noise, it is 0 on average, with deviation 1 / sqrt(P), while the ratio's
    mean is 2 / P. On a noiseless slope the ratio is about n / P for n rows.

    Where that would draw more than ``MOST_DRAWS`` numbers, only the first rows are looked at: the
    cosine, and the ratio, are those of an update from so many.

    Args:
        population: the members; only the noise of a ``SampledPopulation`` is known. Of stored
            members nobody knows which are mirrored, and halves that share noise always agree.
        returns: [N].

    Returns:
        NaN for other populations, for fewer than ``LEAST_ROWS`` rows, and where all are equal.
    """
    if not isinstance(population, SampledPopulation):
        return math.nan
    rows = min(population.num_rows, max(LEAST_ROWS, MOST_DRAWS // population.noise.draws))
    if rows < LEAST_ROWS:
        return math.nan
    row = np.array([population.row(member) for member in range(len(population))])
    utilities = np.where(row < rows - rows % 2, centered(returns), 0.0)
    one = population.weighted_noise(np.where(row % 2 == 0, utilities, 0.0))
    other = population.weighted_noise(np.where(row % 2 == 1, utilities, 0.0))
    return cosine(one, other)


def drift(before: Normalizer | None, after: Normalizer | None) -> float:
    """Return how differently the policy sees the observations after an update of the statistics.

    The root mean square change of a normalised input, in deviations: an input of mean m and
    deviation s that was seen as z is now seen as (m + s z - m') / s', and z has mean 0 and
    deviation 1, so the mean square change is (s/s' - 1)^2 + ((m - m')/s')^2. Averaged over the
    inputs; the normalisers' clip is not counted. NaN without normalisers.
    """
    if before is None or after is None:
        return math.nan
    scales = after.scale / before.scale - 1.0
    shifts = (before.mean - after.mean) * after.scale
    return float(np.sqrt(np.mean(scales * scales + shifts * shifts)))
