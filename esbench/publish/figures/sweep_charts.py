"""Charts of sweeps: score against a setting of the algorithm, in one environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from esbench.grids.trial_spec import swept_keys, value_text, without_setting
from esbench.publish.figures.chart import Chart, Curve
from esbench.publish.figures.style import assign_styles
from esbench.publish.tables.score_table import value_order
from esbench.results.cell import Cell, seed_scores
from esbench.results.statistics.estimates import bootstrap_interval, iqm

LOG_RATIO: Final = 4  # of the largest and smallest value, from which the axis is logarithmic


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
    found = {value_text(v): v for own in families.values() for v in _values(own, key)}
    values = sorted(found.values(), key=value_order)
    if len(values) < 2:
        return None
    numeric = all(isinstance(value, int | float) for value in values)
    places = [float(v) if numeric else float(n) for n, v in enumerate(values)]
    texts = list(map(value_text, values))
    place = dict(zip(texts, places, strict=True))
    curves = []
    for name, style in assign_styles({name: name for name in sorted(families)}).items():
        own = sorted(families[name], key=lambda cell: value_order(cell.settings[key]))
        scores = [scores_of[cell.name] for cell in own]
        x = np.array([place[value_text(value)] for value in _values(own, key)])
        y = np.array([float(iqm(each)) for each in scores])
        low, high = np.array([bootstrap_interval(each) for each in scores]).T
        curves.append(Curve(name, name, style, x, y, low, high))
    return Chart(
        title=f"Score against {key}",
        x_label=key,
        y_label="score",
        curves=curves,
        reading="IQM over seeds; bars: 95 % bootstrap interval",
        environments=[group[0].environment],
        log_x=numeric and 0 < LOG_RATIO * places[0] <= places[-1],
        ticks=dict(zip(places, texts, strict=True)),
    )


def _values(own: Sequence[Cell], key: str) -> list[Any]:
    return [cell.settings[key] for cell in own]
