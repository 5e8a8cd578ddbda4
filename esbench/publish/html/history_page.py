"""The page of a repository's past checks: every cell's scores and speeds by commit, in one file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from esbench.core.escape import plotly
from esbench.core.json_text import Json
from esbench.core.units import NONE, counted, format_number, format_steps
from esbench.publish.figures.chart import Chart, Curve
from esbench.publish.figures.history_figure import COLORS
from esbench.publish.figures.style import BLACK, BLUE, GRAY, GREEN, Style
from esbench.publish.history import NOTES, CellHistory, PastCheck, by_processor, sheet, signed
from esbench.publish.html.plotly_chart import make_chart
from esbench.publish.html.report import template
from esbench.publish.tables.render_table import TEXTS

SPEED_TITLE: Final = "Training steps per second of CPU time"
LEVEL: Final = Style(BLACK, "-", "o")
SPEEDS: Final = (Style(GRAY, "-", "o"), Style(BLUE, "-", "^"), Style(GREEN, "-", "s"))
LABELS: Final = frozenset({*TEXTS, "Commit", "Date", "Digests", "Verdict", "Change", "Cell"})


def history_page(found: Sequence[CellHistory], address: str = "") -> str:
    """The page as HTML that needs no network; equal histories give equal bytes.

    ``address`` is the web address of a commit without the commit; commits are no links without it.
    """
    cells = [_cell(cell, f"cell-{number}") for number, cell in enumerate(found, 1)]
    changes = [
        each for cell, made in zip(found, cells, strict=True) for each in _changes(cell, made)
    ]
    return template("history.html").render(
        title=_title(address),
        facts=_facts(found),
        cells=cells,
        newest=max(made["latest"].date for made in cells),
        changes=sorted(changes, key=lambda change: change["at"].date, reverse=True),
        notes=NOTES,
        commit_address=address,
        compare_address=_compare_address(address),
        labels=LABELS,
    )


def _title(address: str) -> str:
    """The owner and the name of the repository, if its address is known."""
    host_and_path, _, _ = address.removeprefix("https://").partition("/commit")
    parts = host_and_path.removesuffix("/-").split("/")[1:]
    return f"Checks of {'/'.join(parts)}" if parts else "History of checks"


def _compare_address(address: str) -> str:
    """The web address that compares two commits, without them; empty if it is not known."""
    return f"{address.removesuffix('/commit/')}/compare/" if address.endswith("/commit/") else ""


def _facts(found: Sequence[CellHistory]) -> dict[str, str]:
    checks = [check for cell in found for check in cell.checks]
    dates = sorted({check.date for check in checks})
    processors = {check.processor for check in checks if check.processor}
    return {
        "Commits": str(len({check.commit for check in checks if check.commit})) or NONE,
        "Cells": str(len(found)),
        "Dates": " to ".join(dict.fromkeys(dates[:1] + dates[-1:])),
        "Processors": ", ".join(sorted(processors)) or "unknown",
    }


def _cell(cell: CellHistory, key: str) -> Json:
    table, latest = sheet(cell), cell.checks[-1]
    rows = list(zip(cell.checks, table.body, strict=True))
    charts = [_score_chart(cell, key)]
    if by_processor(cell.checks):
        charts.append(_speed_chart(cell, key))
    return {
        "key": key,
        "title": cell.title,
        "latest": latest,
        "score": format_number(latest.score),
        "speed": NONE if math.isnan(latest.speed) else format_steps(latest.speed),
        "charts": charts,
        "header": table.header,
        "rows": [(place, check, cells) for place, (check, cells) in enumerate(rows)][::-1],
        "count": counted(len(rows), "check"),
    }


def _changes(cell: CellHistory, made: Json) -> list[Json]:
    """The changes of a cell, each with the commit before it that has the old level."""
    found: list[Json] = []
    speeds = by_processor(cell.checks)
    for name, processor, places in [
        ("score", "", range(len(cell.checks))),
        *(("speed", processor, own) for processor, own in speeds.items()),
    ]:
        for before, at in itertools.pairwise(places):
            old, new = cell.checks[before], cell.checks[at]
            change = getattr(new, f"{name}_change")
            if math.isnan(change):
                continue
            is_score = name == "score"
            levels = [getattr(each, f"{name}_level") for each in (old, new)]
            found.append(
                {
                    "at": new,
                    "before": old.revision,
                    "cell": made,
                    "row": f"{made['key']}-{at}",
                    "what": "score" if is_score else "steps/s",
                    "where": f"on {processor}" if processor else "",
                    "size": signed(change) if is_score else f"{change:+.0%}",
                    "levels": " to ".join(map(format_number if is_score else format_steps, levels)),
                }
            )
    return found


def _score_chart(cell: CellHistory, key: str) -> Json:
    groups: dict[str, list[int]] = {}
    for place, check in enumerate(cell.checks):
        if check.scores.size:
            name = check.verdict if check.verdict in COLORS else "score"
            groups.setdefault(name, []).append(place)
    points = [
        _curve(cell, key, name, Style(COLORS.get(name, BLUE), "-", "o"), own, "score")
        for name, own in groups.items()
    ]
    judged = "" if cell.episode_statistic == "mean" else f" ({cell.episode_statistic})"
    return _chart(cell, key, f"Score{judged}", "score", points, [range(len(cell.checks))])


def _speed_chart(cell: CellHistory, key: str) -> Json:
    found = by_processor(cell.checks)
    points = [
        _curve(cell, key, name or "unknown processor", look, own, "speed")
        for look, (name, own) in zip(itertools.cycle(SPEEDS), found.items(), strict=False)
    ]
    return _chart(cell, key, SPEED_TITLE, "speed", points, [*found.values()])


def _chart(
    cell: CellHistory,
    key: str,
    title: str,
    name: Literal["score", "speed"],
    points: Sequence[Curve],
    series: Sequence[Sequence[int]],
) -> Json:
    """Points, a line of the levels of each series of checks, and a mark for each change."""
    words = signed if name == "score" else "{:+.0%}".format
    changes = [(n, getattr(check, f"{name}_change")) for n, check in enumerate(cell.checks)]
    lines = [_curve(cell, key, "level", LEVEL, own, f"{name}_level") for own in series]
    chart = Chart(
        title=title,
        x_label="commit",
        y_label=name,
        curves=[*points, *lines],
        places=[(n - 0.5, words(change)) for n, change in changes if not math.isnan(change)],
        ticks={n: check.commit or check.date for n, check in enumerate(cell.checks)},
    )
    made = make_chart(chart)
    made["figure"]["layout"]["yaxis"] |= {"exponentformat": "SI", "minexponent": 3}
    for trace in made["figure"]["data"][: len(points)]:
        checks = [cell.checks[int(place)] for place in trace["x"]]
        trace["mode"] = "markers"
        del trace["marker"]["maxdisplayed"]
        trace["text"] = [
            _hover(check, text) for check, text in zip(checks, trace["text"], strict=True)
        ]
        color = trace["error_y"]["color"] = trace["line"]["color"]
        trace["marker"]["color"] = [
            "var(--raised)" if check.digests == "same" else color for check in checks
        ]
    for number, trace in enumerate(made["figure"]["data"][len(points) :]):
        trace |= {"mode": "lines", "hoverinfo": "skip", "showlegend": not number}
        del trace["hovertemplate"], trace["error_y"]
        trace["line"]["shape"] = "hvh"
    return made


def _hover(check: PastCheck, value: str) -> str:
    return f"{value}<br>{check.date}, {plotly(check.verdict)}<br>digests: {check.digests}"


def _curve(
    cell: CellHistory, key: str, label: str, style: Style, places: Sequence[int], name: str
) -> Curve:
    """The values of checks by their places, with the intervals of scores."""
    checks = [cell.checks[place] for place in places]
    y, low, high = (
        np.array([getattr(check, each) for check in checks]) for each in (name, "low", "high")
    )
    if name != "score":
        low, high = np.full((2, len(checks)), math.nan)
    return Curve(key, label, style, np.array(places, dtype=np.float64), y, low, high)
