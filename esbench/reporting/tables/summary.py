"""Algorithms over all environments of a folder: normalised scores, every environment alike."""

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
    """One algorithm over all environments; the numbers are of normalised scores.

    Attributes:
        name: algorithm and policy.
        iqm, low, high: over all runs of all environments, with its 95 % stratified percentile
            bootstrap interval; NaN below three seeds in an environment.
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
    """Return every algorithm that has scores in all environments, the best IQM first.

    Args:
        scores: normalised, [runs], by algorithm and environment; of fewer than two environments
            there is nothing to say.
    """
    environments = sorted({name for table in scores.values() for name in table})
    if len(environments) < 2:
        return []
    found = []
    for name, table in scores.items():
        strata = [table.get(environment, ()) for environment in environments]
        if all(strata):
            low, high = stratified_interval(aggregates.iqm, strata, resamples=RESAMPLES)
            numbers = (aggregates.mean, aggregates.median, aggregates.optimality_gap)
            found.append(
                Overall(
                    name,
                    float(aggregates.iqm(*strata)),
                    low,
                    high,
                    *(float(number(*strata)) for number in numbers),
                )
            )
    return sorted(found, key=lambda item: -item.iqm)


def sentences(found: Sequence[Overall]) -> list[str]:
    """Return a line for each algorithm."""
    return [
        f"Over all environments, normalized: {item.name}: IQM {format_share(item.iqm)}"
        f"{interval(item)}, mean {format_share(item.mean)}, median {format_share(item.median)}, "
        f"optimality gap {format_share(item.optimality_gap)}."
        for item in found
    ]


def interval(item: Overall) -> str:
    """Return the interval for reading after its IQM; empty if there is none."""
    ends = format_share(item.low), format_share(item.high)
    return "" if math.isnan(item.low) else " [{}, {}]".format(*ends)
