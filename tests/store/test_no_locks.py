"""A file system without flock: one sentence that says what to do, and readers still read."""

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, files
from fake_trials import make_records, make_trials, write_scores, write_trial

GRID = ("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0")
TUNE = ("tune", *GRID[:-2], "--trials", "1", "--workers", "1")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Three trials that are done and one that is not, on a disk with locks."""
    write_scores(tmp_path / "out", [100.0, 200.0, 300.0])
    (trial,) = make_trials(tmp_path / "out", seeds=[3])
    write_trial(trial, make_records([1.0]))
    return tmp_path / "out"


@pytest.fixture
def without_locks(out: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    def refuse(*_: Any) -> None:
        raise OSError(code, "none here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    return out


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize(
    "words",
    [
        ("run", *GRID, "--workers", "1", "--out", "new"),
        ("merge", "out", "--out", "new"),
        (*TUNE, "--out", "new"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_locks_says_what_to_do(
    esbench: Run, without_locks: Path, words: tuple[str, ...]
) -> None:
    before = files(without_locks)
    code, _, err = esbench(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "no locks (none here)" in err
    assert "expected a folder on a local disk" in err
    assert "resumes" not in err
    assert files(without_locks) == before


@pytest.mark.parametrize("code", [errno.ENOLCK])
@pytest.mark.parametrize("command", ["table", "status", "diagnose"])
def test_results_are_read_without_locks(esbench: Run, without_locks: Path, command: str) -> None:
    words = ("status", *GRID[:-1], "0-3", "--env-steps", "1000", "--out", "out")
    code, out, _ = esbench(*(words if command == "status" else (command, "out")))
    assert code == 0
    assert "running" not in out
