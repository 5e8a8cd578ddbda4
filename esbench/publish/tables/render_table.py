"""Tables of text with footnotes, and their export through pandas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from esbench.core.escape import latex, markdown
from esbench.core.json_text import as_text
from esbench.results.held_out import Variety
from esbench.results.statistics.estimates import MIN_RUNS

if TYPE_CHECKING:
    import pandas as pd

TEXTS: Final = ("Environment", "Algorithm", "Policy")
"""The columns of text, aligned to the left; the other columns hold numbers."""
INTERVAL: Final = "95 % interval"
FEW_SEEDS: Final = 10
NARROW_BELOW: Final = 6  # seeds: intervals of fewer cover too little
ONE_EPISODE: Final = (
    "every held-out episode is the same one, because the environment is deterministic. The score "
    "is that of one trajectory, which a policy can memorize."
)
EQUAL_EPISODES: Final = (
    "all held-out episodes of a seed have the same return and length. If 'esbench plan' calls the "
    "environment deterministic, they are one trajectory, which a policy can memorize."
)

PAGE_LINES: Final = 45  # of a page of LaTeX
_LATEX_HEAD: Final = r"""% \usepackage[T1]{fontenc}
% \usepackage{booktabs}
\begingroup\footnotesize\setlength{\tabcolsep}{3pt}"""
_LONG_HEAD: Final = rf"""{_LATEX_HEAD.replace("booktabs", "booktabs, longtable")}
\setlength{{\LTleft}}{{0pt plus 1fill minus 1fill}}\setlength{{\LTright}}{{\LTleft}}"""


@final
@dataclass(frozen=True)
class Sheet:
    """A table of text with notes below it.

    A cell of ``body`` may have a second line, for the interval of its score. ``best`` holds the
    (row, column) of the cells in bold; a rule separates the last ``separated`` rows.
    """

    header: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str]
    best: frozenset[tuple[int, int]] = frozenset()
    separated: int = 0


def nan_last(value: float) -> float:
    """The key that sorts missing numbers to the end."""
    return math.inf if math.isnan(value) else value


def seeds_notes(seeds: Sequence[int], *, best: bool = True) -> list[str]:
    """Cautions about rows with few seeds, from the number of seeds of each row.

    ``best``: the table marks the best row of every environment.
    """
    notes = []
    if any(count < FEW_SEEDS for count in seeds):
        notes.append(
            f"Some rows have fewer than {FEW_SEEDS} seeds: the order of close scores may be chance."
        )
    if any(MIN_RUNS <= count < NARROW_BELOW for count in seeds):
        notes.append(
            f"Bootstrap intervals of fewer than {NARROW_BELOW} seeds are too narrow: with 3, they "
            "cover about 75 % instead of 95 %."
        )
    if any(0 < count < MIN_RUNS for count in seeds):
        marks = ", and no row of their environment is marked as the best" if best else ""
        notes.append(f"Rows with fewer than {MIN_RUNS} seeds have no interval{marks}.")
    return notes


def settings_notes(differs: Mapping[str, Sequence[str]]) -> list[str]:
    """The settings that distinguish rows with the same labels, by the rows' titles."""
    return [f"{title}: {', '.join(settings)}" for title, settings in differs.items() if settings]


def variety_notes(rows: Mapping[str, Variety]) -> list[str]:
    """Which rows, by their titles, rest on held-out episodes that are all the same."""
    texts: dict[Variety, str] = {"one": ONE_EPISODE, "equal": EQUAL_EPISODES}
    found = {kind: [title for title, own in rows.items() if own == kind] for kind in texts}
    return [f"{', '.join(titles)}: {texts[kind]}" for kind, titles in found.items() if titles]


def command_notes(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """One note per command, with the titles of the rows it made unless it made all of them."""
    notes = []
    for command in dict.fromkeys(command for own in commands.values() for command in own):
        made = [title for title, own in commands.items() if command in own]
        which = "" if len(made) == len(commands) else f" ({', '.join(made)})"
        notes.append(f"Made by{which}: {command}")
    return notes


def export(sheet: Sheet, rows: Sequence[Any], format_: str) -> str:
    """A table as markdown, latex, csv or json; the last two have every field of its ``rows``."""
    match format_:
        case "markdown":
            return as_markdown(sheet)
        case "latex":
            return as_latex(sheet)
        case "csv":
            return as_csv(rows)
        case _:
            return as_json(rows, sheet.notes)


def as_markdown(sheet: Sheet) -> str:
    """A Markdown table followed by its notes as a list."""
    align = ["left" if name in TEXTS else "right" for name in sheet.header]
    frame = _frame(sheet.header, [[markdown(text) for text in cells] for cells in sheet.body])
    table = frame.to_markdown(index=False, disable_numparse=True, colalign=align)
    return "\n".join([table, "", *(f"- {markdown(note)}" for note in sheet.notes), ""])


def as_latex(sheet: Sheet) -> str:
    """A table and its notes for LaTeX with the package booktabs.

    A table that is longer than a page is a longtable. Any other is a tabular, which may stand in a
    float or a column.
    """
    lines = sum(max(text.count("\n") + 1 for text in cells) for cells in sheet.body)
    long = lines > PAGE_LINES
    body = [
        [_latex_cell(text, (row, column) in sheet.best) for column, text in enumerate(cells)]
        for row, cells in enumerate(sheet.body)
    ]
    for row in range(1, len(body)):  # rows of one environment stand together
        if sheet.body[row][0] != sheet.body[row - 1][0]:
            rule = r"\midrule" if len(body) - row == sheet.separated else r"\addlinespace"
            body[row][0] = f"{rule}\n{body[row][0]}"
    align = "".join("l" if name in TEXTS else "r" for name in sheet.header)
    frame = _frame([latex(name) for name in sheet.header], body)
    table = frame.to_latex(index=False, escape=False, longtable=long, column_format=align)
    notes = (latex(note).replace("/", r"/\allowbreak{}") for note in sheet.notes)
    below = "\n".join(rf"\noindent {note}\par" for note in notes)
    placed = table if long else f"\\begin{{center}}\n{table}\\end{{center}}\n"
    head = _LONG_HEAD if long else _LATEX_HEAD
    return f"{head}\n{placed}\\raggedright\n{below}\n\\endgroup\n"


def as_csv(rows: Sequence[Any]) -> str:
    """Every field of some dataclasses as CSV, in full precision; NaN is empty."""
    import pandas as pd

    frame = pd.DataFrame([vars(row) for row in rows])
    return frame.map(_cell_text).to_csv(index=False)


def _cell_text(value: Any) -> Any:
    """Several values in one cell of CSV."""
    match value:
        case tuple():
            return "; ".join(map(str, value))
        case dict():
            return "; ".join(f"{name} {text}" for name, text in value.items())
    return value


def as_json(rows: Sequence[Any], notes: Sequence[str]) -> str:
    """``rows``, with every field of some dataclasses in full precision, and ``footnotes``."""
    return as_text({"rows": [asdict(row) for row in rows], "footnotes": notes})


def _frame(header: Sequence[str], body: Sequence[Sequence[str]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(body), columns=list(header), dtype=str)


def _latex_cell(text: str, bold: bool) -> str:
    """LaTeX source for a cell; a second line is smaller and never bold."""
    first, *below = map(latex, text.split("\n"))
    score = rf"\textbf{{{first}}}" if bold else first
    if not below:
        return score
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{score}\\\scriptsize {below[0]}\end{{tabular}}"
