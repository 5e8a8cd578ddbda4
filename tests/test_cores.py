"""Workers and sizes respect the quotas and limits of every cgroup around the process."""

import math
import os
from pathlib import Path

import pytest

from esbench.core import cores

V2 = "30 23 0:26 {root} {top} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "31 30 0:27 {root} {top} rw - cgroup cgroup rw,cpu,cpuacct\n"
OTHER = (
    "32 30 0:28 / {top}/memory rw - cgroup cgroup rw,memory\n23 1 8:1 / / rw - ext4 /dev/sda rw\n"
)


@pytest.mark.parametrize(
    ("cgroup", "root", "mount", "content", "quota"),
    [
        ("0::/", "/", V2, {"cpu.max": "150000 100000"}, 1.5),  # in a container
        ("0::/", "/", V2, {"cpu.max": "max 100000"}, math.inf),
        ("0::/a/b", "/", V2, {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 0.5),
        ("0::/a/b", "/", V2, {"a/cpu.max": "300000 100000", "a/b/cpu.max": "200000 100000"}, 2.0),
        ("0::/a/b", "/a/b", V2, {"cpu.max": "200000 50000"}, 4.0),
        ("0::/a", "/b", V2, {"cpu.max": "100000 100000"}, 1.0),
        (
            "5:cpuacct,cpu:/a\n4:memory:/b\n0::/",
            *("/", V1),
            {"a/cpu.cfs_quota_us": "250000", "a/cpu.cfs_period_us": "100000", "b/cpu.max": "1 1"},
            2.5,
        ),
        (
            *("5:cpu,cpuacct:/", "/", V1),
            {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
            math.inf,
        ),
        ("0::/", "/", V2, {"cpu.max": "nonsense"}, math.inf),
        ("0::/", "/", "", {}, math.inf),
        ("nonsense", "/", V2, {"cpu.max": "100000 100000"}, math.inf),
    ],
)
def test_the_smallest_quota_of_all_cgroups_counts(
    tmp_path: Path, cgroup: str, root: str, mount: str, content: dict[str, str], quota: float
) -> None:
    top, process = tmp_path / "cgroup", tmp_path / "self"
    process.mkdir()
    (process / "cgroup").write_text(f"{cgroup}\n")
    (process / "mountinfo").write_text((OTHER + mount).format(root=root, top=top))
    for name, text in content.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{text}\n")
    assert cores.cpu_quota(process) == quota
    own = {"memory.max": 5 * 2**20} if mount == V2 else {"memory/memory.limit_in_bytes": 2**20}
    for name, most in own.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{most}\n")
    is_limited = cgroup.startswith("0") and mount == V2
    assert (cores.usable_memory(process) == 5 * 2**20) is is_limited


@pytest.mark.parametrize(
    ("quota", "affinity", "workers"),
    [(1.5, 8, 2), (0.2, 8, 1), (math.inf, 3, 3), (16.0, 3, 3), (2.0, 8, 2)],
)
def test_a_part_of_a_cpu_counts_as_a_core(
    monkeypatch: pytest.MonkeyPatch, quota: float, affinity: int, workers: int
) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    assert cores.usable_cores() == workers
