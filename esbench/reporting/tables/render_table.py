"""Tables laid out as Markdown, CSV, LaTeX, JSON or for a terminal, whatever they are of."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, final

from esbench.analysis.statistics import MIN_RUNS
from esbench.reporting.tables import latex

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TERMINAL_WIDTH: Final = 80
FEW_SEEDS: Final = 10
TEXTS: Final = ("Environment", "Algorithm", "Policy")
"""The columns of words; the others are numbers, and stand to the right."""
INTERVAL: Final = "95 % interval"


@final
@dataclass(frozen=True)
class Sheet:
    """A table for reading: the names of its columns, the cells of each line, and its notes."""

    header: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str]


def as_markdown(sheet: Sheet) -> str:
    """Return a Markdown table with its notes."""
    rule = [":--" if name in TEXTS else "--:" for name in sheet.header]
    table = [sheet.header, rule, *sheet.body]
    lines = ["| " + " | ".join(map(_markdown, cells)) + " |" for cells in table]
    return "\n".join([*lines, "", *(f"- {_markdown(note)}" for note in sheet.notes)]) + "\n"


def as_latex(sheet: Sheet) -> str:
    """Return a LaTeX table with its notes; it needs the packages booktabs and graphicx.

    There is a space between rows that begin with different cells.
    """
    rows = sheet.body
    table = latex.Tabular(
        columns="".join("l" if name in TEXTS else "r" for name in sheet.header),
        head=[list(map(latex.escape, sheet.header))],
        body=[[list(map(latex.escape, cells))] for cells in rows],
        above={n: latex.SPACE for n in range(1, len(rows)) if rows[n][0] != rows[n - 1][0]},
    )
    return latex.floats([table], sheet.notes)


def as_csv(kind: type[Any], rows: Sequence[Any]) -> str:
    """Return every field of rows, dataclasses of a kind, as CSV in full precision; NaN is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [field.name for field in fields(kind)]
    writer.writerow(names)
    for row in rows:
        writer.writerow(_csv(getattr(row, name)) for name in names)
    return buffer.getvalue()


def as_json(rows: Sequence[Any], notes: Sequence[str]) -> str:
    """Return ``rows``, every field of them (null if it is not finite), and ``footnotes``."""
    table = [{key: _json(value) for key, value in asdict(row).items()} for row in rows]
    content = {"rows": table, "footnotes": list(notes)}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_rich(sheet: Sheet) -> RichTable:
    """Return a table for a terminal of 80 columns or more, without its notes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    longest = [max(map(len, column)) for column in zip(sheet.header, *sheet.body, strict=True)]
    wide = sum(length + 1 for length in longest) > TERMINAL_WIDTH
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for name in sheet.header:  # names give way first: a number in pieces is none
        header = name.replace("% ", "%\n") if wide else name
        if name in TEXTS:
            table.add_column(header, overflow="fold")
        else:
            table.add_column(header, justify="right", no_wrap=True, overflow="fold")
    for cells in sheet.body:
        table.add_row(
            *(
                Text(text.replace(", ", ",\n") if wide and name == INTERVAL else text)
                for name, text in zip(sheet.header, cells, strict=True)
            )
        )
    return table


def seeds_notes(seeds: Sequence[int]) -> list[str]:
    """Return what to beware of where a row has so few seeds.

    Args:
        seeds: of each row, how many.
    """
    lines = []
    if any(count < FEW_SEEDS for count in seeds):
        lines.append(
            f"Fewer than {FEW_SEEDS} seeds in some rows: the order of close scores may be chance."
        )
    if any(count < MIN_RUNS for count in seeds):
        lines.append(f"No interval below {MIN_RUNS} seeds.")
    return lines


def makers_notes(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return a line for each command, with the rows it made unless it made all.

    Args:
        rows: each one in words, and the commands that made its trials.
    """
    lines = []
    for command in dict.fromkeys(command for _, commands in rows for command in commands):
        made = [name for name, commands in rows if command in commands]
        which = "" if len(made) == len(rows) else f" ({', '.join(made)})"
        lines.append(f"Made by{which}: {command}")
    return lines


def _csv(value: object) -> object:
    match value:
        case float() if math.isnan(value):
            return ""
        case tuple():
            return "; ".join(map(str, value))
        case None:
            return ""
        case _:
            return value


def _json(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", text)
