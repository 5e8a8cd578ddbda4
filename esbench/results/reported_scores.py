"""Scores that others report, in ``results/published/``: read, but not verified by training."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Literal, final

from pydantic import AfterValidator, Field

from esbench.core.errors import UsageError
from esbench.core.files import read_json
from esbench.core.settings import Count, Settings, parse

PUBLISHED: Final = Path("results/published")
MOST_SCORE: Final = 1e15
# It begins with a letter or a digit, so that no spreadsheet computes it, and has no markup.
NAME: Final = re.compile(r"\w[\w .+/():,#&-]{0,99}")
# What is said about a table: printable, on one line.
_SOURCE: Final = re.compile(r"https?://[^\s<>\"'`|\\]{1,300}|[\w.+-][\w .+-]{0,99}")

# A name of an Atari game without its version, of Gymnasium, the ALE or esbench.
_GAME: Final = re.compile(
    r"(?P<package>esbench/|ALE/|ale_py:)?(?P<game>\w+?(-ram)?)(?P<protocol>NoFrameskip|Deterministic)?"
)


def checked_name(text: str) -> str:
    """The name of an environment or an algorithm; ValueError for markup or a formula."""
    if not NAME.fullmatch(text) or not text.isprintable():
        raise ValueError("expected a name of letters, digits, spaces and . + - / ( ) : , # & _")
    return text


def checked_source(text: str) -> str:
    """The web address or the name of the file of a table; ValueError for any other text."""
    if not _SOURCE.fullmatch(text):
        raise ValueError("expected a web address, or the name of a file without its folder")
    return text


def checked_words(text: str) -> str:
    """A remark on one line; ValueError for others and for markup."""
    if len(text) > 300 or not text.isprintable() or re.search(r"[<>`|\\$\[\]]|^\s*[=+@-]", text):
        raise ValueError("expected at most 300 characters on one line, without markup")
    return text


def checked_date(text: str) -> str:
    """A date as year-month-day; ValueError for other text."""
    return date.fromisoformat(text).isoformat()


Name = Annotated[str, AfterValidator(checked_name)]
Words = Annotated[str, AfterValidator(checked_words)]


@final
class ReportedScore(Settings):
    """One row of a table; what the table does not say is null.

    Attributes:
        score: what ``ReportedTable.measure`` says.
        deviation: standard deviation, over the episodes or the seeds of the score.
        env_steps: of training.
        episodes: of evaluation.
        seeds: trainings that the score is a mean of.
    """

    environment: Name
    algorithm: Name
    score: Annotated[float, Field(ge=-MOST_SCORE, le=MOST_SCORE)]
    deviation: Annotated[float, Field(ge=0, le=MOST_SCORE)] | None = None
    env_steps: Count | None = None
    episodes: Count | None = None
    seeds: Count | None = None


@final
class ReportedTable(Settings):
    """A table of somebody else, with where it is from.

    Attributes:
        source: its web address, or the name of its file.
        imported: when it was read, as year-month-day.
        measure: what a score is.
        versions: of the software; empty if unknown.
    """

    format: Literal[1] = 1
    source: Annotated[str, AfterValidator(checked_source)]
    imported: Annotated[str, AfterValidator(checked_date)]
    measure: Words
    versions: Words = ""
    rows: Annotated[tuple[ReportedScore, ...], Field(min_length=1)]


@final
@dataclass(frozen=True)
class ReportedRow:
    """A reported score with its table; it is never part of a statistic."""

    reported: ReportedScore
    table: ReportedTable

    @property
    def task(self) -> str:
        """The environment without its version."""
        return task_of(self.reported.environment)

    def is_of(self, environment: str) -> bool:
        """Whether it is of an environment in this version, also under another name."""
        return _own_name(self.reported.environment) == _own_name(environment)


def task_of(environment: str) -> str:
    """An environment without its version: "HalfCheetah" of "HalfCheetah-v5".

    An Atari game has one name for all packages and protocols: "ALE/Pong-v5" and
    "ale_py:PongNoFrameskip-v4" are "esbench/Pong".
    """
    task = re.sub(r"-v\d+$", "", environment)
    if (found := _GAME.fullmatch(task)) and (found["package"] or found["protocol"]):
        return f"esbench/{found['game']}"
    return task


def _own_name(environment: str) -> str:
    """The name of an environment without that of its package, or with esbench's for the ALE's."""
    return environment.removeprefix("ale_py:").replace("ALE/", "esbench/")


def read_reported(folder: Path) -> list[ReportedRow]:
    """The rows of all tables in a folder, by environment and with the best score first.

    UsageError if the folder has none, or a file is something else.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(
            f"no reported scores at {str(folder)!r}; expected files of: esbench import FILE"
        )
    found = [
        ReportedRow(row, table)
        for table in (parse(ReportedTable, read_json(path), str(path)) for path in files)
        for row in table.rows
    ]
    return sorted(found, key=lambda row: (row.reported.environment, -row.reported.score))
