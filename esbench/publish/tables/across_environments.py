"""Statistics of an algorithm's normalized scores over all environments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from esbench.core.units import format_share
from esbench.publish.tables.score_table import ScoreRow
from esbench.results.statistics import estimates
from esbench.results.statistics.estimates import (
    normalized,
    stratified_interval,
)

RESAMPLES: Final = 1999
STATISTICS: Final = (
    estimates.iqm_across,
    estimates.mean_across,
    estimates.median_across,
    estimates.optimality_gap,
)


@final
@dataclass(frozen=True)
class Overall:
    """Statistics of one algorithm's normalized scores over all runs of all environments.

    See ``analysis.estimates``. The IQM has a 95 % stratified percentile bootstrap interval, NaN
    with fewer than three seeds in an environment.
    """

    name: str
    iqm: float
    low: float
    high: float
    mean: float
    median: float
    optimality_gap: float


def normalized_scores(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[float]]]:
    """Normalized scores by algorithm and environment, where random and reference are known."""
    table: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not math.isnan(row.normalized):
            scale = row.random_score, row.reference_score
            found = [normalized(score, *scale) for score in row.scores]
            table.setdefault(row.name, {})[row.environment] = found
    return table


def overall(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Overall]:
    """Statistics of every algorithm with scores in all environments, the best IQM first.

    ``scores`` are normalized, [runs], by algorithm and environment. With fewer than two
    environments the result is empty.
    """
    environments = sorted({name for table in scores.values() for name in table})
    if len(environments) < 2:
        return []
    found = []
    for name, table in scores.items():
        strata = [table.get(key, ()) for key in environments]
        if all(strata):
            center, *others = (float(statistic(*strata)) for statistic in STATISTICS)
            low, high = stratified_interval(estimates.iqm_across, strata, resamples=RESAMPLES)
            found.append(Overall(name, center, low, high, *others))
    return sorted(found, key=lambda item: -item.iqm)


def overall_notes(rows: Sequence[ScoreRow]) -> list[str]:
    """One sentence per algorithm, and why there are not more."""
    found = overall(normalized_scores(rows))
    return sentences(found) + left_out(rows, found)


def left_out(rows: Sequence[ScoreRow], found: Sequence[Overall]) -> list[str]:
    """Which environments and algorithms of a table are not in its statistics, and why."""
    names = list(dict.fromkeys(row.environment for row in rows))
    if len(names) < 2:
        return []
    used = dict.fromkeys(row.environment for row in rows if not math.isnan(row.normalized))
    if len(used) < 2:
        need = "They need a score, a random and a reference score in two or more, and have them in"
        return [f"No statistics over all environments. {need}: {', '.join(used) or 'none'}."]
    scaled = {row.environment for row in rows if row.reference_score > row.random_score}
    included = {item.name for item in found}
    lacking = {
        "a reference score above a random one": [name for name in names if name not in scaled],
        "a score": [name for name in names if name in scaled and name not in used],
        "a score in some of them": list(
            dict.fromkeys(row.name for row in rows if row.name not in included)
        ),
    }
    return [
        f"Not in the statistics over all environments, without {what}: {', '.join(listed)}."
        for what, listed in lacking.items()
        if listed
    ]


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
