"""Tables of text made of columns, and their rendering as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, final

from esbench.core.errors import UsageError, unknown
from esbench.core.escape import csv, latex, markdown
from esbench.core.json_text import Json, as_text
from esbench.core.units import NONE

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
NotesPlace: TypeAlias = Literal["below", "caption", "none"]

TEXTS: Final = ("Environment", "Algorithm", "Policy", "Policies", "Row", "Verdict", "Digests")
"""The columns of text, aligned to the left; the other columns hold numbers."""
INTERVAL: Final = "95 % interval"
MADE_BY: Final = "Made by"  # begins a note with a command
PAGE_LINES: Final = 45  # of a page of LaTeX
_STYLE: Final = r"\footnotesize\setlength{\tabcolsep}{3pt}"
_LATEX_HEAD: Final = rf"""% \usepackage[T1]{{fontenc}}
% \usepackage{{booktabs}}
\begingroup{_STYLE}"""
_LONG_HEAD: Final = rf"""{_LATEX_HEAD.replace("booktabs", "booktabs, longtable")}
\setlength{{\LTleft}}{{0pt plus 1fill minus 1fill}}\setlength{{\LTright}}{{\LTleft}}"""


@final
@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table: a value of each row, and how it is written.

    Attributes:
        key: the name in CSV, JSON and data frames; empty if it is only in tables of text.
        value: of a row; by default the attribute ``key``, or the row if there is no key.
        heading: in tables of text; empty if it is not in them.
        text: of a value.
        optional: whether a table of text leaves it out if no row has a value.
    """

    key: str
    value: Callable[[Row], Any] | None = None
    heading: str = ""
    text: Callable[[Any], str] = str
    optional: bool = False

    def of(self, row: Row) -> Any:
        """The value of a row."""
        if self.value is not None:
            return self.value(row)
        return getattr(row, self.key) if self.key else row


@final
@dataclass(frozen=True)
class Sheet:
    """A table of text with notes below it.

    A cell of ``body`` may have a second line, for the interval of its score. ``best`` holds the
    (row, column) of the cells in bold; a rule separates the last ``separated`` rows.
    """

    header: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    separated: int = 0


@final
@dataclass(frozen=True)
class Paper:
    """How a table of LaTeX stands in a paper: the place of its notes, its caption and its label.

    With a caption or a label, a table that fits a page is a float.
    """

    notes: NotesPlace = "below"
    caption: str = ""
    label: str = ""


def renamed(sheet: Sheet, names: Sequence[str], known: Collection[str]) -> Sheet:
    """A sheet in which each text "OLD=NEW" of ``names`` has replaced a name that is ``known``.

    Commands keep the names that they need. UsageError for a text without "=", for a name that the
    table does not have, and for a new one that it has.
    """
    for text in names:
        found = [name for name in known if text.startswith(f"{name}=")]
        old = max(found, key=len, default=text.rpartition("=")[0])
        new = text[len(old) + 1 :]
        if not (old and new):
            raise UsageError(f"--rename {text}: expected OLD=NEW, such as snes=SNES")
        if old not in known:
            raise unknown("name in the table", old, known)
        known = {*known} - {old}
        if new in known:
            raise UsageError(f"--rename {text}: expected a name that is not in the table")
        known.add(new)
        whole = re.compile(rf"(?<![\w:/.-]){re.escape(old)}(?![\w/-]|[:.]\w)")

        def write(text: str, whole: re.Pattern[str] = whole, new: str = new) -> str:
            end = text.find(": ") if text.startswith(MADE_BY) else len(text)  # a command follows
            return whole.sub(lambda _: new, text[:end]) + text[end:]

        sheet = replace(
            sheet,
            header=list(map(write, sheet.header)),
            body=[list(map(write, cells)) for cells in sheet.body],
            notes=list(map(write, sheet.notes)),
        )
    return sheet


def make_sheet(
    columns: Sequence[Column[Row]], rows: Sequence[Row], hidden: Collection[str] = ()
) -> Sheet:
    """The table of text of rows, without notes and without the columns of ``hidden`` headings."""
    texts: dict[str, list[str]] = {}
    for column in columns:
        if column.heading and column.heading not in hidden:
            own = [column.text(column.of(row)) for row in rows]
            if not column.optional or set(own) != {NONE}:
                texts[column.heading] = own
    return Sheet(list(texts), [list(cells) for cells in zip(*texts.values(), strict=True)])


def select(sheet: Sheet, columns: Sequence[str], names: Sequence[str] = ()) -> Sheet:
    """The columns with these headings, in this order, after others of ``names``; no best cells.

    Small letters name a heading too, and its last word, such as "interval".

    Raises:
        UsageError: the table has no such column, or it is named twice.
    """
    named = {heading.split()[-1].lower(): place for place, heading in enumerate(sheet.header)}
    for place, heading in enumerate(sheet.header):
        named |= {heading.lower(): place}
    places = []
    for name in columns:
        if name.strip().lower() not in named:
            headings = [heading.split()[-1].lower() for heading in sheet.header]
            raise unknown("column of the table", name.strip(), headings)
        places.append(named[name.strip().lower()])
    if len({*places}) < len(places):
        raise UsageError(f"--columns {','.join(columns)}: expected every column once")
    places = [at for at in map(sheet.header.index, names) if at not in places] + places
    header, *body = [[cells[at] for at in places] for cells in (sheet.header, *sheet.body)]
    return replace(sheet, header=header, body=body, best=frozenset())


def records(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[Json]:
    """The values of rows by the keys of columns, in full precision."""
    return [{each.key: each.of(row) for each in columns if each.key} for row in rows]


def interval_text(ends: tuple[float, float], write: Callable[[float], str]) -> str:
    """An interval as "[low, high]"; a dash if there is none."""
    low, high = ends
    return NONE if math.isnan(low) else f"[{write(low)}, {write(high)}]"


def nan_last(value: float) -> float:
    """The key that sorts missing numbers to the end."""
    return math.inf if math.isnan(value) else value


def export(sheet: Sheet, rows: Sequence[Json], format_: str, paper: Paper | None = None) -> str:
    """A table as markdown, latex, csv or json; the last two have the values of ``rows``."""
    match format_:
        case "markdown":
            return as_markdown(sheet)
        case "latex":
            return as_latex(sheet, paper)
        case "csv":
            return as_csv(rows)
        case _:
            return as_text({"rows": rows, "footnotes": sheet.notes})


def as_markdown(sheet: Sheet) -> str:
    """A Markdown table followed by its notes as a list."""
    from tabulate import tabulate

    align = ["left" if name in TEXTS else "right" for name in sheet.header]
    header, *body = [[*map(markdown, cells)] for cells in (sheet.header, *sheet.body)]
    # As DataFrame.to_markdown does; the plugin of pytest does without pandas.
    table = tabulate(body, header, "pipe", disable_numparse=True, colalign=align if body else None)
    return "\n".join([table, "", *(f"- {markdown(note)}" for note in sheet.notes), ""])


def as_latex(sheet: Sheet, paper: Paper | None = None) -> str:
    """A table and its notes for LaTeX with the package booktabs.

    A table that is longer than a page is a longtable. Any other is a tabular, which may stand in a
    float or a column.
    """
    import pandas as pd

    paper = paper or Paper()
    lines = sum(max(text.count("\n") + 1 for text in cells) for cells in sheet.body)
    long = lines > PAGE_LINES
    body = [
        [_latex_cell(text, (row, column) in sheet.best) for column, text in enumerate(cells)]
        for row, cells in enumerate(sheet.body)
    ]
    groups = sheet.header[0] in {*TEXTS} - {"Algorithm"} or any(
        "\n" in text for row in sheet.body for text in row
    )
    for row in range(1, len(body)):  # rows of one environment stand together
        begins = len(body) - row == sheet.separated or groups
        if begins and sheet.body[row][0] != sheet.body[row - 1][0]:
            rule = r"\midrule" if len(body) - row == sheet.separated else r"\addlinespace"
            body[row][0] = f"{rule}\n{body[row][0]}"
    align = "".join("l" if name in TEXTS else "r" for name in sheet.header)
    frame = pd.DataFrame(body, columns=[latex(name) for name in sheet.header], dtype=str)
    notes = [latex(note).replace("/", r"/\allowbreak{}") for note in sheet.notes]
    naming = _naming(paper, notes)
    table = frame.to_latex(index=False, escape=False, longtable=long, column_format=align)
    below = [rf"\noindent {note}\par" for note in notes if paper.notes == "below"]
    below = [r"\raggedright", *below] if below else []
    if long:
        named = table.rstrip().replace("\n", f"\n{naming} \\\\\n", 1) if naming else table.rstrip()
        return "\n".join([_LONG_HEAD, named, *below, r"\endgroup", ""])
    if naming:
        packages = _LATEX_HEAD.splitlines()[:2]
        floating = [r"\begin{table}[t]", rf"\centering{_STYLE}", naming, table.rstrip()]
        gap = [r"\par\smallskip"] * bool(below)
        return "\n".join([*packages, *floating, *gap, *below, r"\end{table}", ""])
    placed = f"\\begin{{center}}\n{table}\\end{{center}}"
    return "\n".join([_LATEX_HEAD, placed, *below, r"\endgroup", ""])


def _naming(paper: Paper, notes: Sequence[str]) -> str:
    """The caption and the label; all texts of a caption but the last end with a period."""
    added = notes if paper.notes == "caption" else []
    texts = [*[latex(paper.caption)] * bool(paper.caption), *added]
    ended = [each if each.endswith((".", "?", "!", ":")) else f"{each}." for each in texts[:-1]]
    caption = rf"\caption{{{' '.join([*ended, *texts[-1:]])}}}" if texts else ""
    return caption + (rf"\label{{{latex_label(paper.label)}}}" if paper.label else "")


def latex_label(text: str) -> str:
    """A label for references; UsageError if it has characters that LaTeX does not take there."""
    if re.search(r"[\\{}%#~$&^\s]", text):
        raise UsageError(f"--label {text}: expected letters, digits and :-_., such as tab:scores")
    return text


def as_csv(rows: Sequence[Json] | pd.DataFrame) -> str:
    """Rows of values by column as CSV, in full precision; NaN is empty."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    return frame.map(csv).rename(columns=csv).to_csv(index=False)


def _latex_cell(text: str, bold: bool) -> str:
    """LaTeX source for a cell; a second line is smaller and never bold."""
    first, *below = map(latex, text.split("\n"))
    score = rf"\textbf{{{first}}}" if bold else first
    if not below:
        return score
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{score}\\\scriptsize {below[0]}\end{{tabular}}"
