"""What only Linux has, each with what takes its place elsewhere, such as on macOS.

No other module asks for the platform, reads ``/proc`` or calls functions of Linux alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

SELF: Final = Path("/proc/self")
CPU: Final = Path("/proc/cpuinfo")


def is_linux() -> bool:
    """Whether programs draw through X or Wayland, and need neither for OpenGL."""
    return sys.platform == "linux"


def allowed_cores() -> int:
    """The number of cores in the affinity of this process; elsewhere, of the machine."""
    affine = getattr(os, "sched_getaffinity", None)
    return len(affine(0)) if affine else os.cpu_count() or 1


def cpu_info(key: str) -> str:
    """A line of the kernel's description of the first processor; empty if there is none."""
    with contextlib.suppress(OSError), CPU.open(encoding="utf-8") as lines:
        return next((x.partition(":")[2].strip() for x in lines if x.startswith(key)), "")
    return ""


def death_of(number: int) -> int:
    """A descriptor that becomes readable when a process dies; elsewhere, one that never does."""
    try:
        return os.pidfd_open(number)
    except (AttributeError, OSError):  # macOS, an old kernel or a sandbox has none
        return os.pipe()[0]


def cpu_quotas(process: Path) -> list[float]:
    """The quotas of CPUs in the cgroups of a process and their ancestors; elsewhere none."""
    found: list[float] = []
    with contextlib.suppress(OSError, ValueError):  # not on Linux, or unreadable
        for folder in _cgroups(process, "cpu"):
            found.append(_quota_of(folder))
    return found


def memory_limits(process: Path) -> list[int]:
    """The limits of memory in the cgroups of a process and their ancestors [bytes]."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for folder in _cgroups(process, "memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # such as "max"
                    found.append(int((folder / name).read_text()))
    return found


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
