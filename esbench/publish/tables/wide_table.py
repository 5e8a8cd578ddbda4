"""The wide score table, as in papers: one row per algorithm, one column per environment."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from esbench.core.errors import UsageError
from esbench.core.units import NONE, format_number, format_share, format_steps
from esbench.publish.tables.across_environments import interval, normalized_scores, overall
from esbench.publish.tables.render_table import Sheet, command_notes
from esbench.publish.tables.score_sheet import (
    MARKS,
    STANDINGS,
    TAIL,
    cautions,
    protocol,
    reference_cell,
    references_of,
)
from esbench.publish.tables.score_table import ScoreRow
from esbench.results.statistics.estimates import EpisodeStatistic

ACROSS: Final = "Normalized IQM"
RANDOM: Final = "random policy"
REFERENCE: Final = "reference"
NOT_COMPARABLE: Final = "\N{DAGGER}"
MOST_EXCEPTIONS: Final = 4


def require_one_layout(
    wide: bool,
    by: str | None,
    which: Literal["last", "best"],
    statistic: EpisodeStatistic,
    tail: bool = False,
) -> None:
    """Raises UsageError for options of a table that exclude each other.

    A wide table is not sorted by a setting and has no selected scores. A table of tails has no
    other ones, which are mean returns.
    """
    given = {
        "--wide": wide,
        f"--by {by}": by is not None,
        "--which best": which == "best",
        f"--statistic {statistic}": statistic != "mean",
        "--tail": tail,
    }
    options = list(given)
    for first, second in ((0, 1), (0, 2), (2, 3), (3, 4)):
        if given[options[first]] and given[options[second]]:
            raise UsageError(f"{options[first]} with {options[second]}: expected one of them")


def wide_sheet(rows: Sequence[ScoreRow], *, tail: bool = False) -> Sheet:
    """The rows of ``score_table`` as a wide table, by the IQM over all environments.

    Below a score is its interval or, with ``tail``, its tail.
    Algorithms without one follow, by the mean of their ranks, then random policy and reference.
    """
    environments = list(dict.fromkeys(row.environment for row in rows))
    across = {item.name: item for item in overall(normalized_scores(rows))}
    found = {(row.name, row.environment): row for row in rows}
    ranks = {row.name: _mean_rank(row.name, environments, found) for row in rows}
    order = sorted(ranks, key=lambda n: (-across[n].iqm if n in across else math.inf, ranks[n], n))
    body = [
        [name, *(_score(found.get((name, key)), tail) for key in environments)] for name in order
    ]
    published = _published(rows)
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
    notes = _footnotes(rows, _order_note(rows, environments, bool(across)), tail)
    if any(NOT_COMPARABLE in text for cells in published for text in cells):
        notes.append(f"{NOT_COMPARABLE}: not comparable, for the reason given.")
    notes += command_notes({row.title: row.commands for row in rows})
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


def _score(row: ScoreRow | None, tail: bool) -> str:
    if row is None or math.isnan(row.score):
        return NONE
    score = format_number(row.score) + MARKS[row.standing]
    if tail:
        return score if math.isnan(row.tail) else f"{score}\n({format_number(row.tail)})"
    if math.isnan(row.low):
        return score
    return f"{score}\n[{format_number(row.low)}, {format_number(row.high)}]"


def _published(rows: Sequence[ScoreRow]) -> list[list[str]]:
    """The rows of the random policy and the reference, with scores that hold for all rows."""
    references = references_of(rows)
    found: dict[str, dict[str, set[str]]] = {RANDOM: {}, REFERENCE: {}}
    for row in rows:
        mark = "" if row.reference_comparable else NOT_COMPARABLE
        texts = format_number(row.random_score), reference_cell(row, references, mark)
        for columns, text in zip(found.values(), texts, strict=True):
            columns.setdefault(row.environment, set()).add(text)
    lines = [
        [name, *(text.pop() if len(text) == 1 else NONE for text in columns.values())]
        for name, columns in found.items()
    ]
    return [line for line in lines if set(line[1:]) != {NONE}]


def _footnotes(rows: Sequence[ScoreRow], order: str, tail: bool) -> list[str]:
    notes = [protocol(rows), *([f"In parentheses: tail. {TAIL}"] if tail else [])]
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += [order, _seeds_note(rows), _steps_note(rows), *cautions(rows)]
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    return [" ".join(note.split()) for note in notes if note]


def _order_note(rows: Sequence[ScoreRow], environments: Sequence[str], across: bool) -> str:
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
