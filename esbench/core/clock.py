"""Waiting with a limit that does not count the time in which this process could not run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Final, final

TICK: Final = 0.5  # seconds between two looks at a clock, at most
LATE: Final = 2 * TICK


@final
class RunningTime:
    """The seconds in which this process could run; look at it every ``TICK`` seconds.

    A look that comes much later is that of a process that was stopped or frozen. With a container
    or the machine, all that it waits for was frozen, too; Ctrl-Z leaves its child processes
    running. The time until then counts as one ``TICK``, at most ``stops`` times: what is slow is
    late at every look.
    """

    def __init__(self, stops: float = math.inf) -> None:
        self._last, self._total, self._stops = time.monotonic(), 0.0, stops

    def __call__(self) -> float:
        """The seconds so far."""
        now = time.monotonic()
        since, self._last = now - self._last, now
        is_stop = since > LATE and self._stops > 0
        self._stops -= is_stop
        self._total += TICK if is_stop else since
        return self._total


def within(seconds: float) -> Iterator[float]:
    """Yield how long to wait next [s], until this process has run for ``seconds``."""
    running = RunningTime()
    while (left := seconds - running()) > 0:
        yield min(left, TICK)


def join(threads: Sequence[Thread], seconds: float) -> bool:
    """Wait until threads have ended, at most so long in all; whether they have."""
    for wait in within(seconds):
        running = [thread for thread in threads if thread.is_alive()]
        if not running:
            break
        running[0].join(wait)
    return not any(thread.is_alive() for thread in threads)
