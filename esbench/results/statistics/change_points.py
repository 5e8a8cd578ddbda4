"""Change points of a series of measurements: pure functions on arrays.

Binary segmentation (Vostrikova, "Detecting 'disorder' in multidimensional random processes", Soviet
Math. Dokl. 24, 1981): the border that separates a series best is a change point if a test says so,
and then each side is searched in the same way. The statistic of a border is the standardized
difference of the mean ranks before and after it (Pettitt, "A non-parametric approach to the
change-point problem", Appl. Stat. 28, 1979). The largest one is compared with that of shuffled
values (Antoch and Huskova, "Permutation tests in change point analysis", Stat. Probab. Lett. 53,
2001), so the search over borders is accounted for, and ranks bound the weight of a failed run.

If nothing changes, and the values are exchangeable, a series has a change point with probability
``CHANGE_LEVEL`` at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream

CHANGE_LEVEL: Final = 0.01
SHUFFLES: Final = 2000
TOLERANCE: Final = 1e-9  # equal sums may differ in their last bits
BLOCK: Final = 100  # shuffles at once


def change_points(samples: Sequence[npt.ArrayLike], level: float = CHANGE_LEVEL) -> list[int]:
    """The places of the samples that begin a new level, ascending; never the first.

    Args:
        samples: the measurements in their order, each [values], one value or more, all finite.
        level: the probability of a change point in a series without a change.
    """
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    found: list[int] = []
    parts = [(0, len(arrays))]
    while parts:
        start, end = parts.pop()
        if place := _change_point(arrays[start:end], level, start, end):
            found.append(start + place)
            parts += [(start, start + place), (start + place, end)]
    return sorted(found)


def _change_point(arrays: Sequence[Floats], level: float, *stream_name: int) -> int:
    """The number of samples before the border that separates them best; 0 if not significant."""
    if len(arrays) < 2:
        return 0
    ranks = _centered_ranks(np.concatenate(arrays))
    borders = np.cumsum([array.size for array in arrays])[:-1]
    observed = _separations(ranks[None], borders)[0]
    rng = stream(0, Purpose.PERMUTATION, *stream_name)
    largest = observed.max() * (1 - TOLERANCE)
    at_least = 1  # the observed order is one of all
    for _ in range(0, SHUFFLES, BLOCK):
        shuffled = rng.permuted(np.tile(ranks, (BLOCK, 1)), axis=1)
        at_least += int(np.count_nonzero(_separations(shuffled, borders).max(axis=1) >= largest))
        if at_least > level * (SHUFFLES + 1):  # p stays above the level
            return 0
    return int(observed.argmax()) + 1


def _separations(ranks: Floats, borders: npt.NDArray[np.int64]) -> Floats:
    """The standardized differences of mean ranks on both sides: [series, borders]."""
    before = np.cumsum(ranks, axis=1)[:, borders - 1]
    result: Floats = np.abs(before) / np.sqrt(borders * (ranks.shape[1] - borders))
    return result


def _centered_ranks(values: Floats) -> Floats:
    """The ranks of [values], less their mean; equal values share theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    result: Floats = ranks - ranks.mean()
    return result
