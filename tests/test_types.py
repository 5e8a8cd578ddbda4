"""The types hold. A test, so that it runs beside the others: alone it would keep a core idle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_mypy_finds_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
