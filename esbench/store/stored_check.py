"""Reads the files of ``esbench check --json``, one per check, that a repository has kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

import msgspec

from esbench.core.errors import UsageError
from esbench.core.files import read_json

CHECK_FORMAT: Final = 1
EXPECTED: Final = "expected files of 'esbench check --json' by this version, and no other JSON"


@final
@dataclass(frozen=True)
class CheckedCell:
    """One cell of a check; the lists are in the order of ``seeds``, and empty if not measured.

    Attributes:
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
    scores: list[float]
    speeds: list[float | None]
    last_digests: list[str | None]
    origins: list[dict[str, Any]]


@final
@dataclass(frozen=True)
class StoredCheck:
    """A check; ``commit`` is that of the checkout it ran in, null outside of one."""

    commit: str | None
    commit_date: datetime | None
    created: datetime
    cells: list[CheckedCell]

    @property
    def date(self) -> datetime:
        """The date of the commit, or of the check if there is no commit."""
        date = self.commit_date or self.created
        return date if date.tzinfo else date.replace(tzinfo=UTC)


def read_checks(folders: Sequence[Path]) -> list[StoredCheck]:
    """The checks in the JSON files of folders, each file once, by date of commit, then of check.

    Raises:
        UsageError: a folder or its files do not exist, or a file is not of a check.
    """
    files: dict[Path, Path] = {}
    for folder in folders:
        if folder.is_file():
            raise UsageError(f"{str(folder)!r} is a file; expected its folder")
        paths = sorted(folder.rglob("*.json"))
        if not paths:
            what = "no JSON file in" if folder.is_dir() else "no folder"
            raise UsageError(f"{what} {str(folder)!r}; {EXPECTED}")
        for path in paths:
            files.setdefault(path.resolve(), path)
    found = [_read_check(path) for path in files.values()]
    return sorted(found, key=lambda check: (check.date, check.created.timestamp()))


def _read_check(path: Path) -> StoredCheck:
    content = read_json(path)
    if not isinstance(content, dict) or "cells" not in content:
        raise UsageError(f"{path} is not of a check; {EXPECTED}")
    if (known := content.get("format")) != CHECK_FORMAT:
        raise UsageError(f"{path}: format {known!r} of a check; {EXPECTED}")
    try:
        check = msgspec.convert(content, StoredCheck)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; {EXPECTED}") from None
    for cell in check.cells:
        sizes = {len(each) for each in (cell.seeds, cell.scores, cell.speeds, cell.last_digests)}
        if len(sizes) > 1:
            raise UsageError(
                f"{path}: {cell.algorithm} on {cell.environment}: lists of {sorted(sizes)} values; "
                "expected one of each per seed"
            )
    return check
