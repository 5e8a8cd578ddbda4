"""Tables of scores that others publish: those of rl-zoo and SLM-Lab, and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.errors import UsageError, shown
from esbench.grids.environment_files import environment_names
from esbench.results.reported_scores import MOST_SCORE, ReportedScore, checked_name, task_of

TableLayout: TypeAlias = Literal["rl-zoo", "slm-lab", "csv"]
Cells: TypeAlias = Mapping[str, str]

MEASURES: Final[dict[TableLayout, str]] = {
    "rl-zoo": "mean return of evaluation episodes after one training",
    "slm-lab": "moving average of returns during training, mean over sessions",
    "csv": "mean over seeds of the score at the last step",
}
RL_ZOO: Final = ("algo", "env_id", "mean_reward", "std_reward", "n_timesteps", "eval_episodes")
SLM_LAB: Final = ("Algorithm", "MA")
SLM_LAB_GAMES: Final = ("ENV", "MA", "SPEC_NAME")
SLM_LAB_STEPS: Final = ("ENV", "SPEC_NAME", "MAX_FRAME")
CSV: Final = ("environment", "algorithm", "seed", "steps", "score")
TYPOS: Final = 2  # letters more or fewer than in a known name
LONGEST: Final = 10_000_000  # characters of a file
MISSING: Final = frozenset({"", "-", "n/a", "na", "skip", "?", "pending"})
_UNITS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_NUMBER: Final = re.compile(  # a comma before three digits stands for thousands
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKmMbB]?)"
)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
# SLM-Lab marks how near a score is to its target.
_STATUS: Final = re.compile(
    "[\N{WHITE HEAVY CHECK MARK}\N{CROSS MARK}\N{WARNING SIGN}\ufe0f\U0001f4ca\U0001f504]"
)
_HEADING: Final = re.compile(r"#+\s+(?:[\d.]+\s+)?(\S+-v\d+)\s*")
_RULE: Final = re.compile(r":?-+:?")


@final
@dataclass(frozen=True)
class TableLine:
    """One row of a table, by its headings, and what stands above the table.

    Attributes:
        number: of the line, from 1.
        cells: texts by headings.
        heading: the environment in the nearest heading above; empty without one.
        settings: numbers by name of the line of settings above, such as "max_frame".
    """

    number: int
    cells: Cells
    heading: str = ""
    settings: Cells = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Imported:
    """The rows of a file, the lines without a score, and environments that are not known here."""

    layout: TableLayout
    rows: list[ReportedScore]
    left_out: list[int]
    unknown: list[str]


def read_scores(text: str, file: str, layout: TableLayout | None = None) -> Imported:
    """The scores in the text of a file.

    Raises:
        UsageError: with the number of the line: a column is missing, a number is none, a row is
            there twice, a name has markup, or an environment is nearly one that is known.
    """
    if len(text) > LONGEST:
        raise UsageError(f"{file}: {len(text):,} characters; expected at most {LONGEST:,}")
    found = layout or _layout_of(text)
    readers: dict[TableLayout, Callable[[str], Iterator[tuple[int, ReportedScore | None]]]] = {
        "rl-zoo": _rl_zoo, "slm-lab": _slm_lab, "csv": _csv,
    }  # fmt: skip
    rows: dict[tuple[str, str, int | None], tuple[int, ReportedScore]] = {}
    left_out = []
    try:
        for number, row in readers[found](text):
            if row is None:
                left_out.append(number)
                continue
            key = (row.environment, row.algorithm, row.env_steps)
            if key in rows:
                raise _LineError(number, f"the row of line {rows[key][0]} again")
            rows[key] = (number, row)
        unknown = _unknown_environments({row.environment: n for n, row in reversed(rows.values())})
    except _LineError as error:
        raise UsageError(f"{file}, line {error.number}: {error}") from None
    if not rows:
        raise UsageError(f"{file}: no row with a score; expected {_EXPECTED[found]}")
    return Imported(found, [row for _, row in rows.values()], left_out, unknown)


_EXPECTED: Final[dict[TableLayout, str]] = {
    "rl-zoo": f"a Markdown table with the columns {', '.join(RL_ZOO)}",
    "slm-lab": f"Markdown tables with the columns {', '.join(SLM_LAB)} below headings that end "
    f"with an environment, or with {', '.join(SLM_LAB_GAMES)}",
    "csv": f"a first line with the columns {', '.join(CSV)}",
}


@final
class _LineError(ValueError):
    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def _layout_of(text: str) -> TableLayout:
    """The layout of a file by its columns; as CSV, its first line is named if that is wrong."""
    for line in text.splitlines():
        names = {cell.strip() for cell in line.strip().strip("|").split("|")}
        if line.lstrip().startswith("|"):
            if {"algo", "env_id"} & names:
                return "rl-zoo"
            if names >= {*SLM_LAB} or names >= {*SLM_LAB_GAMES}:
                return "slm-lab"
    return "csv"


def _rl_zoo(text: str) -> Iterator[tuple[int, ReportedScore | None]]:
    for line in _markdown_lines(text, lambda names: bool({"algo", "env_id"} & {*names})):
        _require_columns(line.number, line.cells, RL_ZOO)
        yield _numbered(
            line,
            _number(line, "mean_reward", optional=True),
            environment=_plain(line.cells["env_id"]),
            algorithm=_plain(line.cells["algo"]),
            deviation=_number(line, "std_reward", optional=True),
            env_steps=_count(line, "n_timesteps"),
            episodes=_count(line, "eval_episodes"),
            seeds=1,
        )


def _slm_lab(text: str) -> Iterator[tuple[int, ReportedScore | None]]:
    steps: dict[tuple[str, str], int | None] = {}
    environment = ""
    for line in _markdown_lines(text, lambda names: {*SLM_LAB_STEPS} <= {*names}):
        environment = _plain(line.cells["ENV"]) or environment
        steps[environment, _plain(line.cells["SPEC_NAME"])] = _count(line, "MAX_FRAME")
    environment = ""

    def is_scores(names: Iterable[str]) -> bool:
        return {*SLM_LAB} <= {*names} or {*SLM_LAB_GAMES} <= {*names}

    for line in _markdown_lines(text, is_scores):
        if "ENV" in line.cells:
            environment = _plain(line.cells["ENV"]) or environment
        else:
            environment = line.heading
        if not environment:
            raise _LineError(line.number, "no heading above that ends with an environment")
        name = _plain(line.cells.get("SPEC_NAME", ""))
        most = replace(line, cells=line.settings)
        yield _numbered(
            line,
            _number(line, "MA", optional=True),
            environment=environment,
            algorithm=_plain(line.cells.get("Algorithm", "")) or name,
            env_steps=steps.get((environment, name)) or _count(most, "max_frame"),
            seeds=_count(most, "max_session"),
        )


def _csv(text: str) -> Iterator[tuple[int, ReportedScore | None]]:
    """The mean over seeds of the score at the last step, which all seeds must have."""
    reader = csv.reader(io.StringIO(text), strict=True)
    lines: list[TableLine] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        _require_columns(1, header, CSV)
        lines = [_line(reader.line_num, header, cells) for cells in reader if cells]
    except csv.Error as error:
        raise _LineError(reader.line_num, f"not readable as CSV: {error}") from None
    curves: dict[tuple[str, str], dict[str, dict[int, tuple[int, float]]]] = {}
    for line in lines:
        cell = curves.setdefault((line.cells["environment"], line.cells["algorithm"]), {})
        steps, score = _count(line, "steps"), _number(line, "score")
        seed = line.cells["seed"]
        if steps is None or score is None or not re.fullmatch(r"\d{1,19}", seed):
            raise _LineError(line.number, f"seed {seed!r}, steps and score: expected numbers")
        curve = cell.setdefault(str(int(seed)), {})
        if steps in curve:
            raise _LineError(line.number, f"the row of line {curve[steps][0]} again")
        curve[steps] = (line.number, score)
    for (environment, algorithm), seeds in curves.items():
        ends = {seed: max(curve) for seed, curve in seeds.items()}
        first = min(number for curve in seeds.values() for number, _ in curve.values())
        if len({*ends.values()}) > 1:
            shortest = min(ends, key=lambda seed: ends[seed])
            raise _LineError(
                seeds[shortest][ends[shortest]][0],
                f"seed {shortest} of {algorithm} on {environment} ends at {ends[shortest]:,} "
                f"steps, another one at {max(ends.values()):,}; expected equal ends",
            )
        scores = np.array([curve[ends[seed]][1] for seed, curve in seeds.items()])
        yield _numbered(
            TableLine(first, {}),
            float(scores.mean()),
            environment=environment,
            algorithm=algorithm,
            deviation=float(scores.std(ddof=1)) if len(scores) > 1 else None,
            env_steps=max(ends.values()),
            seeds=len(scores),
        )


def _markdown_lines(text: str, wanted: Callable[[list[str]], bool]) -> Iterator[TableLine]:
    """The rows of the Markdown tables whose headings are wanted."""
    header: list[str] | None = None
    heading = ""
    settings: dict[str, str] = {}
    for number, text_line in enumerate(text.splitlines(), 1):
        line = text_line.strip()
        if not line.startswith("|"):
            header = None
            if line.startswith("#"):
                match = _HEADING.fullmatch(line)
                heading, settings = match[1] if match else "", {}
            elif line.startswith("**Settings**"):
                settings = dict(re.findall(r"(\w+) ([\d.e]+)(?=\s|$)", line))
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = cells
        elif wanted(header) and not all(map(_RULE.fullmatch, cells)):
            yield _line(number, header, cells, heading, settings)


def _line(number: int, header: Sequence[str], cells: Sequence[str], *above: Any) -> TableLine:
    if len(cells) != len(header):
        raise _LineError(number, f"{len(cells)} cells; expected {len(header)}")
    return TableLine(number, dict(zip(header, map(str.strip, cells), strict=True)), *above)


def _require_columns(number: int, found: Iterable[str], wanted: Iterable[str]) -> None:
    known = [*found]
    for name in wanted:
        if name not in known:
            columns = ", ".join(known) or "no columns"
            raise _LineError(number, f"no column {name!r}; the table has {columns}")


def _plain(text: str) -> str:
    """The text of a Markdown cell without links, emphasis and status."""
    return _STATUS.sub("", _LINK.sub(r"\1", text)).strip("* `").strip()


def _number(line: TableLine, column: str, optional: bool = False) -> float | None:
    """A number such as 1,234.5, 500k or 10e6; None for a missing one that is ``optional``."""
    text = _plain(line.cells.get(column, ""))
    if optional and text.lower() in MISSING:
        return None
    match = _NUMBER.fullmatch(text.replace("\N{MINUS SIGN}", "-"))
    value = (
        float(match[1].replace(",", "").replace("_", "")) * _UNITS[match[2].lower()]
        if match
        else math.nan
    )
    if not abs(value) <= MOST_SCORE:
        raise _LineError(
            line.number, f"{column} {shown(text[:80])}: expected a finite number such as 1,234.5"
        )
    return value


def _count(line: TableLine, column: str) -> int | None:
    value = _number(line, column, optional=True)
    if value is not None and (value < 1 or value != int(value)):
        text = line.cells[column]
        raise _LineError(
            line.number, f"{column} {shown(text[:80])}: expected a whole number above 0"
        )
    return None if value is None else int(value)


def _numbered(
    line: TableLine, score: float | None, **values: Any
) -> tuple[int, ReportedScore | None]:
    """The number of a line and its row; None for the row if there is no score."""
    if score is None:
        return line.number, None
    for column in ("environment", "algorithm"):
        try:
            checked_name(values[column])
        except ValueError as error:
            text = shown(values[column][:80])
            raise _LineError(line.number, f"{column} {text}: {error}") from None
    if (values.get("deviation") or 0) < 0:
        raise _LineError(line.number, "a deviation below 0; expected 0 or more")
    return line.number, ReportedScore(score=score, **values)


def _unknown_environments(lines: Mapping[str, int]) -> list[str]:
    """The environments that are not known here in any version; an error for one that is nearly.

    ``lines`` are the first ones of each environment.
    """
    import gymnasium

    known = {task_of(name): name for name in [*gymnasium.registry, *environment_names()]}
    unknown = [name for name in sorted(lines) if task_of(name) not in known]
    for name in unknown:
        near = [each for each in known if each.lower() == task_of(name).lower()]
        near = near or get_close_matches(task_of(name), known, n=1, cutoff=0.9)
        # Many names of games are short and similar, and a much longer name is another game.
        if near and "/" not in name and abs(len(near[0]) - len(task_of(name))) <= TYPOS:
            raise _LineError(
                lines[name], f"unknown environment {name!r}; did you mean {known[near[0]]!r}?"
            )
    return unknown
