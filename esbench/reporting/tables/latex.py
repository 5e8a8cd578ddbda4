"""Tables in LaTeX: escaped text, booktabs' rules, no wider than a line and no longer than a page.

Needs the packages booktabs and graphicx, and compiles with pdfTeX in its default encoding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

# Of the standard article class with letters of 10 points, whose page is the smallest in use.
PAGE: Final = 46  # lines
WIDTH: Final = 80  # characters in a line, at most
GAP: Final = 1.5  # characters between columns
SMALL: Final = 0.7  # of the size of letters
SPACE: Final = r"\addlinespace"
RULE: Final = r"\midrule"
NOTE_LINE: Final = 0.8  # of a line
NOTE_WIDTH: Final = 80  # characters, at least
HEAD: Final = 2  # lines: rules, and the space below

_GREEK: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "φ": "phi", "χ": "chi", "ω": "omega", "Δ": "Delta", "Σ": "Sigma",
}  # fmt: skip
_BREAK: Final = "\0"
_SCRIPT: Final = r"\scriptsize"
_SYMBOLS: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after \\ it would begin an optional argument
    "]": "{]}",
    "--": "-{}-",  # no ligature: options of commands begin so
    _BREAK: r"\allowbreak{}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    **{letter: rf"\ensuremath{{\{name}}}" for letter, name in _GREEK.items()},
}
# What pdfTeX sets in its default encoding, beside ASCII.
_LETTERS: Final = frozenset(
    "¡¢£¥¦§¨©ª¬®¯°±²³´µ¶·¸¹º¼½¾¿×÷†‡–—‘’“”…€™•"
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ"
    "ĀāĂăĆćĈĉĊċČčĎďĒēĔĕĖėĚěĜĝĞğĠġĢģĤĥĨĩĪīĬĭİıĴĵĶķĹĺĻļĽľŁłŃńŅņŇňŌōŎŏŐőŒœŔŕŖŗŘřŚśŜŝŞşŠšŢţŤťŨũŪū"
    "ŬŭŮůŰűŴŵŶŷŸŹźŻżŽž"
)
_ASCII: Final = "".join(key for key in _SYMBOLS if key.isascii() and key != "--")
_SPECIAL: Final = re.compile(rf"--|[^ -~]|[{re.escape(_ASCII)}]")
_MINUS: Final = re.compile(r"(?:(?<!\S)|(?<=\[))-(?=\d)")
_LONG_WORD: Final = re.compile(r"\S{25,}")
_COMMAND: Final = re.compile(r"\\[a-zA-Z]+|[\\{}$]")
_BREAKABLE: Final = re.compile(r"[/=,;:._-]+(?=\S)|[^\s/=,;:._-]{20}(?=\S)")


@final
@dataclass(frozen=True)
class Tabular:
    r"""One table; all texts are LaTeX.

    Attributes:
        columns: as in ``\begin{tabular}{lrr}``.
        head: lines of cells.
        body: rows, each of one or more lines of cells.
        above: what stands above a row, by its index, as a rule; nothing does at the top of a page.
    """

    columns: str
    head: Sequence[Sequence[str]]
    body: Sequence[Sequence[Sequence[str]]]
    above: Mapping[int, str] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class _Piece:
    """What stays on one page: LaTeX, and its height in lines."""

    text: str
    height: float
    is_note: bool = False


def escape(text: str) -> str:
    """Return a text as LaTeX; a character that pdfTeX does not know becomes its number, U+1F600."""
    return "$-$".join(_SPECIAL.sub(_symbol, part) for part in _MINUS.split(text))


def small(text: str) -> str:
    """Return LaTeX in smaller letters."""
    return rf"{{{_SCRIPT} {text}}}" if text else ""


def bold(text: str) -> str:
    """Return LaTeX in bold letters, minus signs included."""
    return rf"\textbf{{\boldmath {text}}}"


def underlined(text: str) -> str:
    """Return underlined LaTeX."""
    return rf"\underline{{{text}}}"


def floats(tables: Sequence[Tabular], notes: Sequence[str]) -> str:
    """Return tables and the notes below them, as many floats as they need pages.

    A table wider than a line is scaled to it.

    Args:
        tables: one below the other.
        notes: plain texts.
    """
    pieces = [piece for table in tables for piece in _tabulars(table)]
    for note in notes:
        height = math.ceil(len(note) / NOTE_WIDTH) * NOTE_LINE
        pieces.append(_Piece(_note(note), height, is_note=True))
    lines = [line for page in _pages(pieces) for line in _float(page)]
    return "\n".join([r"% \usepackage{booktabs, graphicx}", *lines, ""])


def _tabulars(table: Tabular) -> list[_Piece]:
    """Return a table as one piece, or as several of the same head if it is longer than a page."""
    line = WIDTH / max(WIDTH, _width(table))  # its height, once the table is scaled
    head = len(table.head) + HEAD
    parts: list[list[str]] = [[]]
    for number, row in enumerate(table.body):
        if (len(parts[-1]) + len(row) + head) * line > PAGE:
            parts.append([])
        if parts[-1] and number in table.above:
            parts[-1].append(table.above[number])
        parts[-1] += map(_line, row)
    return [_Piece(_tabular(table, part), (len(part) + head) * line) for part in parts]


def _width(table: Tabular) -> float:
    """Return the width of a table in characters, as far as it can be told without its font."""
    lines = [*table.head, *(line for row in table.body for line in row)]
    columns = zip(*lines, strict=True)
    return sum(max(map(_characters, cells)) + GAP for cells in columns)


def _characters(cell: str) -> float:
    return len(_COMMAND.sub("", cell)) * (SMALL if _SCRIPT in cell else 1)


def _tabular(table: Tabular, lines: Sequence[str]) -> str:
    """Return a table, scaled where it is wider than a line."""
    return "\n".join(
        [
            rf"\sbox0{{\begin{{tabular}}{{{table.columns}}}",
            r"\toprule",
            *map(_line, table.head),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi\par\medskip",
        ]
    )


def _pages(pieces: Iterable[_Piece]) -> list[list[_Piece]]:
    """Return pieces by pages, in their order."""
    pages: list[list[_Piece]] = [[]]
    for piece in pieces:
        if pages[-1] and sum(other.height for other in pages[-1]) + piece.height > PAGE:
            pages.append([])
        pages[-1].append(piece)
    return pages


def _float(page: Sequence[_Piece]) -> list[str]:
    """Return the lines of one page."""
    notes = [piece.text for piece in page if piece.is_note]
    small = r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
    return [
        r"\begin{table}",
        r"\centering\setlength{\tabcolsep}{4pt}",
        *(piece.text for piece in page if not piece.is_note),
        *([small, *notes, r"\end{minipage}"] if notes else ()),
        r"\end{table}",
    ]


def _note(text: str) -> str:
    """Return a paragraph, in which words as long as paths may break."""
    breakable = _LONG_WORD.sub(
        lambda word: _BREAKABLE.sub(lambda part: part[0] + _BREAK, word[0]), text
    )
    return escape(breakable) + r"\par"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _symbol(match: re.Match[str]) -> str:
    found = match[0]
    if found in _SYMBOLS:
        return _SYMBOLS[found]
    return found if found in _LETTERS else f"U+{ord(found):04X}"
