"""The page of a repository's past checks: every cell's scores and speeds by commit, in one file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from esbench.core.json_text import Json
from esbench.core.units import NONE, counted, format_number, format_steps
from esbench.publish.figures.history_figure import history_charts
from esbench.publish.history import NOTES, CellHistory, by_processor, sheet, signed
from esbench.publish.html.plotly_chart import make_chart
from esbench.publish.html.report import template
from esbench.publish.tables.render_table import TEXTS

LABELS: Final = frozenset({*TEXTS, "Commit", "Date", "Digests", "Verdict", "Change", "Cell"})


def history_page(found: Sequence[CellHistory], address: str = "") -> str:
    """The page as HTML that needs no network; equal histories give equal bytes.

    ``address`` is the web address of a commit without the commit; commits are no links without it.
    """
    cells = [_cell(cell, f"cell-{number}") for number, cell in enumerate(found, 1)]
    changes = [
        each for cell, made in zip(found, cells, strict=True) for each in _changes(cell, made)
    ]
    is_known = address.endswith("/commit/")
    return template("history.html").render(
        title=_title(address),
        facts=_facts(found),
        cells=cells,
        newest=max(made["latest"].date for made in cells),
        changes=sorted(changes, key=lambda change: change["at"].date, reverse=True),
        notes=NOTES,
        commit_address=address,
        compare_address=f"{address.removesuffix('/commit/')}/compare/" if is_known else "",
        labels=LABELS,
    )


def _title(address: str) -> str:
    """The owner and the name of the repository, if its address is known."""
    host_and_path, _, _ = address.removeprefix("https://").partition("/commit")
    parts = host_and_path.removesuffix("/-").split("/")[1:]
    return f"Checks of {'/'.join(parts)}" if parts else "History of checks"


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
    return {
        "key": key,
        "title": cell.title,
        "latest": latest,
        "score": format_number(latest.score),
        "speed": NONE if math.isnan(latest.speed) else format_steps(latest.speed),
        "charts": [make_chart(chart) for chart in history_charts(cell, key)],
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
