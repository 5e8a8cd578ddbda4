"""Measures of an update other than the returns, for ``esbench diagnose``.

They do not influence training, and they are functions of the trial alone: products are summed
without BLAS, and noise is drawn again from its keys.
"""

from __future__ import annotations

import math
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.shaping import centered, worst_if_not_finite
from esbench.core.arrays import State, Vector, norm
from esbench.core.population import Population, SampledPopulation
from esbench.policies.normalization import Normalizer

# ``split_half_cosine`` draws the noise a second time; this limits the cost for large networks.
MOST_DRAWS: Final = 1 << 20
LEAST_ROWS: Final = 4  # two per half, so that ranks within a half can differ


@final
class Gauge:
    """Measures the updates of one trial that begins at ``start`` [P]; keeps the last update."""

    def __init__(self, start: Vector) -> None:
        self._start = start.copy()
        self._last: Vector | None = None

    def measure(
        self,
        population: Population,
        fitness: Vector,
        centers: tuple[Vector, Vector],
        normalizers: tuple[Normalizer | None, Normalizer | None],
        ranked: bool,
    ) -> dict[str, Any]:
        """The fields of a ``GenerationRecord`` that describe an update.

        ``fitness`` is [N]; ``centers`` [P] and ``normalizers`` are those before and after the
        update. If it is not ``ranked``, it does not depend on ``fitness`` alone, and the cosine of
        its halves is not defined.
        """
        before, after = centers
        update = after - before
        last, self._last = self._last, update
        return {
            "update_norm": norm(update),
            "tied_returns": tied_share(fitness),
            "update_cosine": math.nan if last is None else cosine(update, last),
            "split_half_cosine": split_half_cosine(population, fitness) if ranked else math.nan,
            "center_norm": norm(before),
            "distance": norm(after - self._start),
            "observation_drift": drift(*normalizers),
        }

    def state_dict(self) -> State:
        """The start and the last update, if there was one; not copied."""
        last = {} if self._last is None else {"last_update": self._last}
        return {"start": self._start, **last}

    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned."""
        self._start = state.get("start", self._start)  # checkpoints before 0.3.0 have none
        self._last = state.get("last_update")


def tied_share(returns: Vector) -> float:
    """The share of members, in [0, 1], whose return [N] equals another one.

    Non-finite returns count as equal, as in the algorithms.
    """
    _, counts = np.unique(worst_if_not_finite(returns), return_counts=True)
    return float(counts[counts > 1].sum() / returns.size)


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors [P]; NaN if one of them is zero."""
    lengths = norm(one) * norm(other)
    return float(np.sum(one * other)) / lengths if lengths > 0.0 else math.nan


def split_half_cosine(population: Population, returns: Vector) -> float:
    """The cosine between the updates of the two halves of a population.

    The update of a half is the mean of the standard noise z of its members, weighted by the
    centered ranks u of their returns in the whole population: 1/n sum_i (u_i z_i). Algorithms
    average the same terms, up to shaping, scale and optimizer. The halves are the even and the odd
    rows of noise, so antithetic pairs stay together.

    The cosine r measures the signal-to-noise ratio of an update g, |E g|^2 / E|g - E g|^2 (Roberts
    & Tedrake, "Signal-to-noise ratio analysis of policy gradient algorithms", NIPS 2008), which is
    2 r / (1 - r) if the halves have equal norms (Spearman 1910; Brown 1910). The record stores the
    cosine because its mean over generations is unbiased: it is 0 with standard deviation
    1 / sqrt(P) if the returns do not depend on the noise.

    At most ``MOST_DRAWS`` numbers are drawn: of large networks, only the first rows are used, and
    the result describes an update from these rows. It is NaN if the population is not a
    ``SampledPopulation``, whose noise is known; if it has fewer than ``LEAST_ROWS`` rows; or if all
    returns [N] are equal.
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
    """The root mean square change of a normalized input by an update of the statistics.

    An input with mean m and standard deviation s that was normalized to z becomes
    (m + s z - m') / s'. As z has mean 0 and standard deviation 1, the mean square change is
    (s/s' - 1)^2 + ((m - m')/s')^2, averaged over the inputs. Clipping is ignored. NaN without
    normalizers.
    """
    if before is None or after is None:
        return math.nan
    scales = after.scale / before.scale - 1.0
    shifts = (before.mean - after.mean) * after.scale
    return float(np.sqrt(np.mean(scales * scales + shifts * shifts)))
