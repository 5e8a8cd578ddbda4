"""A lock file that one process holds until it ends, by ``flock``.

Unlike the exclusive locks of ``filelock``, a shared ``flock`` reads the status of a trial without
write access and does not look like an owner to other processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, final

from esbench.core.clock import within
from esbench.core.errors import UsageError

PATIENCE_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.02


@final
class NoLocksError(UsageError):
    """The file system has no locks."""


def take(lock: IO[bytes]) -> bool:
    """Try to lock a file until ``release``; returns whether it succeeded.

    Waits for brief status checks (``is_taken``), not for an owner. The file must be
    open for reading and writing: NFS requires the first for a shared lock, the second for an
    exclusive one. UsageError if its file system has no locks.
    """
    for _ in within(PATIENCE_SECONDS):
        if _locked(lock, fcntl.LOCK_EX):
            return True
        if not _locked(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(PAUSE_SECONDS)
    return False


def release(lock: IO[bytes]) -> None:
    """Unlock an open file, also for the processes that have inherited it."""
    fcntl.flock(lock, fcntl.LOCK_UN)


@contextlib.contextmanager
def shared(path: Path) -> Iterator[bool]:
    """Share a lock file inside the block, so that no process takes it; yields False if one has.

    Does not change the file. A file that is missing is free, and stays unlocked. UsageError if it
    cannot be read or locked.
    """
    try:
        lock = path.open("rb")
    except FileNotFoundError:
        yield True
        return
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    with lock:
        yield _locked(lock, fcntl.LOCK_SH)


def is_taken(path: Path) -> bool:
    """Whether a process holds the lock file, which need not exist.

    None does in a file system without locks, where no trial runs.
    """
    try:
        with shared(path) as free:
            return not free
    except NoLocksError:
        return False


def _locked(lock: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocksError(
            f"{lock.name}: its file system has no locks ({error.strerror}), which keep commands "
            "from writing there together; expected a folder on a local disk, or on a network file "
            "system that is mounted with flock"
        ) from None
    return True
