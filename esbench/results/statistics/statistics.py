"""Statistics over training seeds: pure functions on arrays with the runs along the first axis.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS
2021, for the interquartile mean and its bootstrap interval.

A value that is not finite makes its results NaN: leaving it out would favor algorithms that
diverge. ``diverged_as_worst`` gives such a run a score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Floats
from esbench.results.statistics.resampling import Resamples, draw_resamples

EpisodeStatistic: TypeAlias = Literal["mean", "tail", "area"]
"""What makes one number of a run's episodes; a ``TestStatistic`` compares such numbers.

The mean or the tail of held-out episodes, or the area under the learning curve of training.
"""

MIN_RUNS: Final = 3
RESAMPLES: Final = 10_000
TRIMMED: Final = 0.25
TAIL_PARTS: Final = 10  # the tail is the worst tenth


def iqm(values: npt.ArrayLike) -> Floats:
    """The interquartile mean over runs: the mean without the lowest and highest quarter.

    [] or [points] from [runs] or [runs, points]; NaN where a run is not finite. A quarter of the
    runs is rounded down, so with fewer than four runs it is the mean. It equals
    ``scipy.stats.trim_mean`` to the last bit, without the slow import of SciPy.
    """
    array = _finite(values)
    cut = int(TRIMMED * len(array))
    end = len(array) - cut
    means = np.partition(array, (cut, end - 1), axis=0)[cut:end].mean(axis=0)
    return np.where(np.isnan(array).any(axis=0), np.nan, means)


def tail_mean(returns: npt.ArrayLike) -> float:
    """The mean of the worst 10 % of the episodes, of [episodes] returns.

    A tenth of the episodes is rounded up, so that it is at least one; NaN if there is no episode or
    a return is not finite. It is the expected shortfall at 10 %.
    """
    array = _finite(returns)
    worst = -(-array.size // TAIL_PARTS)
    return float(np.sort(array)[:worst].mean()) if np.isfinite(array).all() and worst else math.nan


def diverged_as_worst(
    sides: Sequence[Sequence[float | None]], random_score: float = math.inf
) -> list[list[float]]:
    """The scores of several sides, in which a run that diverged, None, counts as the worst.

    That is the smallest of the random policy's score and the finite scores of all sides. Without
    any, the sides have no scores.
    """
    finite = [score for side in sides for score in side if score is not None]
    worst = min([random_score, *finite])
    if worst == math.inf:
        return [[] for _ in sides]
    return [[worst if score is None else score for score in side] for side in sides]


def bootstrap_interval(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The 95 % percentile bootstrap interval of the IQM over runs, separately at each point.

    Its ends are [] or [points] from [runs] or [runs, points]; NaN where a run is not finite, and
    everywhere below three runs, whose resamples say nothing about the spread.
    """
    array = _finite(values)
    runs, shape = len(array), array.shape[1:]
    if runs < MIN_RUNS:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    # Every point has its own order of the runs. Resampling ranks instead of runs has the same
    # distribution at each point, and makes the IQM of all resamples one matrix product.
    resamples, weights = _resampled_weights(runs)
    low, high = resamples.interval(weights @ np.sort(array.reshape(runs, -1), axis=0))
    return low.reshape(shape), high.reshape(shape)


def normalized(score: float, random: float, reference: float) -> float:
    """A score on the scale where random actions have 0 and the reference has 1.

    NaN if a score is, or if the reference is not better than random actions.
    """
    return (score - random) / (reference - random) if reference > random else math.nan


def _finite(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


@lru_cache(maxsize=1)  # a table's rows have as many runs: they share the resamples
def _resampled_weights(runs: int) -> tuple[Resamples, Floats]:
    """Resamples, and the weight [resamples, runs] of each sorted run in the IQM of each."""
    resamples = draw_resamples((runs,), RESAMPLES)
    ranks = resamples.runs[0]
    cut = int(TRIMMED * runs)
    kept = np.sort(ranks, axis=1)[:, cut : runs - cut]
    cells = kept + runs * np.arange(len(ranks))[:, None]
    counts = np.bincount(cells.ravel(), minlength=ranks.size)
    return resamples, counts.reshape(ranks.shape) / kept.shape[1]
