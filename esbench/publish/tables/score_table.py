"""Score tables: one row per environment and algorithm, or one row per algorithm as in papers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from esbench.core.errors import UsageError, suggestion
from esbench.core.units import NONE, format_duration, format_number, format_share, format_steps
from esbench.grids.trial_spec import DEFAULT_LABEL, value_text, without_setting
from esbench.publish.tables.render_table import (
    INTERVAL,
    Column,
    Sheet,
    interval_text,
    nan_last,
    records,
    texts,
)
from esbench.publish.tables.table_notes import (
    NORMALIZED,
    STANDINGS,
    TAIL,
    cautions,
    command_notes,
    footnotes,
    overall_interval,
    protocol,
    reference_text,
    references_of,
)
from esbench.results.cell import Cell, normalized_scores, ranked
from esbench.results.sources import read_folder
from esbench.results.statistics.estimates import EpisodeStatistic, iqm, overall
from esbench.results.statistics.significance import Standing
from esbench.store.trial_folder import selected_score

if TYPE_CHECKING:
    import pandas as pd

MARKS: Final[dict[Standing, str]] = {"best": " *", "tied": " =", "": ""}
ACROSS: Final = "Normalized IQM"
RANDOM: Final = "random policy"
REFERENCE: Final = "reference"
NOT_COMPARABLE: Final = "\N{DAGGER}"
MOST_EXCEPTIONS: Final = 4
_FRAME: Final = (
    *("environment", "algorithm", "policy", "score", "low", "high", "tail", "standing", "seeds"),
    *("unfinished", "env_steps", "wall_time_s", "random_score", "reference_score", "normalized"),
)


def score_table(
    root: Path,
    by: str | None = None,
    selected: bool = False,
    statistic: EpisodeStatistic = "mean",
) -> list[Cell]:
    """The ranked cells below ``root``, sorted by environment, the best score first.

    With ``by``, a setting of the algorithms, they are sorted by its value instead. With
    ``selected``, they also have the scores of the best policies that ``esbench eval`` has kept. The
    score of a run is the ``statistic`` of its episodes.

    Raises:
        UsageError: there is no trial, a trial is not readable or has no tail, ``by`` has no two
            values, or no row has a score of its best policies.
    """
    found = read_folder(root)
    if by is not None:
        _require_several(by, found, root)
    groups = itertools.groupby(found, lambda cell: cell.environment)
    rows = [row for _, group in groups for row in ranked(list(group), statistic)]
    if selected:
        rows = [replace(row, selected=_selected(row)) for row in rows]
        if all(math.isnan(row.selected) for row in rows):
            raise UsageError(
                f"{root} has no row whose trials all have the score of their best policy; compute "
                f"them with: esbench eval --all --which best {root}"
            )
    rows.sort(key=lambda row: (row.environment, nan_last(-row.score), row.name))
    if by is not None:
        rows = [replace(row, setting=row.settings.get(by)) for row in rows]
        rows.sort(
            key=lambda row: (row.environment, _shared_name(row, by), value_order(row.setting))
        )
    return rows


def value_order(value: Any) -> tuple[bool, float, str]:
    """The key that sorts values of a setting: numbers, then others by their text."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, value_text(value)


def _selected(cell: Cell) -> float:
    best = [selected_score(run.folder) for run in cell.done]
    scores = [float(item["score"]) for item in best if item and item["score"] is not None]
    return float(iqm(scores)) if scores and len(scores) == len(best) else math.nan


def _require_several(by: str, found: Sequence[Cell], root: Path) -> None:
    keys = dict.fromkeys(key for cell in found for key in cell.settings)
    several = [
        key
        for key in keys
        if len({value_text(cell.settings[key]) for cell in found if key in cell.settings}) > 1
    ]
    if by not in several:
        near = suggestion(by, several) if several else "no setting has"
        raise UsageError(f"--by {by}: expected a setting with several values in {root}; {near}")


def _shared_name(row: Cell, by: str) -> str:
    """The name of a row without the setting ``by``."""
    return without_setting(row.name, by, row.setting)


# Columns


def _score(row: Cell) -> str:
    return format_number(row.score) + MARKS[row.standing]


def _seeds(row: Cell) -> str:
    seeds = len(row.scores)
    return f"{seeds} of {seeds + row.unfinished}" if row.unfinished else str(seeds)


def _interval(ends: tuple[float, float]) -> str:
    return interval_text(ends, format_number)


def _tail(row: Cell) -> float:
    """The tail beside a score that is a mean."""
    return row.tail if row.statistic == "mean" else math.nan


def _of_reference(name: str, missing: str | None) -> Callable[[Cell], Any]:
    return lambda row: getattr(row.reference, name) if row.reference else missing


COLUMNS: Final[tuple[Column[Cell], ...]] = (
    Column("environment", heading="Environment"),
    Column("algorithm", heading="Algorithm"),
    Column("policy", heading="Policy"),
    Column("score"),
    Column("", lambda row: row, "Score", _score),
    Column("low", lambda row: row.interval[0]),
    Column("high", lambda row: row.interval[1]),
    Column("", lambda row: row.interval, INTERVAL, _interval),
    Column("", _tail, "Tail", format_number),
    Column("", lambda row: row.selected, "Selected", format_number),
    Column("seeds", lambda row: len(row.scores)),
    Column("unfinished"),
    Column("", lambda row: row, "Seeds", _seeds),
    Column("env_steps", None, "Steps", format_steps),
    Column("wall_time_s", lambda row: row.mean_cost("wall_time_s"), "Time", format_duration),
    Column("random_score", None, "Random", format_number),
    Column("reference_score", None, "Reference", format_number),
    Column("reference_method", _of_reference("method", "")),
    Column("reference_source", _of_reference("source", "")),
    Column("reference_comparable", _of_reference("comparable", None)),
    Column("reference_note", _of_reference("note", "")),
    Column("normalized", lambda row: row.normalized(row.score), "Normalized", format_share),
    *map(Column, ("commands", "hardware", "differs", "inherited", "mixture")),
    Column("trials", lambda row: tuple(str(r.folder.path) for r in row.done if row.scores)),
    *map(Column, ("scores", "standing", "setting")),
    Column("tail", _tail),
    *map(Column, ("selected", "is_agent", "overspent", "variety", "statistic", "diverged")),
    Column("budget"),
    Column("twice", lambda row: tuple(map(str, row.twice or ()))),
    Column("scores_differ"),
)


def score_frame(rows: Sequence[Cell], by: str | None = None) -> pd.DataFrame:
    """One row per environment and algorithm; the setting ``by`` has a column of its name."""
    import pandas as pd

    frame = pd.DataFrame(records(COLUMNS, rows))[
        [*_FRAME, *["selected"] * any(not math.isnan(row.selected) for row in rows)]
    ]
    if by is not None:
        frame["algorithm"] = [_shared_name(row, by) for row in rows]
        frame.insert(2, by, [row.setting for row in rows])
        frame = frame.drop(columns="policy")  # part of the name
    frame.attrs["notes"] = footnotes(rows)
    return frame


def sheet(
    rows: Sequence[Cell], *, terminal: bool = False, by: str | None = None, tail: bool = False
) -> Sheet:
    """The table without empty columns.

    With ``terminal`` it has fewer columns, and the policy is part of the algorithm's name; ``tail``
    shows the tail there too. The setting ``by`` has a column instead of a part of that name.
    """
    references = references_of(rows)
    write = texts(COLUMNS) | {"Reference": lambda row: _reference(row, references)}
    optional = ("Tail", "Selected", "Random", "Reference", "Normalized")
    hidden = {name for name in optional if all(write[name](row) == NONE for row in rows)}
    if terminal or all(row.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    if terminal:
        hidden |= {"Random", "Normalized"}
        hidden |= set() if tail else {"Tail"}
        crowded = by is not None or not {"Tail", "Selected"} <= hidden
        hidden |= {"Steps", "Time"} if crowded else set()
        write["Algorithm"] = lambda row: row.name
    notes = footnotes(rows, costs="Time" not in hidden)
    if terminal:
        notes = [
            note for note in notes if note not in NORMALIZED.values() and (tail or note != TAIL)
        ]
    if by is not None:
        environment, _, *others = write
        write = {
            environment: write[environment],
            "Algorithm": lambda row: _shared_name(row, by),
            by: lambda row: NONE if row.setting is None else value_text(row.setting),
            **{name: write[name] for name in others},
        }
    header = [name for name in write if name not in hidden]
    score = header.index("Score")
    return Sheet(
        header,
        [[write[name](row) for name in header] for row in rows],
        notes,
        frozenset((n, score) for n, row in enumerate(rows) if row.standing == "best"),
    )


def _reference(row: Cell, references: Mapping[str, int], mark: str = "") -> str:
    """The reference score and its number, with a mark between them."""
    score = format_number(row.reference_score)
    return f"{score}{mark} [{references[reference_text(row)]}]" if row.reference else score


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


def wide_sheet(rows: Sequence[Cell], *, tail: bool = False) -> Sheet:
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
        [name, *(_wide_score(found.get((name, key)), tail) for key in environments)]
        for name in order
    ]
    published = _published(rows)
    if across:
        for cells in body:
            item = across.get(cells[0])
            text = item and f"{format_share(item.iqm)}\n{overall_interval(item).strip()}".rstrip()
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
    name: str, environments: Sequence[str], found: Mapping[tuple[str, str], Cell]
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


def _wide_score(row: Cell | None, tail: bool) -> str:
    if row is None or math.isnan(row.score):
        return NONE
    below = _interval(row.interval)
    if tail:
        below = NONE if math.isnan(_tail(row)) else f"({format_number(_tail(row))})"
    return _score(row) if below == NONE else f"{_score(row)}\n{below}"


def _published(rows: Sequence[Cell]) -> list[list[str]]:
    """The rows of the random policy and the reference, with scores that hold for all rows."""
    references = references_of(rows)
    found: dict[str, dict[str, set[str]]] = {RANDOM: {}, REFERENCE: {}}
    for row in rows:
        mark = "" if row.reference and row.reference.comparable else NOT_COMPARABLE
        both = format_number(row.random_score), _reference(row, references, mark)
        for columns, text in zip(found.values(), both, strict=True):
            columns.setdefault(row.environment, set()).add(text)
    lines = [
        [name, *(text.pop() if len(text) == 1 else NONE for text in columns.values())]
        for name, columns in found.items()
    ]
    return [line for line in lines if set(line[1:]) != {NONE}]


def _footnotes(rows: Sequence[Cell], order: str, tail: bool) -> list[str]:
    notes = [protocol(rows), *[f"In parentheses: tail. {TAIL}"] * tail]
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += [order, _seeds_note(rows), _steps_note(rows), *cautions(rows)]
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    return [" ".join(note.split()) for note in notes if note]


def _order_note(rows: Sequence[Cell], environments: Sequence[str], across: bool) -> str:
    if not across:
        return "Rows: sorted by the mean of their ranks." if len(environments) > 1 else ""
    scaled = {row.environment for row in rows if row.scores and row.has_scale}
    rest = [name for name in environments if name not in scaled]
    without = f", without {', '.join(rest)}" if rest else ""
    return (
        f"{ACROSS}: over all runs of {len(scaled)} environments{without}, where 0 is the random "
        "policy and 1 the reference, with its 95 % stratified percentile bootstrap interval. The "
        "best is first."
    )


def _seeds_note(rows: Sequence[Cell]) -> str:
    seeds = Counter(len(row.scores) for row in rows if row.scores)
    if not seeds:
        return ""
    usual = max(seeds, key=lambda count: (seeds[count], count))
    others = [row for row in rows if len(row.scores) not in (0, usual)]
    if len(others) > MOST_EXCEPTIONS:
        return f"Seeds: {min(seeds)} to {max(seeds)}; without --wide, the table has them per row."
    exceptions = "".join(f", {len(row.scores)} of {row.title}" for row in others)
    return f"Seeds: {usual} each{exceptions}."


def _steps_note(rows: Sequence[Cell]) -> str:
    """The length of training in each environment; environments with equal lengths are grouped."""
    groups: dict[str, list[str]] = {}
    for environment, members in itertools.groupby(rows, key=lambda row: row.environment):
        steps = [row.env_steps for row in members if not math.isnan(row.env_steps)]
        if steps:
            ends = dict.fromkeys(format_steps(end) for end in (min(steps), max(steps)))
            groups.setdefault(" to ".join(ends), []).append(environment)
    if not groups:
        return ""
    each = [f"{text} ({', '.join(names)})" for text, names in groups.items()]
    listed = "; ".join(each if len(groups) > 1 else groups)
    return f"Steps of training, mean over seeds: {listed}."


def wide_frame(rows: Sequence[Cell], *, tail: bool = False) -> pd.DataFrame:
    """One row per algorithm, the best first; one column of scores per environment.

    With ``tail``, each is followed by a column "ENVIRONMENT tail".
    """
    import pandas as pd

    sheet = wide_sheet(rows)
    names = [cells[0] for cells in sheet.body[: len(sheet.body) - sheet.separated]]
    environments = [key for key in sheet.header[1:] if key != ACROSS]
    suffixes = ("", " tail") if tail else ("",)
    table: dict[str, dict[str, float]] = {
        e + suffix: {} for e in environments for suffix in suffixes
    }
    for row in rows:
        for suffix, value in zip(suffixes, (row.score, _tail(row)), strict=False):
            table[row.environment + suffix][row.name] = value
    frame = pd.DataFrame(table, index=pd.Index(names, name="algorithm"))
    frame.attrs["notes"] = sheet.notes
    return frame
