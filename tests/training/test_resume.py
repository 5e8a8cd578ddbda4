"""A trial that is killed and resumed ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

ARGUMENTS = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--seeds", "0",
    "--env-steps", "9000", "--workers", "2", "--quiet",
    "--set", "algorithms.openai_es.population_size=8",
    "--set", "algorithms.openai_es.learning_rate=0.1",
    "--set", "policy.hidden=[8]",
    "--set", "evaluation.episodes=5",
]  # fmt: skip

Outcome: TypeAlias = tuple[list[dict[str, Any]], dict[str, Any]]

SCRIPT = """
import sys
import esbench.training.trainer
from esbench.cli import main

if __name__ == "__main__":
    esbench.training.trainer.CHECKPOINT_SECONDS = float(sys.argv.pop(1))
    main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of all processes."""
    return tmp_path_factory.mktemp("resume")


def launch(
    folder: Path, out: str, every: float, arguments: Sequence[str] = ARGUMENTS
) -> subprocess.Popen[str]:
    """Start ``esbench`` with a checkpoint every ``every`` seconds."""
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), str(every), *arguments, "--out", out],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
    )


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``esbench run``; the processes end with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(out: Path, every: float = 0.0) -> subprocess.Popen[str]:
        started.append(launch(folder, str(out), every))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Outcome:
    """The outcome of an uninterrupted run."""
    with launch(folder, "whole", 1000.0) as process:
        assert process.communicate(timeout=120)[1] == ""
    return outcome(folder / "whole")


def outcome(folder: Path) -> Outcome:
    """The rows and the result of the only trial, without times."""
    (path,) = folder.rglob("result.json")
    rows = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    for table in (result := json.loads(path.read_text()), *rows):
        for key in [key for key in table if key.endswith("time_s") or key == "finished"]:
            del table[key]
    return rows, result


def rows_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("metrics.jsonl"))


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("every", "targets"),
    [(0.0, (1, 30, 31)), (0.1, (12, 31))],
    ids=["always-writing", "now-and-then"],
)
def test_killed_again_and_again_it_ends_with_the_same_bits(
    start: Callable[..., subprocess.Popen[str]],
    uninterrupted: Outcome,
    tmp_path: Path,
    every: float,
    targets: tuple[int, ...],
) -> None:
    out = tmp_path / "killed"
    kills = 0
    for target in targets:
        process = start(out, every)
        wait_for(lambda rows=target: rows_in(out) >= rows, process)
        if target == 30:  # in the middle of writing a checkpoint
            wait_for(lambda: list(out.rglob("*.tmp")), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= len(targets) - 1  # the last target may come too late on a busy machine
    last = start(out, every)
    stdout, stderr = last.communicate(timeout=120)
    assert (last.returncode, stderr) == (0, "")
    assert "done" in stdout
    assert outcome(out) == uninterrupted


def test_ctrl_c_saves_and_says_how_to_go_on(
    start: Callable[..., subprocess.Popen[str]], uninterrupted: Outcome, tmp_path: Path
) -> None:
    out = tmp_path / "stopped"
    process = start(out, 1000.0)
    wait_for(lambda: rows_in(out) >= 3, process)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    (log,) = out.rglob("log.txt")
    assert log.read_text() == ""  # the workers were not interrupted, they were told
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "Resume with: esbench run --env doubles:Walk-v0" in stderr
    assert list(out.rglob("state.json"))  # written on the way out
    again = start(out, 1000.0)
    assert again.communicate(timeout=120)[1] == ""
    assert outcome(out) == uninterrupted


def test_two_processes_do_not_run_the_same_trial(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    out = tmp_path / "shared"
    first = start(out)
    wait_for(lambda: rows_in(out) >= 1, first)
    first.send_signal(signal.SIGSTOP)  # it holds the trial for as long as this takes
    second = start(out)
    stdout, _ = second.communicate(timeout=60)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 0
    assert "another process runs it" in stdout
    first.communicate(timeout=120)
    rows, _ = outcome(out)
    assert [row["generation"] for row in rows] == list(range(1, len(rows) + 1))
