"""Writes what commands make of trials: tables, figures, reports, films and policies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from esbench.core.clock import within
from esbench.core.errors import UsageError
from esbench.core.files import disk_errors, replace
from esbench.store.lock import PAUSE_SECONDS, NoLocksError, take
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


PATIENCE_SECONDS: Final = 10.0


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes from changing its files inside the block.

    If it was missing and is empty in the end, it is removed.

    Raises:
        UsageError: another process is in such a block for longer than ``PATIENCE_SECONDS``, or
            the file system refuses.
    """
    with only_holder(folder / ".lock", f"another process writes to {folder}"):
        yield


@contextlib.contextmanager
def only_holder(path: Path, busy: str, waits: bool = True) -> Iterator[None]:
    """Hold a lock file, which is there inside the block only; its folder as ``only_writer``.

    Raises:
        UsageError: ``busy``, if another process holds it, for longer than ``PATIENCE_SECONDS`` if
            this one ``waits``; or the file system refuses.
    """
    missing = [each for each in path.parents if not each.exists()]
    try:
        for _ in within(PATIENCE_SECONDS if waits else PAUSE_SECONDS):
            with disk_errors(path.parent, then=""):
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = path.open("a+b")
            with lock:
                if take(lock) and _is_at(lock, path):
                    try:
                        yield
                    finally:
                        path.unlink(missing_ok=True)
                    return
            time.sleep(PAUSE_SECONDS)
    except NoLocksError:
        path.unlink(missing_ok=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # it is not empty
            for each in missing:
                each.rmdir()
    raise UsageError(f"{busy}; run the command again when it has ended")


def _is_at(lock: IO[bytes], path: Path) -> bool:
    """Whether an open file is still that of a path, which its last owner may have removed."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
