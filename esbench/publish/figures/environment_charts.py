"""The charts of one environment: returns over steps and time, ranks, and sweeps of a setting."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import counted, power_of_ten
from esbench.grids.environment_files import Scores, environment_kind
from esbench.grids.trial_spec import swept_keys, value_text, without_setting
from esbench.publish.figures.chart import NOT_EVALUATED, Chart, Curve, band_curve, is_banded
from esbench.publish.figures.style import Style, assign_styles
from esbench.publish.tables.score_table import value_order
from esbench.results.cell import Cell, seed_scores
from esbench.results.statistics.curves import Band, curve_band, generation_curve, on_grid
from esbench.results.statistics.estimates import bootstrap_interval, iqm
from esbench.store.trial_folder import TrialFolder

TIME_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))  # as in tables
OF_POPULATION: Final = "\N{DAGGER}"
SLOWEST: Final = 10.0  # times as long as the fastest row: from there on, times are logarithmic
LOG_RATIO: Final = 4  # of the largest and smallest value of a sweep with a logarithmic axis
_DRAWN: Final = (
    "env_steps",
    "wall_time_s",
    "center_return",
    "population_return_mean",
    "center_rank_fraction",
)
STEPS: Final = "environment steps"
Panel: TypeAlias = Literal["steps", "time", "rank"]
PANELS: Final[tuple[Panel, ...]] = ("steps", "time", "rank")


@final
@dataclass(frozen=True, eq=False)
class _Drawn:
    """A cell with the trials that make its curves, and their rows by column."""

    cell: Cell
    title: str
    count: str
    style: Style
    score: float | None
    trials: list[TrialFolder]
    runs: list[dict[str, Any]]
    shows_policy: bool

    def curve(self, total: str, unit: float = 1.0) -> Curve:
        """Returns against a total, up to the final score."""
        column = "center_return" if self.shows_policy else "population_return_mean"
        totals, returns = ([run[name] for run in self.runs] for name in (total, column))
        band = curve_band(*on_grid(totals, returns, after=self.cell.is_agent))
        curve = self._curve(band)
        end = None if self.score is None else (self.spent(total) / unit, self.score)
        return replace(curve, x=curve.x / unit, end=end)

    def ranks(self) -> Curve:
        """Ranks of the unperturbed policy against generations."""
        band = generation_curve([run["center_rank_fraction"] for run in self.runs])
        return self._curve(band)

    def _curve(self, band: Band) -> Curve:
        return replace(band_curve(self.cell.name, self.title, self.style, band), count=self.count)

    def spent(self, total: str) -> float:
        """A total at the end of training, mean over seeds."""
        return fmean(float(run[total][-1]) for run in self.runs)


def learning_charts(
    group: Sequence[Cell], styles: Mapping[str, Style]
) -> tuple[dict[Panel, Chart], dict[str, list[TrialFolder]]]:
    """The charts of one environment's cells, and the trials drawn by the name of the curve.

    Both are empty if no trial has two generations; cells without are left out. A curve is made of
    the done seeds, since the shortest run cuts the others, or of all seeds if none is done. The
    label gives their number. Curves have the ``styles`` of their cells' names.

    A cell whose unperturbed policy was not evaluated has no curve in ``rank``, and its returns are
    the population's means. Axes end at the steps and the time of the longest cell's training, mean
    over seeds as in tables; a curve ends at the last policy that was evaluated in every seed.
    """
    some_policy = any(cell.evaluates_policy for cell in group)
    found = [
        _drawn(cell, styles[cell.name], some_policy, float(iqm(scores)) if scores else None)
        for cell, scores in zip(group, seed_scores(group), strict=True)
    ]
    drawn = [each for each in found if each]
    if not drawn:
        return {}, {}
    short = [cell.name for cell, each in zip(group, found, strict=True) if not each]
    left_out = f"; too short for a curve: {', '.join(short)}" if short else ""
    ranks = [each.ranks() for each in drawn if each.shows_policy and not each.cell.is_agent]
    ranked = {curve.name for curve in ranks}
    unranked = sorted(each.cell.name for each in drawn if each.cell.name not in ranked)
    missing = f"; {NOT_EVALUATED}: {', '.join(unranked)}" if unranked else ""
    in_blocks = any(curve.x[0] > 1 for curve in ranks)  # the mean of a first block of several
    label = "rank of the unperturbed policy\n(share of members beating it)"
    rank = Chart(
        title=_one_line(label),
        x_label="generation" + "\n(averaged in blocks)" * in_blocks,
        y_label=label,
        curves=ranks,
        reading=_reading(ranks) + missing + left_out,
        levels=[(0.5, "")],  # there, perturbations make no difference
        is_share=True,
        is_whole=True,
    )
    frozen = group[0].frozen
    shared = frozen if all(cell.frozen == frozen for cell in group) else Scores()
    panels = {**_return_charts(drawn, shared, left_out), "rank": rank}
    return panels, {each.cell.name: each.trials for each in drawn}


def _drawn(cell: Cell, style: Style, some_policy: bool, score: float | None) -> _Drawn | None:
    """What is drawn of a cell, which is marked if other cells show policies and it does not."""
    rows = {trial: trial.columns(*_DRAWN) for trial in cell.trials}
    policy = cell.evaluates_policy
    if cell.is_agent and not policy:  # only rows in which an episode ended
        for trial, columns in rows.items():
            known = np.isfinite(columns["population_return_mean"])
            rows[trial] = {name: values[known] for name, values in columns.items()}
    found = [trial for trial in cell.trials if len(rows[trial]["env_steps"]) > 1]
    done = [trial for trial in found if trial.is_done]
    if not found:
        return None
    trials, total = done or found, len(cell.trials)
    part = f"{len(trials)} of " * (len(trials) < total)
    count = f"{part}{counted(total, 'seed')}{', unfinished' * (not done)}"
    title = f"{cell.name}{OF_POPULATION * (some_policy and not policy)}"
    runs = [rows[trial] for trial in trials]
    return _Drawn(cell, title, count, style, score, trials, runs, policy)


def _return_charts(drawn: Sequence[_Drawn], scores: Scores, left_out: str) -> dict[Panel, Chart]:
    """The charts of returns over steps and over time.

    The returns of a function have a logarithmic axis, since the best possible is 0.
    """
    steps = max(each.spent("env_steps") for each in drawn)
    seconds = max(each.spent("wall_time_s") for each in drawn)
    unit, size = next((u for u in TIME_UNITS if seconds >= u[1]), TIME_UNITS[-1])
    over_steps = [each.curve("env_steps") for each in drawn]
    over_time = [each.curve("wall_time_s", size) for each in drawn]
    levels = _levels(scores)
    values = [curve.values for curve in (*over_steps, *over_time)]
    values.append(np.array([value for value, _ in levels]))
    label, nearest = _scaled(_return_label(drawn), drawn[0].cell.environment, values)
    ends = [float(curve.x[-1]) for curve in over_time]
    slow = max(ends) >= SLOWEST * min(ends)
    end = seconds / size
    over = Chart(
        title=_one_line(label) + left_out,
        x_label=STEPS,
        y_label=label,
        curves=over_steps,
        reading=_reading(over_steps) + left_out,
        levels=levels,
        nearest_zero=nearest,
        x_range=(-0.02 * steps, 1.02 * steps),
        is_whole=True,
    )
    timed = replace(
        over,
        x_label=f"wall-clock time ({unit})" + "\n(log scale)" * slow,
        curves=over_time,
        x_range=(min(ends) / SLOWEST if slow else -0.02 * end, 1.02 * end),
        log_x=slow,
        is_whole=False,
    )
    return {"steps": over, "time": timed}


def _return_label(drawn: Sequence[_Drawn]) -> str:
    """The label of an axis of returns, which says whose they are."""
    evaluated = sum(each.shows_policy for each in drawn)
    if not evaluated:
        return f"mean return of the population\n({NOT_EVALUATED})"
    notes = []
    if any(each.cell.cuts_episodes for each in drawn):
        notes.append("training episodes are cut")
    if evaluated < len(drawn):
        notes.append(f"{OF_POPULATION}: mean of training episodes")
    return "return of the unperturbed policy" + (f"\n({'; '.join(notes)})" if notes else "")


def _scaled(label: str, environment: str, parts: Sequence[Floats]) -> tuple[str, float | None]:
    """The label of an axis of returns, and the return nearest to 0 that a function's axis shows.

    That is a power of ten, which distinguishes the largest return that is not 0: the nearest to the
    best possible, or noise above it.
    """
    if environment_kind(environment) != "function":
        return label, None
    values = np.concatenate(parts)
    values = values[np.isfinite(values) & (values != 0)]
    nearest = -(10.0 ** math.floor(math.log10(abs(values.max())))) if values.size else -1.0
    return f"{label}\n(log scale up to {power_of_ten(nearest)})", nearest


def _levels(scores: Scores) -> list[tuple[float, str]]:
    """The scores to mark, with their names."""
    found = []
    if scores.random is not None:
        found.append((scores.random.mean, "random\npolicy"))
    if scores.solved is not None:
        found.append((scores.solved, "solved"))
    elif scores.references:
        first = scores.references[0]
        name = "\n".join(textwrap.wrap(first.method, 14))
        found.append((first.score, name if first.comparable else f"{name}\n(not\ncomparable)"))
    return found


def _reading(curves: Sequence[Curve]) -> str:
    ends = ", filled markers: final scores" * any(curve.end is not None for curve in curves)
    return "IQM over seeds" + ", shaded: 95 % bootstrap interval" * is_banded(curves) + ends


def _one_line(label: str) -> str:
    text = " ".join(label.split())
    return text[0].upper() + text[1:]


def sweep_charts(group: Sequence[Cell], chosen: Sequence[Cell] | None = None) -> dict[str, Chart]:
    """The charts of one environment's cells by setting, one for each with scores of two values.

    They show the ``chosen`` cells, by default all; a run that diverged has the worst score of all.
    The axis is logarithmic for positive values that differ much. A value that is not a number has
    its place among the values as x.
    """
    scores_of = dict(zip([cell.name for cell in group], seed_scores(group), strict=True))
    own = group if chosen is None else chosen
    keys = dict.fromkeys(key for cell in own for key in swept_keys(cell.algorithm, cell.settings))
    charts = {key: _sweep(own, key, scores_of) for key in keys}
    return {key: chart for key, chart in charts.items() if chart}


def _sweep(
    group: Sequence[Cell], key: str, scores_of: Mapping[str, Sequence[float]]
) -> Chart | None:
    families: dict[str, list[Cell]] = {}
    for cell in group:
        if key in swept_keys(cell.algorithm, cell.settings) and scores_of[cell.name]:
            name = without_setting(cell.name, key, cell.settings[key])
            families.setdefault(name, []).append(cell)
    tried = [cell.settings[key] for own in families.values() for cell in own]
    values = sorted({value_text(value): value for value in tried}.values(), key=value_order)
    if len(values) < 2:
        return None
    numeric = all(isinstance(value, int | float) for value in values)
    places = {value_text(v): float(v if numeric else n) for n, v in enumerate(values)}
    curves = []
    for name, style in assign_styles({name: name for name in sorted(families)}).items():
        own = sorted(families[name], key=lambda cell: value_order(cell.settings[key]))
        scores = [scores_of[cell.name] for cell in own]
        x = np.array([places[value_text(cell.settings[key])] for cell in own])
        y = np.array([float(iqm(each)) for each in scores])
        low, high = np.array([bootstrap_interval(each) for each in scores]).T
        curves.append(Curve(name, name, style, x, y, low, high))
    label, nearest = _scaled("score", group[0].environment, [curve.values for curve in curves])
    return Chart(
        title=f"Score against {key}",
        x_label=key,
        y_label=label,
        curves=curves,
        nearest_zero=nearest,
        reading="IQM over seeds; bars: 95 % bootstrap interval",
        environments=[group[0].environment],
        log_x=numeric and 0 < LOG_RATIO * values[0] <= values[-1],
        ticks={place: text for text, place in places.items()},
    )
