"""Fitness shaping: functions from returns [N] to weights [N]; higher is better.

All of them give equal returns equal weights, and treat a return that is not finite as worse than
every finite one (``raw`` and ``normalized``: as equal to the worst). If all returns are equal,
``centered``, ``nes`` and ``normalized`` give zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import numpy as np

from esbench.core.arrays import Vector

Shaping: TypeAlias = Literal["centered", "nes", "linear", "normalized", "raw"]


def worst_if_not_finite(returns: Vector) -> Vector:
    """The returns [N], with -inf in place of every one that is not finite."""
    return np.where(np.isfinite(returns), returns, -np.inf)


def all_equal(returns: Vector) -> bool:
    """Whether all returns are equal, so that they carry no information."""
    values = worst_if_not_finite(returns)
    return bool((values == values[0]).all())


def ranks(returns: Vector) -> Vector:
    """Ranks from 0 (worst) to N - 1 (best), [N]; ties get the mean of the ranks they span."""
    values = worst_if_not_finite(returns)
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return (last - (counts - 1) / 2)[group]


def centered(returns: Vector) -> Vector:
    """Centered ranks in [-0.5, 0.5] (Salimans et al. 2017, section 2.1), [N]."""
    if returns.size == 1:
        return np.zeros(1)
    return ranks(returns) / (returns.size - 1) - 0.5


def linear(returns: Vector) -> Vector:
    """Ranks scaled to [0, 1], [N]."""
    return centered(returns) + 0.5


def nes(returns: Vector) -> Vector:
    """Utilities of natural evolution strategies (Wierstra et al. 2014, section 3.1), [N].

    u_k = max(0, ln(N/2 + 1) - ln k), normalized to sum 1, minus 1/N, where k = 1 is the best;
    members with equal returns share the mean of their utilities.
    """
    size = returns.size
    if all_equal(returns):
        return np.zeros(size)
    by_place = np.maximum(0.0, np.log(size / 2 + 1) - np.log(np.arange(1, size + 1)))
    return shared_by_ties(by_place / by_place.sum() - 1 / size, returns)


def shared_by_ties(by_place: Vector, returns: Vector) -> Vector:
    """The weights of the members, [N], from the weights by place, the best first, [N].

    Members with equal returns share the mean of their weights.
    """
    _, group, counts = np.unique(
        -worst_if_not_finite(returns), return_inverse=True, return_counts=True
    )
    shared: Vector = (np.add.reduceat(by_place, np.cumsum(counts) - counts) / counts)[group]
    return shared


def raw(returns: Vector) -> Vector:
    """The returns [N], with the worst finite one in place of every one that is not finite."""
    finite = np.isfinite(returns)
    return np.where(finite, returns, returns[finite].min())


_SMALLEST, _LARGEST = 1e-150, 1e150


def normalized(returns: Vector) -> Vector:
    """Z-scores: returns with mean 0 and (population) standard deviation 1, [N]."""
    values = raw(returns)
    if np.ptp(values) == 0.0:
        return np.zeros_like(values)
    if not _SMALLEST < np.ptp(values) < _LARGEST:  # or squares under- or overflow
        values = (values - values.min()) / np.ptp(values)
    scores: Vector = (values - values.mean()) / values.std()
    return scores


_UNCENTERED: Final = ("linear", "raw")

SHAPINGS: Final[dict[Shaping, Callable[[Vector], Vector]]] = {
    "centered": centered,
    "nes": nes,
    "linear": linear,
    "normalized": normalized,
    "raw": raw,
}


def utilities(shaping: Shaping, returns: Vector, *, paired: bool) -> Vector:
    """The weights of members by a shaping, [N]; without pairs their mean is 0 in every shaping.

    A mean weights the sum of the noise, which does not depend on the returns. It cancels if the
    members are ``paired`` with their mirror images.
    """
    weights = SHAPINGS[shaping](returns)
    return weights - weights.mean() if shaping in _UNCENTERED and not paired else weights


def center_rank(center_return: float, returns: Vector) -> float:
    """The rank of the unperturbed policy among the perturbed ones, in [1, N + 1].

    1 + the number of members with a higher return; ties count as one half. Rank 1 means that no
    perturbation improved on the center, so the generation carried little information.
    """
    members = worst_if_not_finite(returns)
    center = center_return if np.isfinite(center_return) else -np.inf
    better = np.count_nonzero(members > center)
    equal = np.count_nonzero(members == center)
    return 1.0 + better + equal / 2
