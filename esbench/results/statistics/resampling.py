"""Bootstrap resamples of runs: all of them where they are few, otherwise random ones.

Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979, for the
percentile interval; Fisher and Hall, "Bootstrap algorithms for small samples", J. Stat. Plan.
Inference 27, 1991, for all resamples: few runs have few different ones, and random resamples then
often miss the end of an interval by a whole score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream

Ints: TypeAlias = npt.NDArray[np.int64]

CONFIDENCE: Final = 0.95
ENDS: Final = ((1 - CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / 2)  # quantiles of an interval's ends
MOST_EXACT: Final = 20_000  # eight runs, or two sides of five


@final
@dataclass(frozen=True)
class Resamples:
    """Resamples of the runs of each stratum.

    Attributes:
        runs: which runs are drawn, [resamples, runs] for each stratum.
        weights: how often each resample occurs among all, [resamples]; None for random ones.
    """

    runs: tuple[Ints, ...]
    weights: Ints | None

    def interval(self, replicates: Floats) -> tuple[Floats, Floats]:
        """The 95 % percentile interval, [...], of a statistic of the resamples, [resamples, ...].

        Its ends are values of the statistic; between random resamples they are interpolated.
        """
        if self.weights is None:
            low, high = np.quantile(replicates, ENDS, axis=0)
        else:
            low, high = np.quantile(
                replicates, ENDS, axis=0, weights=self.weights, method="inverted_cdf"
            )
        return low, high


def draw_resamples(sizes: Sequence[int], number: int) -> Resamples:
    """All resamples of strata of ``sizes`` if they are few, otherwise a ``number`` of random ones.

    Resamples of the same runs in another order are one. The random stream is always the same.
    """
    if math.prod(math.comb(2 * size - 1, size) for size in sizes) > MOST_EXACT:
        rng = stream(0, Purpose.BOOTSTRAP)
        return Resamples(tuple(rng.integers(n, size=(number, n)) for n in sizes), None)
    strata = [_all_resamples(size) for size in sizes]
    places = np.indices([len(weights) for _, weights in strata]).reshape(len(strata), -1)
    parts = [weights[place] for (_, weights), place in zip(strata, places, strict=True)]
    return Resamples(
        tuple(runs[place] for (runs, _), place in zip(strata, places, strict=True)),
        np.prod(parts, axis=0),
    )


@lru_cache(maxsize=8)
def _all_resamples(size: int) -> tuple[Ints, Ints]:
    """All resamples of a stratum, sorted, [resamples, size], and how often each occurs."""
    runs = np.array(list(combinations_with_replacement(range(size), size)))
    times = (runs[:, :, None] == np.arange(size)).sum(axis=1)
    factorials = np.array([math.factorial(number) for number in range(size + 1)])
    weights: Ints = factorials[size] // factorials[times].prod(axis=1)
    return runs, weights
