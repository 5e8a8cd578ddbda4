"""Reported scores beside the rows of the leaderboard, and apart from their statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from esbench.core.json_text import Json
from esbench.core.units import NONE, format_number, format_steps
from esbench.publish.leaderboard.table import LeaderboardRow
from esbench.publish.tables.render_table import Column, Sheet, make_sheet
from esbench.results.reported_scores import ReportedRow, ReportedTable, task_of

MARK: Final = "reported"
REPORTED_HEADER: Final = ["Environment", "Algorithm", "Score", "Seeds", "Steps"]
NOTE: Final = (
    "Reported: scores of others, not verified and in no statistic, such as P(best). What a score "
    "is, and how many trainings it is the mean of, differs between tables."
)


def selected_reported(
    found: Sequence[ReportedRow], environments: Sequence[str], algorithms: Sequence[str]
) -> list[ReportedRow]:
    """The rows of some environments in any version, and of some algorithms; by default of all."""
    tasks, names = {*map(task_of, environments)}, {name.lower() for name in algorithms}
    return [
        row
        for row in found
        if (not tasks or row.task in tasks)
        and (not names or row.reported.algorithm.lower() in names)
    ]


def with_reported(
    sheet: Sheet, rows: Sequence[LeaderboardRow], reported: Sequence[ReportedRow]
) -> Sheet:
    """The table of ``rows`` with reported scores below those of the same environment.

    Those of another version of it stand there too, under their own names; others are at the end.
    """
    if not reported:
        return sheet
    tables = _tables(reported)
    ours = [task_of(row.cell.environment) for row in rows]
    left = list(reported)
    body: list[Sequence[str]] = []
    for place, cells in enumerate(sheet.body):
        body.append(cells)
        if ours[place] not in ours[place + 1 :]:
            name = rows[place].cell.environment
            own = [row for row in left if row.task == ours[place]]
            own.sort(key=lambda row: not row.is_of(name))  # its own version first
            left = [row for row in left if row.task != ours[place]]
            body += [_cells(row, sheet.header, tables) for row in own]
    body += [_cells(row, sheet.header, tables) for row in left]
    notes = [*sheet.notes, NOTE, *_version_notes(rows, reported), *_table_notes(tables)]
    return replace(sheet, body=body, notes=notes)


def _tables(rows: Sequence[ReportedRow]) -> list[ReportedTable]:
    return list({id(row.table): row.table for row in rows}.values())


def _cells(row: ReportedRow, header: Sequence[str], tables: Sequence[ReportedTable]) -> list[str]:
    own = make_sheet(REPORTED, [row])
    known = dict(zip(own.header, own.body[0], strict=True))
    known["Algorithm"] += f" ({MARK} [{tables.index(row.table) + 1}])"
    return [known.get(name, NONE) for name in header]


def _version_notes(rows: Sequence[LeaderboardRow], reported: Sequence[ReportedRow]) -> list[str]:
    ours = {task_of(row.cell.environment): row.cell.environment for row in rows}
    theirs = {
        row.reported.environment: ours[row.task]
        for row in reported
        if row.task in ours and not any(row.is_of(own.cell.environment) for own in rows)
    }
    pairs = ", ".join(f"{name} for {own}" for name, own in theirs.items())
    return [f"Another version of an environment, with other scores: {pairs}."] if pairs else []


def _table_notes(tables: Sequence[ReportedTable]) -> list[str]:
    return [
        f"[{number}] {table.source}, imported {table.imported}; score: {table.measure}; versions: "
        f"{table.versions or 'unknown'}."
        for number, table in enumerate(tables, 1)
    ]


def with_records(own: Sequence[Json], reported: Sequence[ReportedRow]) -> list[Json]:
    """The values of rows by name, and of reported scores below them, which are not verified."""
    theirs = [
        {
            **row.reported.model_dump(),
            **row.table.model_dump(include={"source", "imported", "measure", "versions"}),
            "verified": False,
        }
        for row in reported
    ]
    return [*({**row, "verified": True} for row in own), *theirs]


def _or_none(text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: NONE if value is None else text(value)


def _own(key: str, heading: str, text: Callable[[Any], str] = str) -> Column[ReportedRow]:
    return Column("", attrgetter(f"reported.{key}"), heading, text)


REPORTED: Final[tuple[Column[ReportedRow], ...]] = (
    _own("environment", "Environment"),
    _own("algorithm", "Algorithm"),
    _own("score", "Score", format_number),
    _own("deviation", "Deviation", _or_none(format_number)),
    _own("seeds", "Seeds", lambda count: "unknown" if count is None else str(count)),
    _own("env_steps", "Steps", _or_none(format_steps)),
    Column("", attrgetter("table.source"), "Source"),
)
"""The columns of the table of reported scores alone."""


def reported_sheet(rows: Sequence[ReportedRow]) -> Sheet:
    """The table of reported scores alone."""
    return replace(make_sheet(REPORTED, rows), notes=[NOTE, *_table_notes(_tables(rows))])
