from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from esbench.store.provenance.record import PACKAGES, provenance

PROGRAM = 'from esbench.store.provenance.record import provenance; print(provenance()["command"])\n'


@pytest.mark.parametrize(
    ("file", "start", "command"),
    [
        ("tool/__main__.py", ["-m", "tool"], "python -m tool"),
        ("pack/train.py", ["-m", "pack.train"], "python -m pack.train"),
        ("own/script.py", ["own/script.py"], "python script.py"),
        ("bin/esbench", ["bin/esbench"], "esbench"),
        ("unused", ["-c", PROGRAM], "python -c"),
    ],
)
def test_the_command_says_how_it_was_started(
    tmp_path: Path, file: str, start: list[str], command: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *start, "run", "--set", "a=[1, 2]"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{command} run --set 'a=[1, 2]'\n"


def test_every_package_has_a_version() -> None:
    content = provenance()
    assert set(content["versions"]) == {"python", *PACKAGES}
    assert all(content["versions"].values())
    assert content["hardware"]["cores"] == os.cpu_count()
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    assert ("avx2" in content["hardware"]["instructions"].split()) == ("avx2" in flags)
