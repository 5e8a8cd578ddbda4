"""Sizes of a pool: the numbers of workers and of their slots, and of episodes to send at once."""

from __future__ import annotations

import os
from typing import Final

from esbench.core.errors import require_integer

DEFAULT_SLOTS: Final = 72
MOST_SLOTS: Final = 100_000
WORKERS_PER_CORE: Final = 8  # for environments that wait, such as those with a server
FEW_WORKERS: Final = 64  # allowed on every machine
# The smallest number of episodes sent at once. More could wait in a queue while a worker is idle.
PREFETCH: Final = 4


def usable_cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool_size(workers: int | None, slots: int) -> int:
    """The number of workers, by default one per core; UsageError for it or a number of slots."""
    if workers is not None:
        most = max(FEW_WORKERS, WORKERS_PER_CORE * usable_cores())
        require_integer("workers", workers, 1, most, ", the most on this machine")
    require_integer("slots", slots, 1, MOST_SLOTS)
    return workers or usable_cores()


def round_size(tasks: int, workers: int, slots: int) -> int:
    """The size of the equal rounds in which a worker plays its share.

    With rounds of unequal size, one last episode could run alone.
    """
    share = -(-tasks // workers)
    rounds = max(1, -(-share // slots))
    return max(1, -(-share // rounds))


def portion(pending: int, workers: int, most: int) -> int:
    """The number of episodes to send at once: half a fair share, so that all end together."""
    return max(1, min(most, pending // (2 * workers)))
