"""Figures of a suite, drawn from the files of a leaderboard alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.units import counted
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.figures.across import across_drawing, performance_profile
from esbench.publish.figures.drawing import Drawing, Size, band_curve, draw_curves, place_legend
from esbench.publish.figures.learning_curves import SHARES
from esbench.publish.figures.style import MARK, Style, assign_styles
from esbench.publish.leaderboard.entries import QUANTILES, Entry, EntryCurves
from esbench.publish.leaderboard.suites import Suite
from esbench.results.baselines import OWN_MEAN
from esbench.results.statistics.curves import Band, blocks, curve_band
from esbench.results.statistics.estimates import iqm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import FigureBase

COLUMNS: Final = 3
ROW_HEIGHT: Final = 1.9  # inches
RANK_POINTS: Final = 15  # a rank comes from few episodes: it is noisier than a return
OPACITY: Final = 0.08
FEWEST_POINTS: Final = 3  # of a panel that compares
MEDIAN: Final = QUANTILES.index(0.5)
Fill: TypeAlias = Callable[["Axes", Sequence[Entry], Mapping[str, Style]], None]
"""Draws the entries of an environment into its panel, with the styles of their algorithms."""


def suite_drawings(suite: Suite) -> dict[str, Drawing]:
    """The figures of a suite by name; UsageError if it has no entry.

    "curves", "ranks", "tails" and "best-seen" have one panel per environment. "profile" is over
    environments with a published reference, if there are two, and algorithms with results in each.
    "tails" and "best-seen" compare algorithms, so they need an environment with three.
    """
    if not suite.shown:
        raise UsageError(f"the leaderboard has no entry of the suite {suite.name}; expected one")
    names = sorted({entry.cell.algorithm for entry in suite.shown})
    styles = assign_styles({name: name for name in names})
    panels = partial(_panels, suite, styles)
    point = "over seeds, one point per algorithm; dotted: equal"
    drawings = {
        "curves": panels("return of the unperturbed policy", _curves, _over_seeds(suite)),
        "ranks": panels("share of members that beat it", _ranks, _over_seeds(suite)),
    }
    if max(Counter(entry.cell.environment for entry in suite.shown).values()) >= FEWEST_POINTS:
        drawings["tails"] = panels("mean of the worst tenth", _tails, f"mean {point}")
        label = "largest mean of five generations"
        drawings["best-seen"] = panels(label, _best_seen, f"IQM {point}")
    cells = [replace(entry.to_cell(), policy=DEFAULT_LABEL) for entry in in_every_scale(suite)]
    if profile := performance_profile(cells, styles):
        drawings["profile"] = across_drawing(profile)
    return drawings


def in_every_scale(suite: Suite) -> list[Entry]:
    """The entries in environments with a published score, of algorithms that are in all of them."""
    scaled = [entry for entry in suite.shown if entry.cell.reference_source != OWN_MEAN]
    total = len({entry.cell.environment for entry in scaled})
    counts = Counter(entry.cell.algorithm for entry in scaled)
    return [entry for entry in scaled if counts[entry.cell.algorithm] == total]


def _over_seeds(suite: Suite) -> str:
    counts = sorted({len(entry.seeds) for entry in suite.shown})
    seeds = (
        counted(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    )
    return f"IQM over {seeds}, shaded: 95 % bootstrap interval"


def _panels(
    suite: Suite, styles: Mapping[str, Style], label: str, fill: Fill, reading: str
) -> Drawing:
    """One panel per environment that has an entry."""
    groups = {
        name: own
        for name in suite.environments
        if (own := [entry for entry in suite.shown if entry.cell.environment == name])
    }
    columns = min(COLUMNS, len(groups))
    rows = -(-len(groups) // columns)

    def draw(figure: FigureBase, size: Size) -> None:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        handles: dict[str, Any] = {}
        for axes, (name, entries) in zip(panels, groups.items(), strict=False):
            fill(axes, entries, styles)
            axes.set_title(name, fontsize=9)
            axes.grid(visible=True)
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        figure.supylabel(label, fontsize=9)
        shown = {name: handles[name] for name in styles if name in handles}
        place_legend(figure, size, shown, reading)

    return Drawing(0.5 + ROW_HEIGHT * rows, list(styles), draw)


def _bands(
    axes: Axes,
    entries: Sequence[Entry],
    styles: Mapping[str, Style],
    band_of: Callable[[EntryCurves], Band],
) -> None:
    """One curve with its interval per entry that has any, against the steps of training."""
    curves = []
    for entry in entries:
        name, band = entry.cell.algorithm, entry.curves and band_of(entry.curves)
        if band and np.isfinite(band.iqm).any():
            curves.append(band_curve(name, name, styles[name], band))
    draw_curves(axes, curves, OPACITY)
    axes.set_xlabel("environment steps")
    _few_ticks(axes.xaxis, 3)
    axes.margins(x=0.02)


def _curves(axes: Axes, entries: Sequence[Entry], styles: Mapping[str, Style]) -> None:
    _bands(axes, entries, styles, EntryCurves.band)


def _ranks(axes: Axes, entries: Sequence[Entry], styles: Mapping[str, Style]) -> None:
    def band(curves: EntryCurves) -> Band:
        values = np.array(curves.ranks, dtype=np.float64)
        return curve_band(blocks(curves.env_steps, RANK_POINTS), blocks(values, RANK_POINTS))

    _bands(axes, entries, styles, band)
    axes.axhline(0.5, **MARK)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks(*SHARES)


def _tails(axes: Axes, entries: Sequence[Entry], styles: Mapping[str, Style]) -> None:
    for entry in entries:
        median = fmean(run.quantiles[MEDIAN] for run in entry.runs)
        _point(axes, median, fmean(run.tail for run in entry.runs), entry, styles)
    _finish_points(axes, "median episode")


def _best_seen(axes: Axes, entries: Sequence[Entry], styles: Mapping[str, Style]) -> None:
    for entry in entries:
        best = [run.best_center for run in entry.runs if run.best_center is not None]
        if len(best) == len(entry.runs):
            _point(axes, float(iqm(entry.scores)), float(iqm(best)), entry, styles)
    _finish_points(axes, "final score")


def _point(axes: Axes, x: float, y: float, entry: Entry, styles: Mapping[str, Style]) -> None:
    style = styles[entry.cell.algorithm]
    axes.plot(
        x,
        y,
        style.marker,
        color=style.color,
        markersize=10 if style.marker == "*" else 7,
        markeredgecolor="white",
        markeredgewidth=0.6,
        alpha=0.8,  # a point below another one
        label=entry.cell.algorithm,
    )


def _finish_points(axes: Axes, label: str) -> None:
    """Equal axes, with the line on which both numbers are equal."""
    axes.margins(0)
    limits = [*axes.get_xlim(), *axes.get_ylim()]
    margin = 0.1 * (max(limits) - min(limits))
    both = min(limits) - margin, max(limits) + margin
    axes.set(xlim=both, ylim=both, xlabel=label)
    axes.axline((0, 0), slope=1, **MARK)
    _few_ticks(axes.xaxis, 4)
    _few_ticks(axes.yaxis, 4)


def _few_ticks(axis: Axis, most: int) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(EngFormatter(sep=""))
