"""Scores for services that keep benchmarks over commits: Bencher and github-action-benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.json_text import Json, as_text
from esbench.core.units import NONE, counted, format_number, format_percent, format_steps
from esbench.publish.tables.render_table import interval_text
from esbench.results.cell import Cell

SPEED: Final = "steps-per-second"


def as_bmf(rows: Sequence[Cell]) -> str:
    """Ranked rows in the Bencher Metric Format: one benchmark per row, one measure per quantity.

    The measures are the score with its interval and its normalized form, both named after the
    statistic where that is not the mean, the mean tail over all seeds, and the training steps per
    second of CPU time. A measure or end of an interval that is unknown is left out, as is a row
    without scores.

    Raises:
        UsageError: no row has a score.
    """
    return as_text({row.title: _measures(row) for row in _with_scores(rows)})


def _measures(row: Cell) -> Json:
    score = "score" if row.statistic == "mean" else f"{row.statistic}-score"
    ends = row.interval
    found = {
        score: (row.score, *ends),
        f"normalized-{score}": tuple(map(row.normalized, (row.score, *ends))),
        SPEED: (_speed(row),),
    }
    if row.statistic == "mean":
        found["tail"] = (row.tail,)
    keys = ("value", "lower_value", "upper_value")
    return {
        name: {key: value for key, value in zip(keys, values, strict=False) if math.isfinite(value)}
        for name, values in found.items()
        if math.isfinite(values[0])
    }


def as_benchmark_action(rows: Sequence[Cell]) -> str:
    """Ranked rows for github-action-benchmark's tool ``customBiggerIsBetter``.

    The tool divides values of two commits, so none may be negative. A value is the normalized score
    in percent, with 0 for random actions or less and 100 for the reference, where both are known,
    and else the score. A row without scores is left out, as is a negative score without reference.

    Raises:
        UsageError: no row has a score, or none that can be written.
    """
    found: list[Json] = []
    for row in _with_scores(rows):
        judged = "" if row.statistic == "mean" else f", {row.statistic}"
        name = f"{row.title}{judged}"
        score = f"score {format_number(row.score)}"
        if row.has_scale:
            value, unit = max(0.0, 100 * row.normalized(row.score)), "% of the reference"
            low, high = map(row.normalized, row.interval)
            interval = interval_text((low, high), format_percent)
        else:
            value, unit = row.score, "return"
            interval = interval_text(row.interval, format_number)
        seeds = counted(len(row.scores), "seed")
        extra = f"{score}, {seeds}, {format_steps(row.env_steps)} steps"
        own = {"name": name, "unit": unit, "value": value, "range": interval, "extra": extra}
        if value >= 0:
            found.append({key: each for key, each in own.items() if each != NONE})
        if math.isfinite(speed := _speed(row)):
            found.append({"name": f"{name}, speed", "unit": "steps/s", "value": speed})
    if not found:
        raise UsageError(
            "all scores are negative and have no reference; expected --format bmf, or an "
            "environment with a random and a reference score"
        )
    return as_text(found)


def _with_scores(rows: Sequence[Cell]) -> list[Cell]:
    if scored := [row for row in rows if math.isfinite(row.score)]:
        return scored
    raise UsageError("no row has a score; expected one or more finished trials")


def _speed(row: Cell) -> float:
    """The training steps per second of CPU time, median over the done runs; NaN if unknown."""
    speeds = [run.env_steps / run.cpu_time_s for run in row.done if run.cpu_time_s > 0]
    return float(np.median(speeds)) if speeds else math.nan
