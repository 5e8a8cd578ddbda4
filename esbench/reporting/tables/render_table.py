"""Tables of text with footnotes, and their export through pandas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from esbench.errors import unknown
from esbench.files import as_text

if TYPE_CHECKING:
    import pandas as pd

TEXTS: Final = ("Environment", "Algorithm", "Policy")
"""The columns of text, aligned to the left; the other columns hold numbers."""
INTERVAL: Final = "95 % interval"

_LATEX_HEAD: Final = r"""% \usepackage[T1]{fontenc}
% \usepackage{booktabs, longtable}
\begingroup\footnotesize\setlength{\tabcolsep}{3pt}
\setlength{\LTleft}{0pt plus 1fill minus 1fill}\setlength{\LTright}{\LTleft}"""


@final
@dataclass(frozen=True)
class Sheet:
    """A table of text.

    Attributes:
        header: the names of the columns.
        body: the cells of each row; a cell may have a second line, for the interval of its score.
        notes: the sentences below the table.
        best: (row, column) of the cells in bold.
        separated: the number of rows at the end that a rule separates from the others.
    """

    header: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str]
    best: frozenset[tuple[int, int]] = frozenset()
    separated: int = 0


def export(sheet: Sheet, rows: Sequence[Any], format_: str) -> str:
    """A table in one of the export formats.

    Args:
        sheet: the table for Markdown and LaTeX.
        rows: the dataclasses it was made of, for CSV and JSON: every field, in full precision.
        format_: markdown, latex, csv or json.

    Raises:
        UsageError: the format is unknown.
    """
    match format_:
        case "markdown":
            return as_markdown(sheet)
        case "latex":
            return as_latex(sheet)
        case "csv":
            return as_csv(rows)
        case "json":
            return as_json(rows, sheet.notes)
        case _:
            raise unknown("format", format_, ("markdown", "latex", "csv", "json"))


def as_markdown(sheet: Sheet) -> str:
    """A Markdown table followed by its notes as a list."""
    align = ["left" if name in TEXTS else "right" for name in sheet.header]
    frame = _frame(sheet.header, [[_markdown(text) for text in cells] for cells in sheet.body])
    table = frame.to_markdown(index=False, disable_numparse=True, colalign=align)
    return "\n".join([table, "", *(f"- {_markdown(note)}" for note in sheet.notes), ""])


def as_latex(sheet: Sheet) -> str:
    """A LaTeX table that breaks across pages, followed by its notes; the best scores are bold.

    Needs the packages booktabs and longtable.
    """
    body = [
        [_latex_cell(text, (row, column) in sheet.best) for column, text in enumerate(cells)]
        for row, cells in enumerate(sheet.body)
    ]
    for row in range(1, len(body)):  # rows of one environment stand together
        if sheet.body[row][0] != sheet.body[row - 1][0]:
            rule = r"\midrule" if len(body) - row == sheet.separated else r"\addlinespace"
            body[row][0] = f"{rule}\n{body[row][0]}"
    align = "".join("l" if name in TEXTS else "r" for name in sheet.header)
    frame = _frame([_latex(name) for name in sheet.header], body)
    table = frame.to_latex(index=False, escape=False, longtable=True, column_format=align)
    notes = (_latex(note).replace("/", r"/\allowbreak{}") for note in sheet.notes)
    lines = "\n".join(rf"\noindent {note}\par" for note in notes)
    return f"{_LATEX_HEAD}\n{table}\\raggedright\n{lines}\n\\endgroup\n"


def as_csv(rows: Sequence[Any]) -> str:
    """Every field of some dataclasses as CSV, in full precision; NaN is empty."""
    import pandas as pd

    frame = pd.DataFrame([vars(row) for row in rows])
    joined = frame.map(lambda value: "; ".join(map(str, value)) if type(value) is tuple else value)
    return joined.to_csv(index=False)


def as_json(rows: Sequence[Any], notes: Sequence[str]) -> str:
    """``rows``, with every field of some dataclasses in full precision, and ``footnotes``."""
    return as_text({"rows": [asdict(row) for row in rows], "footnotes": notes})


def _frame(header: Sequence[str], body: Sequence[Sequence[str]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(body), columns=list(header), dtype=str)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


def _latex_cell(text: str, bold: bool) -> str:
    """LaTeX source for a cell; a second line is smaller and never bold."""
    first, *below = map(_latex, text.split("\n"))
    score = rf"\textbf{{{first}}}" if bold else first
    if not below:
        return score
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{score}\\\scriptsize {below[0]}\end{{tabular}}"


def _latex(text: str) -> str:
    """LaTeX source for a text."""
    from pylatexenc.latexencode import unicode_to_latex

    minus = re.sub(r"(?<![^\s\[])-(?=\d)", "\N{MINUS SIGN}", text)
    source: str = unicode_to_latex(minus, unknown_char_policy="unihex", unknown_char_warning=False)
    # After a row a bracket would start an argument; "--" and "|" would become dashes.
    for special, escaped in {"[": "{[}", "--": "-{}-", "|": r"\textbar{}"}.items():
        source = source.replace(special, escaped)
    return source
