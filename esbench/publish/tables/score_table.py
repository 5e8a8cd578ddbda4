"""Score tables: one row per environment and algorithm, or one row per algorithm as in papers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
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
    make_sheet,
    nan_last,
    records,
    select,
)
from esbench.publish.tables.table_notes import (
    TAIL,
    marked,
    overall_notes,
    overall_text,
    reference_text,
    references_of,
    score_notes,
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
_FRAME: Final = (
    *("environment", "algorithm", "policy", "score", "low", "high", "tail", "standing", "seeds"),
    *("unfinished", "env_steps", "wall_time_s", "random_score", "reference_score", "normalized"),
)


def score_table(
    root: Path, by: str | None = None, selected: bool = False, statistic: EpisodeStatistic = "mean"
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
        rows.sort(key=lambda row: (row.environment, shared_name(row, by), value_order(row.setting)))
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
    values: dict[str, set[str]] = {}
    for cell in found:
        for key, value in cell.settings.items():
            values.setdefault(key, set()).add(value_text(value))
    several = [key for key, own in values.items() if len(own) > 1]
    if by not in several:
        near = suggestion(by, several) if several else "no setting has"
        raise UsageError(f"--by {by}: expected a setting with several values in {root}; {near}")


def shared_name(row: Cell, by: str) -> str:
    """The name of a row without the setting ``by``."""
    return without_setting(row.name, by, row.setting)


def _score(row: Cell) -> str:
    return format_number(row.score) + MARKS[row.standing]


def _seeds(row: Cell) -> str:
    seeds = len(row.scores)
    return f"{seeds} of {seeds + row.unfinished}" if row.unfinished else str(seeds)


def _tail(row: Cell) -> float:
    """The tail beside a score that is a mean."""
    return row.tail if row.statistic == "mean" else math.nan


def _of_reference(name: str, missing: str | None) -> Callable[[Cell], Any]:
    return lambda row: getattr(row.reference, name) if row.reference else missing


COLUMNS: Final[tuple[Column[Cell], ...]] = (
    Column("environment", heading="Environment"),
    Column("algorithm"),
    Column("", lambda row: marked(row.algorithm, row.inherited), "Algorithm"),
    Column("policy", heading="Policy"),
    Column("score"),
    Column("", None, "Score", _score),
    Column("low", lambda row: row.interval[0]),
    Column("high", lambda row: row.interval[1]),
    Column("", lambda row: row.interval, INTERVAL, partial(interval_text, write=format_number)),
    Column("", _tail, "Tail", format_number, optional=True),
    Column("", lambda row: row.selected, "Selected", format_number, optional=True),
    Column("seeds", lambda row: len(row.scores)),
    Column("unfinished"),
    Column("", None, "Seeds", _seeds),
    Column("env_steps", None, "Steps", format_steps),
    Column("wall_time_s", lambda row: row.mean_cost("wall_time_s"), "Time", format_duration),
    Column("random_score", None, "Random", format_number, optional=True),
    Column("reference_score", None, "Reference", format_number, optional=True),
    Column("reference_method", _of_reference("method", "")),
    Column("reference_source", _of_reference("source", "")),
    Column("reference_comparable", _of_reference("comparable", None)),
    Column("reference_note", _of_reference("note", "")),
    Column(
        "normalized",
        lambda row: row.normalized(row.score),
        "Normalized",
        format_share,
        optional=True,
    ),
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
        frame["algorithm"] = [shared_name(row, by) for row in rows]
        frame.insert(2, by, [row.setting for row in rows])
        frame = frame.drop(columns="policy")  # part of the name
    frame.attrs["notes"] = sheet(rows).notes
    return frame


def sheet(
    rows: Sequence[Cell],
    *,
    terminal: bool = False,
    by: str | None = None,
    tail: bool = False,
    columns: Sequence[str] = (),
) -> Sheet:
    """The table without empty columns, or with the ``columns`` of these headings alone.

    With ``terminal`` it has fewer columns, and the policy is part of the algorithm's name; ``tail``
    shows the tail there too. The setting ``by`` has a column instead of a part of that name.
    """
    hidden = set()
    if terminal or by is not None or all(row.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    if terminal:
        hidden |= {"Random", "Normalized"} if tail else {"Random", "Normalized", "Tail"}
        if tail or by is not None or any(not math.isnan(row.selected) for row in rows):
            hidden |= {"Steps", "Time"}
    if columns:
        table = _chosen(rows, by, columns)
    else:
        table = make_sheet(_columns(rows, by, terminal), rows, hidden)
    if "Score" in table.header:
        score = table.header.index("Score")
        best = frozenset((n, score) for n, row in enumerate(rows) if row.standing == "best")
        table = replace(table, best=best)
    notes = score_notes(rows, table, overall_notes(rows), chosen=bool(columns))
    return replace(table, notes=notes)


def _chosen(rows: Sequence[Cell], by: str | None, columns: Sequence[str]) -> Sheet:
    """The columns of these headings, after environment and policy if rows differ in them."""
    names = {"Environment": {row.environment for row in rows}}
    if by is None:  # else the policy is part of the name
        names["Policy"] = {row.policy for row in rows}
    several = [name for name, values in names.items() if len(values) > 1]
    return select(make_sheet(_columns(rows, by, terminal=False), rows), columns, several)


def _columns(rows: Sequence[Cell], by: str | None, terminal: bool) -> list[Column[Cell]]:
    """The columns with numbers of references, with ``by``, and with names that fit a terminal."""
    reference = partial(_reference, references=references_of(rows))
    changed: dict[str, list[Column[Cell]]] = {
        "Reference": [Column("", None, "Reference", reference, optional=True)]
    }
    if terminal:
        changed["Algorithm"] = [
            Column("", lambda row: marked(row.name, row.inherited), "Algorithm")
        ]
    if by is not None:
        changed["Algorithm"] = [
            Column("", lambda row: marked(shared_name(row, by), row.inherited), "Algorithm"),
            Column("setting", None, by, lambda v: NONE if v is None else value_text(v)),
        ]
    return [new for old in COLUMNS for new in changed.get(old.heading, [old])]


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
    columns: Sequence[str] = (),
) -> None:
    """Raises UsageError for options of a table that exclude each other.

    A wide table is not sorted by a setting, has no selected scores and one column per environment.
    A table of tails has no other ones, which are mean returns.
    """
    chosen = f"--columns {','.join(columns)}", bool(columns)
    of_seeds = f"--statistic {statistic}", statistic != "mean"
    best = "--which best", which == "best"
    pairs = [
        (("--wide", wide), (f"--by {by}", by is not None)),
        (("--wide", wide), best),
        (("--wide", wide), chosen),
        (("--tail", tail), chosen),
        (best, of_seeds),
        (of_seeds, ("--tail", tail)),
    ]
    for (first, one), (second, other) in pairs:
        if one and other:
            raise UsageError(f"{first} with {second}: expected one of them")


def wide_sheet(rows: Sequence[Cell], *, tail: bool = False) -> Sheet:
    """The rows of ``score_table`` as a wide table, by the IQM over all environments.

    Below a score is its interval or, with ``tail``, its tail.
    Algorithms without one follow, by the mean of their ranks, then random policy and reference.
    """
    environments = list(dict.fromkeys(row.environment for row in rows))
    across = {item.name: item for item in overall(normalized_scores(rows))}
    found = {(row.name, row.environment): row for row in rows}
    order = _wide_order(rows, {name: item.iqm for name, item in across.items()})
    body = [
        [name, *(_wide_score(found.get((name, key)), tail) for key in environments)]
        for name in order
    ]
    published = _published(rows)
    notes = [f"In parentheses: tail. {TAIL}"] if tail else []
    if across:
        for cells in body:
            item = across.get(cells[0])
            cells.append(overall_text(item, "\n") if item else NONE)
        for cells in published:
            cells.append("0.00" if cells[0] == RANDOM else "1.00")
        notes.append(
            f"{ACROSS}: over all runs of the environments with a random and a reference score, "
            "which are 0 and 1, with its 95 % stratified percentile bootstrap interval."
        )
    steps = [row.env_steps for row in rows if row.done]
    notes.append(f"Seeds of a row: {_extent([len(row.scores) for row in rows], str)}.")
    notes.append(f"Steps of training: {_extent(steps, format_steps)}.")
    header = ["Algorithm", *environments, *[ACROSS] * bool(across)]
    best = frozenset(
        (order.index(row.name), header.index(row.environment))
        for row in rows
        if row.standing == "best"
    )
    if any(NOT_COMPARABLE in text for cells in published for text in cells):
        notes.append(f"{NOT_COMPARABLE}: not comparable, for the reason given.")
    table = Sheet(header, [*body, *published], (), best, separated=len(published))
    return replace(table, notes=score_notes(rows, table, notes))


def _wide_order(rows: Sequence[Cell], across: Mapping[str, float]) -> list[str]:
    """The names by their IQM over all environments, then by the mean of their ranks.

    Ties share a rank, and a missing score is last.
    """
    import pandas as pd

    table = pd.DataFrame(_by_name(rows, attrgetter("score")))
    ranks = (table.rank(ascending=False) - 0.5).fillna(Counter(row.environment for row in rows))
    mean = ranks.mean(axis=1)
    return sorted(table.index, key=lambda n: (-across.get(n, -math.inf), mean[n], n))


def _by_name(rows: Sequence[Cell], value: Callable[[Cell], float]) -> dict[str, dict[str, float]]:
    """A value of the rows by environment and name."""
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        table.setdefault(row.environment, {})[row.name] = value(row)
    return table


def _extent(values: Sequence[float], write: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys(map(write, (min(values), max(values))))) if values else NONE


def _wide_score(row: Cell | None, tail: bool) -> str:
    if row is None or math.isnan(row.score):
        return NONE
    below = interval_text(row.interval, format_number)
    if tail:
        below = NONE if math.isnan(_tail(row)) else f"({format_number(_tail(row))})"
    score = marked(_score(row), row.inherited)
    return score if below == NONE else f"{score}\n{below}"


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


def wide_frame(rows: Sequence[Cell], *, tail: bool = False) -> pd.DataFrame:
    """One row per algorithm, the best first; one column of scores per environment.

    With ``tail``, each is followed by a column "ENVIRONMENT tail".
    """
    import pandas as pd

    sheet = wide_sheet(rows)
    table: dict[str, dict[str, float]] = {}
    for environment, scores in _by_name(rows, attrgetter("score")).items():
        table[environment] = scores
        if tail:
            table[f"{environment} tail"] = _by_name(rows, _tail)[environment]
    names = [cells[0] for cells in sheet.body[: len(sheet.body) - sheet.separated]]
    frame = pd.DataFrame(table, index=pd.Index(names, name="algorithm"))
    frame.attrs["notes"] = sheet.notes
    return frame
