"""Writes what commands make of trials: tables, figures, reports, films and policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from esbench.core.errors import UsageError
from esbench.core.files import disk_errors, replace
from esbench.store.stored_json import KEPT

_TRIAL: Final = "trial.json"
_FILES: Final = frozenset(
    {
        _TRIAL, "metrics.jsonl", "members.jsonl.gz", "result.json", "best.json", "nodes.json",
        "error.txt", "log.txt", "lock",
    }
)  # fmt: skip


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically, and its folder.

    Raises:
        UsageError: the file system refuses, or the file belongs to a stored trial.
    """
    require_not_stored(path)
    with disk_errors(path, then=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)


def require_not_stored(path: Path) -> None:
    """Raises UsageError if ``path`` is that of a stored trial's file."""
    folder = path.parent.resolve()
    trial = folder.parent if folder.name in {"checkpoint", KEPT} else folder
    if (trial != folder or path.name in _FILES) and (trial / _TRIAL).exists():
        raise UsageError(
            f"cannot write {path}: it belongs to a stored trial; expected another path"
        )


def require_suffix(path: Path, *suffixes: str) -> None:
    """Raises UsageError if the name of a file to be written ends with none of ``suffixes``."""
    if path.suffix not in suffixes:
        raise UsageError(f"cannot write {path}: expected the suffix {' or '.join(suffixes)}")
