"""The cores and the memory that this process may use: by its affinity, limits and cgroups."""

from __future__ import annotations

import functools
import math
import os
import resource
from pathlib import Path

from esbench.core.linux import SELF, allowed_cores, cpu_quotas, memory_limits


def usable_cores() -> int:
    """The number of cores that this process may use; a quota of 1.5 CPUs counts as 2.

    With one worker less, a part of the quota would stay idle.
    """
    return max(1, math.ceil(min(allowed_cores(), cpu_quota())))


@functools.cache
def cpu_quota(process: Path = SELF) -> float:
    """The smallest quota of CPUs in the cgroups of a process and their ancestors; else infinite.

    ``process`` is its folder in Linux's ``/proc``.
    """
    return min([math.inf, *cpu_quotas(process)])


@functools.cache
def usable_memory(process: Path = SELF) -> int:
    """The bytes of memory that a process may use at most; ``process`` as in ``cpu_quota``."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    found += [most for most in resource.getrlimit(resource.RLIMIT_AS) if most > 0]
    return min([*found, *memory_limits(process)])
