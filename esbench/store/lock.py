"""A lock file that one process holds until it ends, however it ends (flock)."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO, Final

PATIENCE_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.02


def take(lock: IO[bytes]) -> bool:
    """Try to take an open lock file, until it is closed; returns whether it could.

    Those who only look (``is_taken``) share it for an instant: they are waited for. A process that
    has taken it is not.

    Raises:
        OSError: the file system refuses.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _locked(lock, fcntl.LOCK_EX):
        if not _locked(lock, fcntl.LOCK_SH) or time.monotonic() >= deadline:
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(PAUSE_SECONDS)
    return True


def is_taken(path: Path) -> bool:
    """Tell whether a process holds the lock file; it need not exist."""
    try:
        with path.open("rb") as lock:
            return not _locked(lock, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _locked(lock: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
