"""The cores and the memory that this process may use: by its affinity, limits and cgroups."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

SELF: Final = Path("/proc/self")


def usable_cores() -> int:
    """The number of cores that this process may use; a quota of 1.5 CPUs counts as 2.

    With one worker less, a part of the quota would stay idle.
    """
    affine = getattr(os, "sched_getaffinity", None)
    cores = len(affine(0)) if affine else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota())))


@functools.cache
def cpu_quota(process: Path = SELF) -> float:
    """The smallest quota of CPUs in the cgroups of a process and their ancestors; else infinite.

    ``process`` is its folder in Linux's ``/proc``.
    """
    found = [math.inf]
    with contextlib.suppress(OSError, ValueError):  # not on Linux, or unreadable
        for folder in _cgroups(process, "cpu"):
            found.append(_quota_of(folder))
    return min(found)


@functools.cache
def usable_memory(process: Path = SELF) -> int:
    """The bytes of memory that a process may use at most; ``process`` as in ``cpu_quota``."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    found += [most for most in resource.getrlimit(resource.RLIMIT_AS) if most > 0]
    with contextlib.suppress(OSError, ValueError):
        for folder in _cgroups(process, "memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # such as "max"
                    found.append(int((folder / name).read_text()))
    return min(found)


def _cgroups(process: Path, controller: str) -> Iterator[Path]:
    """The folders of the cgroups of a process that can limit something, and their ancestors."""
    memberships = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
    for line in (process / "mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        root, top = place.split()[3:5]
        system, _, options = kind.split(maxsplit=2)
        if system == "cgroup" and controller not in options.split(","):
            continue
        for _, controllers, name in memberships:  # none in version 2 of cgroups
            is_named = controller in controllers.split(",")
            if (system, is_named) in {("cgroup2", False), ("cgroup", True)}:
                path = PurePosixPath(name)
                # In a container, the mount may begin at the cgroup of the container.
                folder = Path(top, path.relative_to(root if path.is_relative_to(root) else "/"))
                yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _quota_of(folder: Path) -> float:
    """The quota of one cgroup, in CPUs."""
    for names in ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
        with contextlib.suppress(OSError, ValueError):  # such as "max"
            words = " ".join((folder / name).read_text() for name in names).split()
            quota, period = map(float, words)
            return quota / period if quota > 0 else math.inf
    return math.inf
