"""Statistics over training seeds: pure functions on arrays with the runs along the first axis.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS
2021, for the interquartile mean and its bootstrap interval; Efron, "Bootstrap methods: another look
at the jackknife", Annals of Statistics 7, 1979, for the percentile interval.

A value that is not finite makes its results NaN: leaving it out would favour algorithms that
diverge. The caller drops such runs and reports it, or shows the gap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from esbench.errors import UsageError
from esbench.seeding import Purpose, stream

Floats: TypeAlias = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.95
MIN_RUNS: Final = 3
RESAMPLES: Final = 10_000
TRIMMED: Final = 0.25


def iqm(values: npt.ArrayLike) -> Floats:
    """The interquartile mean over runs: the mean without the lowest and highest quarter.

    A quarter of the runs is rounded down, so with fewer than four runs it is the mean. It
    equals ``scipy.stats.trim_mean`` to the last bit, without the slow import of SciPy.

    Args:
        values: [runs] or [runs, points].

    Returns:
        [] or [points]; NaN where a run is not finite.

    Raises:
        UsageError: there is no run.
    """
    array = _runs_first(values)
    cut = int(TRIMMED * len(array))
    end = len(array) - cut
    means = np.partition(array, (cut, end - 1), axis=0)[cut:end].mean(axis=0)
    return np.where(np.isnan(array).any(axis=0), np.nan, means)


def bootstrap_interval(
    values: npt.ArrayLike,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Floats, Floats]:
    """The percentile bootstrap interval of the IQM over runs, computed separately at each point.

    Memory is 8 x resamples x points bytes.

    Args:
        values: [runs] or [runs, points].
        confidence: the probability that the interval should cover, in (0, 1).
        seed: names the stream of the resamples; the same one gives the same interval.
        resamples: number of resamples.

    Returns:
        The lower and the upper end, each [] or [points]; NaN where a run is not finite, and
        everywhere below three runs, whose resamples say nothing about the spread.

    Raises:
        UsageError: there is no run, or ``confidence`` is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence}: expected a number between 0 and 1, as 0.95")
    array = _runs_first(values)
    runs, shape = len(array), array.shape[1:]
    if runs < MIN_RUNS:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    # Every point has its own order of the runs. Resampling ranks instead of runs has the same
    # distribution at each point, and makes the IQM of all resamples one matrix product.
    weights = _resampled_weights(runs, seed, resamples)
    replicates = weights @ np.sort(array.reshape(runs, -1), axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, (tail, 1 - tail), axis=0)
    return low.reshape(shape), high.reshape(shape)


def normalized(score: float, random: float, reference: float) -> float:
    """A score on the scale where random actions have 0 and the reference has 1.

    Args:
        score: mean return; a NaN among the three gives NaN.
        random: mean return of random actions.
        reference: mean return of the reference.

    Raises:
        UsageError: the reference is as good as random actions, so the scale is undefined.
    """
    if reference == random:
        raise UsageError(
            f"reference score {reference} equals the random policy's; expected them to differ"
        )
    return (score - random) / (reference - random)


def _runs_first(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2) or not len(array):
        raise UsageError(f"values of shape {array.shape}: expected [runs] or [runs, points]")
    return np.where(np.isfinite(array), array, np.nan)


@lru_cache(maxsize=1)  # a table's rows have as many runs: they share the resamples
def _resampled_weights(runs: int, seed: int, resamples: int) -> Floats:
    """The weight [resamples, runs] of each sorted run in the IQM of each resample."""
    return _iqm_weights(stream(seed, Purpose.BOOTSTRAP).integers(runs, size=(resamples, runs)))


def _iqm_weights(ranks: npt.NDArray[np.int64]) -> Floats:
    """The weight [resamples, runs] of each sorted value in the IQM of each resample.

    Args:
        ranks: [resamples, runs], the drawn ones.
    """
    resamples, runs = ranks.shape
    cut = int(TRIMMED * runs)
    kept = np.sort(ranks, axis=1)[:, cut : runs - cut]
    cells = kept + runs * np.arange(resamples)[:, None]
    counts = np.bincount(cells.ravel(), minlength=resamples * runs)
    weights: Floats = counts.reshape(resamples, runs) / kept.shape[1]
    return weights
