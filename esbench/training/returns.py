"""Fitness, summary and digest of the returns of one generation."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from esbench.algorithms.shaping import center_rank
from esbench.arrays import Vector
from esbench.rollouts.results import Episodes


def fitness_of(played: Episodes, reward_shift: float) -> Vector:
    """The fitness of each member: its mean return after the reward shift, [members]."""
    return _row_means(played.returns - reward_shift * played.lengths)


def summary(played: Episodes, fitness: Vector, reward_shift: float) -> dict[str, Any]:
    """The fields of a ``GenerationRecord`` that depend on the returns alone."""
    returns = _row_means(played.returns)
    center_return = rank = math.nan
    if played.center_returns.size:
        shifts = reward_shift * played.center_lengths
        center_return = float(_row_means(played.center_returns[None, :])[0])
        center_fitness = float(_row_means((played.center_returns - shifts)[None, :])[0])
        rank = center_rank(center_fitness, fitness)
    finite = returns[np.isfinite(returns)]
    return {
        "population_size": returns.size,
        "population_return_mean": float(finite.mean()),
        "population_return_std": float(finite.std()),
        "population_return_min": float(finite.min()),
        "population_return_max": float(finite.max()),
        "center_return": center_return,
        "center_rank": rank,
        "center_rank_fraction": (rank - 1) / returns.size,
        "non_finite": int(returns.size - finite.size),
        "episode_length_mean": float(played.lengths.mean()),
    }


def digest(center: Vector, played: Episodes) -> str:
    """SHA-256 of the centre and all returns in member order, as little-endian float64."""
    parts = (center, played.returns, played.center_returns)
    return hashlib.sha256(b"".join(p.astype("<f8").tobytes() for p in parts)).hexdigest()


def _row_means(values: Vector) -> Vector:
    """The mean of each row, added from left to right; NaN for a row that is not finite."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total
