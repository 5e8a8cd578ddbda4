"""Normalized scores of each algorithm over all environments, which have equal weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from esbench.analysis import aggregates
from esbench.analysis.aggregates import stratified_interval
from esbench.units import format_share

RESAMPLES: Final = 1999


@final
@dataclass(frozen=True)
class Overall:
    """Statistics of one algorithm's normalized scores over all environments.

    Attributes:
        name: algorithm and policy.
        iqm, low, high: over all runs of all environments, and its 95 % stratified percentile
            bootstrap interval; NaN with fewer than three seeds in an environment.
        mean, median, optimality_gap: see ``analysis.aggregates``.
    """

    name: str
    iqm: float
    low: float
    high: float
    mean: float
    median: float
    optimality_gap: float


def overall(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Overall]:
    """Statistics of every algorithm with scores in all environments, the best IQM first.

    Args:
        scores: normalized scores, [runs], by algorithm and environment. With fewer than two
            environments the result is empty.
    """
    environments = sorted({name for table in scores.values() for name in table})
    if len(environments) < 2:
        return []
    strata = {name: [table.get(key, ()) for key in environments] for name, table in scores.items()}
    found = [_overall(name, runs) for name, runs in strata.items() if all(runs)]
    return sorted(found, key=lambda item: -item.iqm)


def sentences(found: Sequence[Overall]) -> list[str]:
    """One sentence per algorithm."""
    return [
        f"Over all environments, normalized: {item.name}: IQM {format_share(item.iqm)}"
        f"{interval(item)}, mean {format_share(item.mean)}, median {format_share(item.median)}, "
        f"optimality gap {format_share(item.optimality_gap)}."
        for item in found
    ]


def interval(item: Overall) -> str:
    """The interval as text to follow the IQM; empty if there is none."""
    if math.isnan(item.low):
        return ""
    return f" [{format_share(item.low)}, {format_share(item.high)}]"


def _overall(name: str, strata: Sequence[Sequence[float]]) -> Overall:
    low, high = stratified_interval(aggregates.iqm, strata, resamples=RESAMPLES)
    return Overall(
        name=name,
        iqm=float(aggregates.iqm(*strata)),
        low=low,
        high=high,
        mean=float(aggregates.mean(*strata)),
        median=float(aggregates.median(*strata)),
        optimality_gap=float(aggregates.optimality_gap(*strata)),
    )
