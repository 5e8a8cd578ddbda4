"""A lock file that one process holds until it ends, by ``flock``.

The ``filelock`` package only has exclusive locks: reading the status of a trial would then need
write access, create the file, and look like an owner to other processes. A shared ``flock`` does
none of this.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO, Final

PATIENCE_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.02


def take(lock: IO[bytes]) -> bool:
    """Try to lock an open file until it is closed; returns whether it succeeded.

    Waits for brief status checks (``is_taken``), not for an owner.

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
    """Whether a process holds the lock file, which need not exist."""
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
