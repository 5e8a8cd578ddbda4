"""A wide table, as papers print it: a row an algorithm, a column an environment.

It has the scores of ``tables`` and what they mean; steps and seeds go into its footnotes, and
times are left to the long table.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from esbench.analysis.comparison import Standing
from esbench.errors import UsageError
from esbench.reporting.tables import latex
from esbench.reporting.tables import render_table as layout
from esbench.reporting.tables.render_table import Sheet, makers_notes
from esbench.reporting.tables.score_table import (
    MARKS,
    PROTOCOL,
    ScoreRow,
    cautions,
    normalized_scores,
    reference_text,
    references_of,
    standings_note,
)
from esbench.reporting.tables.summary import Overall, interval, overall
from esbench.units import NONE, format_number, format_share, format_steps

if TYPE_CHECKING:
    from rich.table import Table as RichTable

FORMATS: Final = ("text", "markdown", "latex")
ALGORITHM: Final = "Algorithm"
ACROSS: Final = "Normalized IQM"
RANDOM: Final = "random policy"
REFERENCE: Final = "reference"
NOT_COMPARABLE: Final = "\N{DAGGER}"
NAME_WIDTH: Final = 24  # characters of an algorithm's name in a line of a terminal
LATEX_WIDTH: Final = 110  # characters, the most that are legible when scaled to a line
MOST_EXCEPTIONS: Final = 4


@final
@dataclass(frozen=True)
class Entry:
    """What stands where a row and a column meet: texts, and the score's standing in the column."""

    score: str
    interval: str = ""
    standing: Standing = ""

    @property
    def marked(self) -> str:
        """The score with the mark of its standing."""
        return self.score + MARKS[self.standing]


@final
@dataclass(frozen=True)
class Line:
    """A row: an algorithm with its policy, or what scores are read against."""

    name: str
    entries: tuple[Entry, ...]


@final
@dataclass(frozen=True)
class WideTable:
    """A wide table.

    Attributes:
        columns: environments and, if algorithms can be compared over all of them, ``ACROSS``.
        lines: of the algorithms, the best first.
        frozen: of the random policy and the reference, if an environment has them.
        rows: what it was made of.
    """

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    frozen: tuple[Line, ...]
    rows: tuple[ScoreRow, ...]


def require_wide(format_: str) -> None:
    """Refuse formats for programs, which have a line for each environment and algorithm.

    Raises:
        UsageError: names the format and those that can be wide.
    """
    if format_ not in FORMATS:
        raise UsageError(
            f"--wide with --format {format_}: expected one of {', '.join(FORMATS)}; for programs "
            "there is a line for each environment and algorithm, without --wide"
        )


def wide_table(rows: Sequence[ScoreRow]) -> WideTable:
    """Return the rows of ``score_table`` as a wide table.

    The best is first by its IQM over all environments, those without one behind, by the mean of
    their ranks in each.
    """
    environments = list(dict.fromkeys(row.environment for row in rows))
    across = {item.name: item for item in overall(normalized_scores(rows))}
    found = {(row.name, row.environment): row for row in rows}
    names = dict.fromkeys(row.name for row in rows)
    ranks = {name: _mean_rank(name, environments, found) for name in names}
    order = sorted(names, key=lambda n: (-across[n].iqm if n in across else math.inf, ranks[n], n))
    lines = []
    for name in order:
        entries = [_entry(found.get((name, environment))) for environment in environments]
        lines.append(Line(name, (*entries, *([_summed_up(across.get(name))] if across else ()))))
    return WideTable(
        columns=(*environments, *([ACROSS] if across else ())),
        lines=tuple(lines),
        frozen=_frozen(rows, environments, bool(across)),
        rows=tuple(rows),
    )


def footnotes(table: WideTable, best: str = "*", tied: str = "=") -> list[str]:
    """Return the sentences below a table: how to read it, what to beware of, and who made it.

    ``best`` and ``tied`` say how scores of these standings are marked.
    """
    rows = table.rows
    notes = [PROTOCOL]
    if any(row.standing for row in rows):
        notes.append(standings_note(best, tied))
    notes += [_order_note(table), _seeds_note(rows), *_steps_notes(rows), *cautions(rows)]
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    if any(NOT_COMPARABLE in entry.score for line in table.frozen for entry in line.entries):
        notes.append(f"{NOT_COMPARABLE}: not comparable, for the reason given.")
    notes += makers_notes([(f"{row.name} on {row.environment}", row.commands) for row in rows])
    return [" ".join(note.split()) for note in notes if note]


def as_markdown(table: WideTable) -> str:
    """Return a Markdown table with its notes."""
    body = [
        [line.name, *(f"{entry.marked} {entry.interval}".strip() for entry in line.entries)]
        for line in (*table.lines, *table.frozen)
    ]
    return layout.as_markdown(Sheet([ALGORITHM, *table.columns], body, footnotes(table)))


def as_latex(table: WideTable) -> str:
    """Return a LaTeX table with its notes: best in bold, tied underlined, intervals below.

    More environments than a line has room for stand in tables below each other. It needs the
    packages booktabs and graphicx.
    """
    tables = [_tabular(table, block) for block in _blocks(table, LATEX_WIDTH)]
    return latex.floats(tables, footnotes(table, "Bold", "Underlined"))


def rich_tables(table: WideTable, width: int) -> list[RichTable]:
    """Return a table for a terminal, without its notes; in pieces if it is wider than ``width``."""
    return [_rich(table, block) for block in _blocks(table, width)]


def _mean_rank(
    name: str, environments: Sequence[str], found: dict[tuple[str, str], ScoreRow]
) -> float:
    """Return the mean over environments of a row's rank there: ties shared, none is last."""
    total = 0.0
    for environment in environments:
        scores = [row.score for (_, other), row in found.items() if other == environment]
        row = found.get((name, environment))
        score = math.nan if row is None else row.score
        above = sum(other > score for other in scores) + sum(other == score for other in scores) / 2
        total += len(scores) if math.isnan(score) else above
    return total / len(environments)


def _entry(row: ScoreRow | None) -> Entry:
    if row is None or math.isnan(row.score):
        return Entry(NONE)
    ends = f"[{format_number(row.low)}, {format_number(row.high)}]"
    return Entry(format_number(row.score), "" if math.isnan(row.low) else ends, row.standing)


def _summed_up(item: Overall | None) -> Entry:
    if item is None:
        return Entry(NONE)
    return Entry(format_share(item.iqm), interval(item).strip())


def _frozen(
    rows: Sequence[ScoreRow], environments: Sequence[str], summed_up: bool
) -> tuple[Line, ...]:
    """Return the lines of frozen scores; an environment has those that hold for all its rows."""
    references = references_of(rows)
    lines = []
    for name, text, across in ((RANDOM, _random, "0.00"), (REFERENCE, _reference, "1.00")):
        entries = []
        for environment in environments:
            texts = {text(row, references) for row in rows if row.environment == environment}
            entries.append(Entry(texts.pop() if len(texts) == 1 else NONE))
        if any(entry.score != NONE for entry in entries):
            lines.append(Line(name, (*entries, *([Entry(across)] if summed_up else ()))))
    return tuple(lines)


def _random(row: ScoreRow, _: dict[str, int]) -> str:
    return format_number(row.random_score)


def _reference(row: ScoreRow, references: dict[str, int]) -> str:
    if not row.reference_method:
        return NONE
    flag = "" if row.reference_comparable else NOT_COMPARABLE
    return f"{format_number(row.reference_score)}{flag} [{references[reference_text(row)]}]"


def _order_note(table: WideTable) -> str:
    """Return in which order the rows stand and, if there is one, what the last column is of."""
    if ACROSS not in table.columns:
        return "Rows: by the mean of their ranks." if len(table.columns) > 1 else ""
    scaled = {row.environment for row in table.rows if not math.isnan(row.normalized)}
    rest = [name for name in table.columns[:-1] if name not in scaled]
    without = f", without {', '.join(rest)}" if rest else ""
    return (
        f"{ACROSS}: over all runs of {len(scaled)} environments{without}, where 0 is the random "
        "policy and 1 the reference, with its 95 % stratified percentile bootstrap interval. The "
        "best is first."
    )


def _seeds_note(rows: Sequence[ScoreRow]) -> str:
    seeds = Counter(row.seeds for row in rows if row.seeds)
    if not seeds:
        return ""
    usual = max(seeds, key=lambda count: (seeds[count], count))
    others = [row for row in rows if row.seeds not in (0, usual)]
    if len(others) > MOST_EXCEPTIONS:
        return (
            f"Seeds: {min(seeds)} to {max(seeds)}; the table that is not wide says how many where."
        )
    exceptions = "".join(f", {row.seeds} of {row.name} on {row.environment}" for row in others)
    return f"Seeds: {usual} each{exceptions}."


def _steps_notes(rows: Sequence[ScoreRow]) -> list[str]:
    """Return how long training was in each environment; alike environments are named once."""
    environments: dict[str, list[str]] = {}
    for environment, members in itertools.groupby(rows, key=lambda row: row.environment):
        steps = [row.env_steps for row in members if not math.isnan(row.env_steps)]
        if steps:
            ends = dict.fromkeys(format_steps(end) for end in (min(steps), max(steps)))
            environments.setdefault(" to ".join(ends), []).append(environment)
    texts = [f"{text} ({', '.join(names)})" for text, names in environments.items()]
    if len(environments) == 1:
        texts = list(environments)
    return [f"Steps of training, mean over seeds: {'; '.join(texts)}."] if texts else []


def _widths(table: WideTable) -> list[int]:
    """Return the width of each column, in characters, with its interval below the score."""
    widths = []
    for index, name in enumerate(table.columns):
        entries = [line.entries[index] for line in (*table.lines, *table.frozen)]
        texts = [text for entry in entries for text in (entry.marked, entry.interval)]
        widths.append(max(map(len, (*texts, *_wrapped(name, max(map(len, texts), default=0))))))
    return widths


def _blocks(table: WideTable, width: int) -> list[list[int]]:
    """Return the columns in as few blocks as fit into ``width`` characters beside the names.

    Blocks are as equal in width as can be.
    """
    names = [ALGORITHM, *(line.name for line in (*table.lines, *table.frozen))]
    room = width - min(NAME_WIDTH, max(map(len, names)))
    columns = [1 + column for column in _widths(table)]
    blocks = _packed(columns, room)
    while room > 0 and len(narrower := _packed(columns, room - 1)) == len(blocks):
        blocks, room = narrower, room - 1
    return blocks


def _packed(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return indices in blocks of at most ``room``, or of one that is wider."""
    blocks: list[list[int]] = [[]]
    for index, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] for other in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(index)
    return blocks


def _heads(table: WideTable, block: Sequence[int]) -> list[list[str]]:
    """Return the names of columns, each in as many lines as its width asks for."""
    widths = _widths(table)
    return [_wrapped(table.columns[index], widths[index]) for index in block]


def _wrapped(name: str, width: int) -> list[str]:
    """Return a name in lines of at most ``width`` characters, or of one word if that is longer."""
    lines = [""]
    for word in re.findall(r"[A-Z]*[^A-Z/_ -]*(?:-v\d+$|[/_ -])?", name):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.strip() for line in lines]


def _tabular(table: WideTable, block: Sequence[int]) -> latex.Tabular:
    heads = _heads(table, block)
    height = max(map(len, heads))
    columns = [[""] * (height - len(head)) + head for head in heads]
    first = [""] * (height - 1) + [ALGORITHM]
    body = []
    for line in (*table.lines, *table.frozen):
        entries = [line.entries[index] for index in block]
        scores = [latex.escape(line.name), *map(_latex_score, entries)]
        intervals = ["", *(latex.small(latex.escape(entry.interval)) for entry in entries)]
        body.append([scores, intervals] if any(intervals) else [scores])
    above = {number: latex.SPACE for number, row in enumerate(body) if len(row) > 1}
    return latex.Tabular(
        columns="l" + "r" * len(block),
        head=[list(map(latex.escape, cells)) for cells in zip(first, *columns, strict=True)],
        body=body,
        above=above | {len(table.lines): latex.RULE},
    )


def _latex_score(entry: Entry) -> str:
    score = latex.escape(entry.score)
    match entry.standing:
        case "best":
            return latex.bold(score)
        case "tied":
            return latex.underlined(score)
        case _:
            return score


def _rich(table: WideTable, block: Sequence[int]) -> RichTable:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    result.add_column(ALGORITHM, overflow="fold", max_width=NAME_WIDTH)
    for head in _heads(table, block):
        result.add_column("\n".join(head), justify="right", no_wrap=True, overflow="fold")
    for number, line in enumerate((*table.lines, *table.frozen)):
        if number == len(table.lines):
            result.add_section()
        cells = []
        for entry in (line.entries[index] for index in block):
            style = "bold" if entry.standing == "best" else ""
            below = (f"\n{entry.interval}", "dim") if entry.interval else ""
            cells.append(Text.assemble((entry.marked, style), below))
        result.add_row(Text(line.name), *cells)
    return result
