"""The wide score table, as in papers: one row per algorithm, one column per environment.

Steps and seeds are in its footnotes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from esbench.errors import UsageError
from esbench.reporting.tables.footnotes import command_notes
from esbench.reporting.tables.render_table import Sheet
from esbench.reporting.tables.score_table import (
    MARKS,
    PROTOCOL,
    STANDINGS,
    ScoreRow,
    cautions,
    normalized_scores,
    reference_text,
    references_of,
)
from esbench.reporting.tables.summary import interval, overall
from esbench.units import NONE, format_number, format_share, format_steps

FORMATS: Final = ("text", "markdown", "latex")
ACROSS: Final = "Normalized IQM"
RANDOM: Final = "random policy"
REFERENCE: Final = "reference"
NOT_COMPARABLE: Final = "\N{DAGGER}"
MOST_EXCEPTIONS: Final = 4


def require_wide(format_: str) -> None:
    """Refuse the formats for programs, which always have one row per environment and algorithm.

    Raises:
        UsageError: the format cannot be wide.
    """
    if format_ not in FORMATS:
        raise UsageError(
            f"--wide with --format {format_}: expected one of {', '.join(FORMATS)}; "
            f"{format_} has one row per environment and algorithm, without --wide"
        )


def wide_sheet(rows: Sequence[ScoreRow]) -> Sheet:
    """The rows of ``score_table`` as a wide table.

    The algorithm with the best IQM over all environments is first. Algorithms without one follow,
    by the mean of their ranks. The last rows are the random policy and the reference.
    """
    environments = list(dict.fromkeys(row.environment for row in rows))
    across = {item.name: item for item in overall(normalized_scores(rows))}
    found = {(row.name, row.environment): row for row in rows}
    ranks = {row.name: _mean_rank(row.name, environments, found) for row in rows}
    order = sorted(ranks, key=lambda n: (-across[n].iqm if n in across else math.inf, ranks[n], n))
    body = [[name, *(_score(found.get((name, key))) for key in environments)] for name in order]
    published = _published(rows, environments)
    if across:
        for cells in body:
            item = across.get(cells[0])
            text = item and f"{format_share(item.iqm)}\n{interval(item).strip()}".rstrip()
            cells.append(text or NONE)
        for cells in published:
            cells.append("0.00" if cells[0] == RANDOM else "1.00")
    best = frozenset(
        (order.index(row.name), environments.index(row.environment) + 1)
        for row in rows
        if row.standing == "best"
    )
    header = ["Algorithm", *environments, *([ACROSS] if across else [])]
    notes = _footnotes(rows, _order_note(rows, environments, bool(across)))
    if any(NOT_COMPARABLE in text for cells in published for text in cells):
        notes.append(f"{NOT_COMPARABLE}: not comparable, for the reason given.")
    notes += command_notes(rows)
    return Sheet(header, [*body, *published], notes, best, separated=len(published))


def _mean_rank(
    name: str, environments: Sequence[str], found: Mapping[tuple[str, str], ScoreRow]
) -> float:
    """The mean rank of an algorithm over environments: ties share it, a missing score is last."""
    total = 0.0
    for environment in environments:
        scores = [row.score for (_, other), row in found.items() if other == environment]
        row = found.get((name, environment))
        score = math.nan if row is None else row.score
        above = sum(other > score for other in scores) + sum(other == score for other in scores) / 2
        total += len(scores) if math.isnan(score) else above
    return total / len(environments)


def _score(row: ScoreRow | None) -> str:
    """The score with its mark; its interval, if it has one, is on a second line."""
    if row is None or math.isnan(row.score):
        return NONE
    score = format_number(row.score) + MARKS[row.standing]
    if math.isnan(row.low):
        return score
    return f"{score}\n[{format_number(row.low)}, {format_number(row.high)}]"


def _published(rows: Sequence[ScoreRow], environments: Sequence[str]) -> list[list[str]]:
    """The rows of the random policy and the reference; empty rows are left out.

    A score is shown if it applies to all rows of its environment.
    """
    references = references_of(rows)

    def reference(row: ScoreRow) -> str:
        if not row.reference_method:
            return NONE
        mark = "" if row.reference_comparable else NOT_COMPARABLE
        return f"{format_number(row.reference_score)}{mark} [{references[reference_text(row)]}]"

    lines = []
    for name, text in (
        (RANDOM, lambda row: format_number(row.random_score)),
        (REFERENCE, reference),
    ):
        texts = [{text(row) for row in rows if row.environment == key} for key in environments]
        cells = [found.pop() if len(found) == 1 else NONE for found in texts]
        if set(cells) != {NONE}:
            lines.append([name, *cells])
    return lines


def _footnotes(rows: Sequence[ScoreRow], order: str) -> list[str]:
    """How to read the table, its seeds and steps, cautions and references."""
    notes = [PROTOCOL]
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += [order, _seeds_note(rows), _steps_note(rows), *cautions(rows)]
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    return [" ".join(note.split()) for note in notes if note]


def _order_note(rows: Sequence[ScoreRow], environments: Sequence[str], across: bool) -> str:
    """How the rows are sorted and, if there is one, what the last column shows."""
    if not across:
        return "Rows: sorted by the mean of their ranks." if len(environments) > 1 else ""
    scaled = {row.environment for row in rows if not math.isnan(row.normalized)}
    rest = [name for name in environments if name not in scaled]
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
        return f"Seeds: {min(seeds)} to {max(seeds)}; without --wide, the table has them per row."
    exceptions = "".join(f", {row.seeds} of {row.title}" for row in others)
    return f"Seeds: {usual} each{exceptions}."


def _steps_note(rows: Sequence[ScoreRow]) -> str:
    """The length of training in each environment; environments with equal lengths are grouped."""
    groups: dict[str, list[str]] = {}
    for environment, members in itertools.groupby(rows, key=lambda row: row.environment):
        steps = [row.env_steps for row in members if not math.isnan(row.env_steps)]
        if steps:
            ends = dict.fromkeys(format_steps(end) for end in (min(steps), max(steps)))
            groups.setdefault(" to ".join(ends), []).append(environment)
    if not groups:
        return ""
    texts = [f"{text} ({', '.join(names)})" for text, names in groups.items()]
    listed = "; ".join(texts if len(groups) > 1 else groups)
    return f"Steps of training, mean over seeds: {listed}."
