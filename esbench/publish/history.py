"""The past checks of a repository: scores, speeds and digests of each cell, commit by commit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.escape import markdown, one_line
from esbench.core.files import read_json
from esbench.core.git import by_ancestry
from esbench.core.json_text import as_text
from esbench.core.units import NONE, format_number, format_steps
from esbench.grids.trial_spec import cell_name
from esbench.publish.tables import render_table
from esbench.publish.tables.render_table import INTERVAL, Column, Sheet, interval_text, make_sheet
from esbench.results.statistics.estimates import bootstrap_interval, iqm
from esbench.results.statistics.significance import CHANGE_LEVEL, change_points
from esbench.store.generation_record import Return
from esbench.store.origin import COMMIT, changes, origin_of

CHECK_FORMAT: Final = 1  # of the files of ``esbench check --json``
EXPECTED: Final = "expected files of 'esbench check --json' by this version, and no other JSON"
SHORT: Final = 8  # characters of a commit
PROCESSOR: Final = "Processor"
Digests: TypeAlias = Literal["first", "same", "changed", "not comparable", "unknown"]


@final
@dataclass(frozen=True)
class CheckedCell:
    """One cell in the file of a check; the lists are in the order of ``seeds``.

    Attributes:
        seeds: none if the cell was not measured.
        scores: of the episode statistic; a diverged run has the worst score.
        speeds: training steps per second of CPU time; null if unknown.
        last_digests: of the last generation; null if there is none to compare.
        origins: versions and hardware of the trials.
    """

    environment: str
    algorithm: str
    policy: str
    episode_statistic: str
    verdict: str
    seeds: list[int]
    scores: list[Return]
    speeds: list[Return | None]
    last_digests: list[str | None]
    origins: list[dict[str, Any]]


@final
@dataclass(frozen=True)
class StoredCheck:
    """The file of a check; ``commit`` is that of the checkout it ran in, null outside of one."""

    commit: Annotated[str, msgspec.Meta(pattern=COMMIT)] | None
    commit_date: datetime | None
    created: datetime
    cells: list[CheckedCell]

    @property
    def revision(self) -> str:
        """The commit without "+"; empty if there is none."""
        return (self.commit or "").rstrip("+")

    @property
    def date(self) -> datetime:
        """The date of the commit, or of the check if there is no commit."""
        date = self.commit_date or self.created
        return date if date.tzinfo else date.replace(tzinfo=UTC)


@final
@dataclass(frozen=True, eq=False)
class PastCheck:
    """One check of one cell. A missing number is NaN.

    Attributes:
        commit: the start of its name, with "+" if files had changed; empty outside of a checkout.
        revision: its whole name, without "+".
        processor: the type of processor that trained; several are joined. Empty if unknown.
        date: of the commit, or of the check without one; year, month and day.
        scores: of the seeds; empty if the cell was not measured.
        score, low, high: their interquartile mean with its 95 % bootstrap interval.
        speed: the median over seeds of training steps per second of CPU time.
        digests: compared with the check before that was measured, of the seeds that both have.
        score_level, speed_level: of the checks without a change around this one: interquartile mean
            of all their scores, and median of their speeds on equal processors.
        score_change: the level that begins here, less the one before; NaN if none begins.
        speed_change: the level that begins here as a share of the one before, less 1.
    """

    commit: str
    revision: str
    date: str
    processor: str
    verdict: str
    scores: Floats
    score: float
    low: float
    high: float
    speed: float
    digests: Digests
    score_level: float = math.nan
    score_change: float = math.nan
    speed_level: float = math.nan
    speed_change: float = math.nan


@final
@dataclass(frozen=True, eq=False)
class CellHistory:
    """The checks of one cell in the order of their commits."""

    environment: str
    algorithm: str
    policy: str
    episode_statistic: str
    checks: tuple[PastCheck, ...]

    @property
    def title(self) -> str:
        """Such as "openai_es on CartPole-v1"."""
        judged = "" if self.episode_statistic == "mean" else f", {self.episode_statistic}"
        return f"{cell_name(self.algorithm, self.policy)} on {self.environment}{judged}"


def history(folders: Sequence[Path]) -> list[CellHistory]:
    """The history of every cell in the files of checks below some folders.

    UsageError if a folder or its files do not exist, or a file is not of a check.
    """
    files: dict[Path, Path] = {}
    for folder in folders:
        found_here = {path.resolve(): path for path in sorted(folder.rglob("*.json"))}
        if not found_here:
            raise UsageError(f"no folder with JSON files at {str(folder)!r}; {EXPECTED}")
        files = found_here | files
    checks = [_read_check(path) for path in files.values()]
    found: dict[tuple[str, str, str, str], list[tuple[StoredCheck, CheckedCell]]] = {}
    for check in _in_order(checks):
        for cell in check.cells:
            key = (cell.environment, cell.algorithm, cell.policy, cell.episode_statistic)
            found.setdefault(key, []).append((check, cell))
    return [CellHistory(*key, checks=_past_checks(own)) for key, own in sorted(found.items())]


def _in_order(checks: Sequence[StoredCheck]) -> list[StoredCheck]:
    """By the dates of the commits, then by ancestry if this folder's repository has the commits."""
    dates = {check.revision: check.date for check in checks if check.revision}
    several = Counter(dates.values())
    equal = {revision: date for revision, date in dates.items() if several[date] > 1}
    ancestry = by_ancestry(Path(), equal, min(equal.values())) if equal else []
    places = {revision: place for place, revision in enumerate(ancestry)}
    return sorted(
        checks,
        key=lambda check: (check.date, places.get(check.revision, -1), check.created.timestamp()),
    )


def _read_check(path: Path) -> StoredCheck:
    content = read_json(path)
    known = content.get("format") if isinstance(content, dict) and "cells" in content else None
    try:
        if known != CHECK_FORMAT:
            raise msgspec.ValidationError(f"format {known!r} of a check")
        check = msgspec.convert(content, StoredCheck)
        for cell in check.cells:
            lists: tuple[Sized, ...] = (cell.scores, cell.speeds, cell.last_digests)
            if any(len(each) != len(cell.seeds) for each in lists):
                raise msgspec.ValidationError(f"not one value per seed of {cell.algorithm}")
            for origin in cell.origins:
                origin_of(origin, str(path))
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; {EXPECTED}") from None
    return check


def _past_checks(own: Sequence[tuple[StoredCheck, CheckedCell]]) -> tuple[PastCheck, ...]:
    before: CheckedCell | None = None
    checks = []
    for check, cell in own:
        scores = np.array(cell.scores, dtype=np.float64)
        speeds = [speed for speed in cell.speeds if speed is not None]
        low, high = map(float, bootstrap_interval(scores)) if scores.size else (math.nan, math.nan)
        changed = "+" if (check.commit or "").endswith("+") else ""
        checks.append(
            PastCheck(
                commit=check.revision[:SHORT] + changed,
                revision=check.revision,
                date=check.date.date().isoformat(),
                processor=" and ".join(sorted(_processors(cell))),
                verdict=cell.verdict,
                scores=scores,
                score=float(iqm(scores)) if scores.size else math.nan,
                low=low,
                high=high,
                speed=float(np.median(speeds)) if speeds else math.nan,
                digests=_compared(before, cell) if scores.size else "unknown",
            )
        )
        before = cell if scores.size else before
    measured = {place: checks[place].scores for place in _measurements(checks)}
    every = range(len(checks))
    checks = _with_levels(checks, "score", every, measured, iqm, lambda now, before: now - before)
    for own_places in by_processor(checks).values():
        timed = {n: np.array([checks[n].speed]) for n in own_places}
        checks = _with_levels(
            checks, "speed", own_places, timed, np.median, lambda now, before: now / before - 1
        )
    return tuple(checks)


def _processors(cell: CheckedCell) -> set[str]:
    found = (origin_of(each).hardware.get("cpu") for each in cell.origins)
    return {one_line(str(cpu)) for cpu in found if cpu}


def by_processor(checks: Sequence[PastCheck]) -> dict[str, list[int]]:
    """The places of the checks with a speed, by the type of processor."""
    found: dict[str, list[int]] = {}
    for place, check in enumerate(checks):
        if not math.isnan(check.speed):
            found.setdefault(check.processor, []).append(place)
    return found


def _compared(before: CheckedCell | None, cell: CheckedCell) -> Digests:
    """The digests of a cell compared with those of an earlier check."""
    if before is None:
        return "first"
    known = dict(zip(before.seeds, before.last_digests, strict=True))
    pairs = [
        (known[seed], digest)
        for seed, digest in zip(cell.seeds, cell.last_digests, strict=True)
        if digest and known.get(seed)
    ]
    if not pairs:
        return "unknown"
    if all(then == now for then, now in pairs):
        return "same"
    origins = [[origin_of(each) for each in side.origins] for side in (before, cell)]
    elsewhere = any(all(changes(then, now) for then in origins[0]) for now in origins[1])
    return "not comparable" if elsewhere else "changed"


def _measurements(checks: Sequence[PastCheck]) -> list[int]:
    """The places of the checks with new scores.

    Scores that are only the same bits again are no new measurement, and count once, even where
    several kinds of runner take turns.
    """
    places: list[int] = []
    since = 0  # the first one after the last change of bits
    for place, check in enumerate(checks):
        if check.digests == "changed":
            since = len(places)
        again = any(np.array_equal(check.scores, checks[kept].scores) for kept in places[since:])
        if check.scores.size and not again:
            places.append(place)
    return places


def _with_levels(
    checks: Sequence[PastCheck],
    name: Literal["score", "speed"],
    own_places: Sequence[int],
    samples: Mapping[int, Floats],
    average: Callable[[Floats], Any],
    change: Callable[[float, float], float],
) -> list[PastCheck]:
    """The checks, those at ``own_places`` with the levels of their scores or speeds, and changes.

    ``samples`` are by the places of their checks, and a level lasts until the next one begins.
    """
    levels, changed = np.full((2, len(checks)), math.nan)
    places, values = list(samples), list(samples.values())
    borders = [0, *change_points(values), len(values)] if values else []
    for start, stop in pairwise(borders):
        first, level = places[start], float(average(np.concatenate(values[start:stop])))
        if start:
            changed[first] = change(level, levels[first])
        levels[first:] = level
    found = list(checks)
    for place in own_places:
        own: dict[str, Any] = {f"{name}_level": float(levels[place])}
        own[f"{name}_change"] = float(changed[place])
        found[place] = replace(checks[place], **own)
    return found


def sheet(cell: CellHistory, *, terminal: bool = False) -> Sheet:
    """The checks of a cell as a table; that of a ``terminal`` has neither intervals nor seeds."""
    hidden = {INTERVAL, "Seeds", PROCESSOR} if terminal else set()
    if len(by_processor(cell.checks)) < 2:
        hidden.add(PROCESSOR)
    return make_sheet(COLUMNS, cell.checks, hidden)


def change_text(check: PastCheck) -> str:
    """The changes that begin with a check; empty if there is none."""
    texts = []
    if not math.isnan(check.score_change):
        texts.append(f"score {signed(check.score_change)}")
    if not math.isnan(check.speed_change):
        texts.append(f"speed {check.speed_change:+.0%}")
    return "\n".join(texts)


COLUMNS: Final[tuple[Column[PastCheck], ...]] = (
    Column("commit", None, "Commit", lambda commit: commit or NONE),
    Column("date", None, "Date"),
    Column("score", None, "Score", format_number),
    Column("", attrgetter("low", "high"), INTERVAL, partial(interval_text, write=format_number)),
    Column("", attrgetter("scores.size"), "Seeds"),
    Column("speed", None, "Steps/s", format_steps),
    Column("processor", None, PROCESSOR, lambda name: name or NONE),
    Column("digests", None, "Digests", lambda found: NONE if found == "unknown" else found),
    Column("verdict", None, "Verdict"),
    Column("", None, "Change", change_text),
)


def signed(change: float) -> str:
    """A change of a score, with its sign."""
    return f"{'+' if change > 0 else ''}{format_number(change)}"


NOTES: Final = tuple(
    f"""\
Score: interquartile mean over seeds, of tails or areas where a baseline declares them. Intervals: \
95 % percentile bootstrap over seeds. Steps/s: training steps per second of CPU time, median over \
seeds. Digests: compared with the check before.
Change: a new level begins, by binary segmentation with permutation tests of ranks. A series \
without a change has a mark in at most {100 * CHANGE_LEVEL:g} % of cases, separately for scores \
and the speeds of each type of processor, which are compared with its own only. Of scores, the \
column shows the difference between the new and the old level; of speeds, the difference in \
percent. A check that repeats the digests and scores of an earlier one is no new measurement of \
the score.
""".splitlines()
)


def as_markdown(found: Sequence[CellHistory]) -> str:
    """The histories as Markdown, one section per cell."""
    parts = [
        f"### {markdown(cell.title)}\n\n{render_table.as_markdown(sheet(cell))}" for cell in found
    ]
    return "\n".join([*parts, *(f"- {note}" for note in NOTES)]) + "\n"


def as_json(found: Sequence[CellHistory]) -> str:
    """Every field of the histories as JSON, in full precision; NaN is null."""
    cells = [asdict(cell) for cell in found]
    for check in (check for cell in cells for check in cell["checks"]):
        check["scores"] = check["scores"].tolist()
    return as_text({"cells": cells, "notes": list(NOTES)})
