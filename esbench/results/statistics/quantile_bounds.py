"""Which means a sample of known size and known quantiles can have: pure functions on numbers."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

QUANTILES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_ROUNDING: Final = 1e-9  # of the largest value
_Curve: TypeAlias = list[tuple[float, float]]
"""The corners of a concave function, in the order of x."""


def is_mean(mean: float, values: Sequence[float], size: int, count: int) -> bool:
    """Whether ``mean`` is within ``mean_bounds``."""
    if (plain := _plain_samples(size, count)) and sorted(values) == list(values):
        low, high = (sum(map(operator.mul, weights, values)) for weights in plain)
        if low <= mean <= high:  # nearly always; the exact bounds are a hundred times slower
            return True
    bounds = mean_bounds(values, size, count)
    return bounds is not None and bounds[0] <= mean <= bounds[1]


@lru_cache
def _plain_samples(size: int, count: int) -> tuple[list[float], list[float]] | None:
    """The weights of quantiles in the means of two samples whose numbers are all quantiles.

    Numbers between two quantiles equal the lower one, or the upper one. None if there is no such
    sample for all quantiles, because two of them have a neighbor in common.
    """
    places = [Fraction(str(share)) * (size - 1) for share in QUANTILES]
    below, above = [math.floor(place) for place in places], [math.ceil(place) for place in places]
    if any(map(operator.ge, above, below[1:])):
        return None
    numbers = np.arange(count)
    low = np.searchsorted(below, numbers, "right") - 1
    high = np.searchsorted(above, numbers)
    least, largest = (np.bincount(each, minlength=len(places)) / count for each in (low, high))
    return least.tolist(), largest.tolist()


def mean_bounds(values: Sequence[float], size: int, count: int) -> tuple[float, float] | None:
    """The least and the largest mean of the ``count`` smallest numbers of a sample.

    It has this ``size`` and these ``QUANTILES``, interpolated linearly between the two nearest
    numbers, as by NumPy. None if no sample has them.
    """
    negative = [-value for value in reversed(values)]
    rounding = _ROUNDING * max(map(abs, values))
    largest = _largest_sum(values, size, lambda place: min(place + 1, count), rounding)
    least = _largest_sum(negative, size, lambda place: max(0, place + 1 - size + count), rounding)
    if largest is None or least is None:
        return None
    return -least / count - rounding, largest / count + rounding


def _largest_sum(
    values: Sequence[float], size: int, summed: Callable[[int], int], rounding: float
) -> float | None:
    """The largest sum of some of ``size`` sorted numbers with these quantiles, or None.

    ``summed`` is how many of them are up to a place, from 0.

    A linear program. Only the neighbors of a quantile are bound by an equation; numbers between
    two such neighbors are as large as the upper one. So it is solved from the first to the last
    number: the largest sum up to a number is a concave, piecewise linear function of that number.
    """
    sums: _Curve = [(values[0], 0.0), (values[-1], 0.0)]
    last = -1
    for place, linked, fixed in _equations(size):
        if linked:
            links = [(part, values[at]) for part, at in linked]
            sums = _within(_linked(sums, links, rounding), -math.inf, values[-1], rounding)
        else:
            best = max(range(len(sums)), key=lambda at: sums[at][1])
            sums = [*sums[: best + 1], (values[-1], sums[best][1])]
        weight = summed(place) - summed(last)
        sums = [(x, y + weight * x) for x, y in sums]
        for at in fixed:
            sums = _within(sums, values[at], values[at], rounding)
        if not sums:
            return None
        last = place
    return max(y for _, y in sums)


@lru_cache
def _equations(size: int) -> list[tuple[int, list[tuple[float, int]], list[int]]]:
    """The places in a sorted sample that quantiles depend on, in order.

    Each has the quantiles between it and the place before, with their share of the way, and those
    that are equal to it.
    """
    linked: dict[int, list[tuple[float, int]]] = {}
    fixed: dict[int, list[int]] = {}
    for at, share in enumerate(QUANTILES):
        below, part = divmod(Fraction(str(share)) * (size - 1), 1)
        if part:
            linked.setdefault(below + 1, []).append((float(part), at))
        else:
            fixed.setdefault(below, []).append(at)
    places = sorted({*fixed, *linked, *(upper - 1 for upper in linked)})
    return [(place, linked.get(place, []), fixed.get(place, [])) for place in places]


def _linked(sums: _Curve, links: Sequence[tuple[float, float]], rounding: float) -> _Curve:
    """The sums as a function of the next number, where a quantile lies between it and the last."""
    (part, value), *others = links
    sums = _within(sums, -math.inf, value, rounding)
    for other, found in others:  # two equations have one solution
        own = (value * other - found * part) / (other - part)
        sums = _within(sums, own, own, rounding)
    return [((value - (1 - part) * x) / part, y) for x, y in reversed(sums)]


def _within(sums: _Curve, low: float, high: float, rounding: float) -> _Curve:
    """The part of a function from ``low`` to ``high``, which may miss it by ``rounding``."""
    if not sums or low > sums[-1][0] + rounding or high < sums[0][0] - rounding:
        return []
    ends = [min(max(end, sums[0][0]), sums[-1][0]) for end in (low, high)]
    inner = [corner for corner in sums if ends[0] < corner[0] < ends[1]]
    return [(ends[0], _at(sums, ends[0])), *inner, (ends[1], _at(sums, ends[1]))]


def _at(sums: _Curve, x: float) -> float:
    right = max(1, bisect_left(sums, x, key=lambda corner: corner[0]))
    if right >= len(sums):
        return sums[-1][1]
    (x0, y0), (x1, y1) = sums[right - 1], sums[right]
    return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
