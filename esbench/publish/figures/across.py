"""Charts over several environments, with one curve per algorithm.

The ECDF is the share of targets reached within a budget. Targets are evenly spaced from an
environment's frozen random score to its reference, so a curve depends neither on the other
algorithms nor on the unit of the returns. The performance profile is the share of runs that score
above a threshold on this scale. With one environment the table already shows every score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import counted
from esbench.publish.figures.chart import Chart, Curve, is_banded
from esbench.publish.figures.style import Style
from esbench.results.cell import Cell
from esbench.results.run import Run
from esbench.results.statistics import estimates
from esbench.results.statistics.curves import TARGETS, WINDOW, even_targets, share_reached

T = TypeVar("T")

POINTS: Final = 400
DECADES: Final = 4  # longest axis of budgets
LOWEST: Final = -0.5  # limits of the axis of scores
HIGHEST: Final = 2.0


def target_ecdf(group: Sequence[Cell], styles: Mapping[str, Style]) -> Chart | None:
    """The share of triples (environment, target, run) reached within a budget.

    A curve is made of the done runs of each cell or, if there is none, of the unfinished ones. It
    ends at the most that one of its runs spent. None if no cell has a scale and a generation.
    ``styles`` are by the names of the cells.
    """
    pairs = []
    for cell in group:
        if cell.has_scale and (found := [run for run in cell.runs if _spent(run)]):
            runs = [run for run in found if run.done] or found
            targets = even_targets(cell.random_score, cell.reference_score)
            totals = [run.first_totals(targets, costs=("env_steps",)) for run in runs]
            reached = [own["env_steps"] for own in totals]
            pairs.append((cell, list(zip(runs, reached, strict=True))))
    if not pairs:
        return None
    longest = max(_spent(run) for _, own in pairs for run, _ in own)
    first = _first_budget([times for _, own in pairs for _, times in own], longest)
    environments, curves = _environments(pairs), []
    for name, style, own in _by_algorithm(pairs, styles):
        runs = [run for cell_members in own for run, _ in cell_members]
        budgets = np.geomspace(first, max(first, *map(_spent, runs)), POINTS)
        note = "" if all(run.done for run in runs) else ", unfinished"
        count = _count(len(own), len(environments), len(runs)) + note
        times = [[found for _, found in cell_members] for cell_members in own]
        none = np.full(POINTS, np.nan)
        share = share_reached(times, budgets)
        curves.append(Curve(name, name, style, budgets, share, none, none, count))
    return Chart(
        title="Targets reached within a budget",
        x_label="environment steps (log scale)",
        y_label="share of targets reached",
        curves=curves,
        reading=f"{TARGETS} targets per environment, evenly spaced from the random policy's score "
        "to the reference; all runs. Reached by the unperturbed policy's mean return over "
        f"{WINDOW} generations, or by the final score.",
        environments=environments,
        is_share=True,
        log_x=True,
    )


def performance_profile(group: Sequence[Cell], styles: Mapping[str, Style]) -> Chart | None:
    """The share of runs above each normalized score.

    None if fewer than two environments have frozen random and reference scores and a done run.
    """
    pairs = [
        # A run that diverged is above nothing.
        (cell, [-math.inf if s is None else cell.normalized(s) for s in (r.score for r in done)])
        for cell in group
        if cell.has_scale and (done := cell.done)
    ]
    environments = _environments(pairs)
    if len(environments) < 2:
        return None
    thresholds = _thresholds(np.concatenate([scores for _, scores in pairs]))
    curves = []
    for name, style, strata in _by_algorithm(pairs, styles):
        count = _count(len(strata), len(environments), sum(map(len, strata)))
        share = estimates.performance_profile(strata, thresholds)
        low, high = estimates.profile_interval(strata, thresholds)
        curves.append(Curve(name, name, style, thresholds, share, low, high, count))
    shaded = "; shaded: pointwise 95 % stratified bootstrap interval" * is_banded(curves)
    return Chart(
        title="Runs above a score",
        x_label="normalized score",
        y_label="share of runs above it",
        curves=curves,
        reading=f"Final scores of all runs, every environment alike{shaded}",
        environments=environments,
        places=[(0.0, "random policy"), (1.0, "reference")],
        is_share=True,
    )


def _environments(pairs: Sequence[tuple[Cell, object]]) -> list[str]:
    return sorted({cell.environment for cell, _ in pairs})


def _by_algorithm(
    pairs: Sequence[tuple[Cell, T]], styles: Mapping[str, Style]
) -> list[tuple[str, Style, list[T]]]:
    """The data of the cells grouped by algorithm and policy, sorted."""
    groups: dict[str, list[T]] = {}
    for cell, values in pairs:
        groups.setdefault(cell.name, []).append(values)
    return [(name, styles[name], groups[name]) for name in sorted(groups)]


def _count(environments: int, total: int, runs: int) -> str:
    some = f"{environments} of {counted(total, 'environment')}, " if environments < total else ""
    return f"{some}{counted(runs, 'run')}"


def _spent(run: Run) -> float:
    """The steps of training, 0 before the first generation."""
    return float(run.curve["env_steps"][-1:].sum())


def _first_budget(totals: Sequence[Floats], longest: float) -> float:
    """Where the first target was reached; the axis spans from 1 to ``DECADES`` decades."""
    times = np.concatenate(totals)
    first = float(np.min(times, initial=np.inf, where=times > 0))
    return float(np.clip(first, longest / 10**DECADES, longest / 10))


def _thresholds(scores: Floats) -> Floats:
    """Thresholds [points] from the random policy to the reference, wider if scores are."""
    finite = scores[np.isfinite(scores)]
    first = max(LOWEST, min(0.0, *finite)) if finite.size else 0.0
    last = min(HIGHEST, max(1.0, *finite)) if finite.size else 1.0
    return np.linspace(first, last, POINTS)
