"""Means, trends and bands of chance of one run's generations: pure functions on arrays."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.curves import blocks
from esbench.results.statistics.estimates import CONFIDENCE, iqm

BLOCKS: Final = 10  # of a path of returns, which goes up and down
TREND_POINTS: Final = 300
EXACT_GENERATIONS: Final = 12  # the mean of more uniform ranks is normal
BAND_DRAWS: Final = 10_000


def thirds(values: Floats) -> tuple[float, float, float]:
    """The means of the first, middle and last third of [generations]; NaN only without a number."""
    parts = [part[np.isfinite(part)] for part in np.array_split(values, 3)]
    first, middle, last = (float(part.mean()) if part.size else math.nan for part in parts)
    return first, middle, last


def uniform_band(members: float, generations: int) -> tuple[float, float]:
    """The 95 % band of a mean rank fraction if the center is no better than its members.

    If perturbing changes nothing, the number of the n members that beat the center is uniform on
    0 .. n: its fraction has mean 1/2 and variance (n + 2) / (12 n). The band of the mean over k
    generations is the normal one, cut to [0, 1].
    """
    from scipy.stats import norm

    half = float(norm.ppf(0.5 + CONFIDENCE / 2)) * _deviation(members, generations)
    return max(0.0, 0.5 - half), min(1.0, 0.5 + half)


def uniform_curve_band(members: int, runs: int, generations: int) -> tuple[float, float]:
    """The 95 % band of a point of a rank curve, if all centers are no better than their members.

    That is the interquartile mean over runs of means over as many generations as are averaged in a
    point. Its band is wider than ``uniform_band`` from four runs on. By simulation.
    """
    generator = stream(0, Purpose.SIMULATION, members, runs, generations)
    if generations > EXACT_GENERATIONS:
        means = generator.normal(0.5, _deviation(members, generations), (runs, BAND_DRAWS))
    else:
        ranks = generator.integers(0, members + 1, (generations, runs, BAND_DRAWS))
        means = ranks.mean(axis=0) / members
    low, high = np.quantile(iqm(means), (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return max(0.0, float(low)), min(1.0, float(high))


def trend(values: Floats) -> tuple[float, float, float]:
    """The Theil-Sen slope of [generations] per generation, and its 95 % interval, without NaN.

    Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63, 1968. Fewer than
    three numbers give NaN. It compares all pairs, so long runs are first averaged over blocks.
    """
    from scipy.stats import theilslopes

    points = blocks(values, TREND_POINTS)
    known = np.isfinite(points)
    if known.sum() < 3:
        return math.nan, math.nan, math.nan
    at = blocks(np.arange(values.size), TREND_POINTS)
    slope, _, low, high = theilslopes(points[known], at[known], alpha=CONFIDENCE)
    return float(slope), float(low), float(high)


def mean_interval(values: Floats) -> tuple[float, float, float]:
    """The mean of [generations] and Student's 95 % interval, NaN for one number; without NaN."""
    from scipy.stats import t

    known = values[np.isfinite(values)]
    if known.size < 2:
        return (float(known.mean()) if known.size else math.nan), math.nan, math.nan
    mean, error = float(known.mean()), float(known.std(ddof=1)) / math.sqrt(known.size)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, known.size - 1)) * error
    return mean, mean - half, mean + half


def signal_to_noise(cosine: float) -> float:
    """The signal-to-noise ratio of an update from its split-half cosine r: 2 r / (1 - r)."""
    return 2 * cosine / (1 - cosine) if cosine < 1 else math.inf


def ascent(values: Floats) -> float:
    """The net rise of returns [generations], divided by the length of their path; in [-1, 1].

    The path is the first value, then the means of ten blocks of neighbors. The first value keeps
    a run that falls at once from looking like one that climbs. NaN if the path is constant.
    """
    path = np.concatenate([values[:1], blocks(values, BLOCKS)])
    way = float(np.abs(np.diff(path)).sum())
    return float(path[-1] - path[0]) / way if way > 0 else math.nan


def gain(values: Floats) -> float:
    """The mean of the last tenth of [generations], minus the first value."""
    return float(blocks(values, BLOCKS)[-1] - values[0])


def _deviation(members: float, generations: int) -> float:
    return math.sqrt((members + 2) / (12 * members * generations))
