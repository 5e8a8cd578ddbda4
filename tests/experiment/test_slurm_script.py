"""The batch script for Slurm, run by bash with programs that stand for Slurm's and Python's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from esbench.core.errors import UsageError
from esbench.experiment.slurm_script import SlurmJob

Start: TypeAlias = Callable[[str], subprocess.Popen[str]]

# Stands for Python: says that it has started, and ends after SIGTERM with the given exit code.
TRAINER = """#!/bin/bash
trap 'exit {code}' TERM
touch started
while [[ ! -e go ]]; do sleep 0.02; done
exit {code}
"""
ARGUMENTS = """#!{python} -S
import json, sys
json.dump(sys.argv[1:], open("arguments.json", "w"))
"""
SCONTROL = """#!/bin/bash
echo "$@" > scontrol.txt
"""
VARIABLES = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "17", "SLURM_CPUS_ON_NODE": "3"}


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def job(**more: object) -> SlurmJob:
    known = {"name": "grid", "shards": 4, "summary": "4 trials", "out": Path("out")}
    return SlurmJob(**{**known, "arguments": ["quick"], **more})


def directives(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.startswith("#SBATCH ")]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a script as task 2 of job 17 in ``tmp_path``."""
    program(tmp_path / "scontrol", SCONTROL)
    started: list[subprocess.Popen[str]] = []

    def begin(script: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **VARIABLES, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    (tmp_path / "go").touch()  # ends what a failed test has left
    for process in started:
        process.kill()
        process.communicate()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name} for a minute"
        time.sleep(0.01)


def test_the_command_reaches_python_word_by_word(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path / "my python", ARGUMENTS.format(python=sys.executable))
    monkeypatch.setattr(sys, "executable", str(python))
    words = ["my grid.toml", "--set", "policy.hidden=[4, 8]", "--env", "it's $HOME;\n`ls`"]
    with start(job(arguments=words, out=Path("my out")).script()) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "shard 2/4" in out
    assert json.loads((tmp_path / "arguments.json").read_text()) == [
        "-m", "esbench", "run", *words,
        "--shard", "2/4", "--out", "my out/grid-2-of-4", "--workers", "3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "code", "requeued"),
    [
        (signal.SIGUSR1, 130, True),  # before the time limit, with something left
        (signal.SIGUSR1, 0, False),  # and when it was done just then
        (signal.SIGUSR1, 1, False),  # a trial has failed
        (None, 2, False),
    ],
)
def test_only_what_was_interrupted_is_requeued(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals | None,
    code: int,
    requeued: bool,
) -> None:
    python = program(tmp_path / "python", TRAINER.format(code=code))
    monkeypatch.setattr(sys, "executable", str(python))
    process = start(job().script())
    wait_for(tmp_path / "started")
    if number is None:
        (tmp_path / "go").touch()
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    assert (tmp_path / "scontrol.txt").exists() == requeued
    if requeued:
        assert (tmp_path / "scontrol.txt").read_text() == "requeue 17\n"


def test_the_end_of_a_job_waits_until_the_trials_are_saved(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path / "python", TRAINER.format(code=130))
    monkeypatch.setattr(sys, "executable", str(python))
    process = start(job().script())
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGTERM)  # Slurm sends it to every process; here one is late
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not (tmp_path / "scontrol.txt").exists()


def test_options_become_directives() -> None:
    options = ["account=abc", "--comment=two words", "exclusive"]
    chosen = {"partition": "a,b", "time": "1-12", "cpus_per_task": 16, "mem": "8G"}
    found = directives(job(**chosen, options=options).script())
    assert {
        "#SBATCH --partition=a,b", "#SBATCH --time=1-12", "#SBATCH --cpus-per-task=16",
        "#SBATCH --mem=8G", "#SBATCH --account=abc", "#SBATCH --comment='two words'",
        "#SBATCH --exclusive",
    } <= set(found)  # fmt: skip
    plain = directives(job().script())
    assert set(plain) < set(found)
    assert {
        "#SBATCH --array=1-4", "#SBATCH --requeue", "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:USR1@120", "#SBATCH --nodes=1",
    } <= set(plain)  # fmt: skip
    assert not any("--time" in line or "--mem" in line for line in plain)


@pytest.mark.parametrize(
    ("time", "is_too_short"),
    [
        *[(time, True) for time in ("4", "4:59", "0:04:59", "0-0", "0-0:04")],
        *[(time, False) for time in ("5", "300:00", "0:05:00", "4:00:00", "0-4", "UNLIMITED")],
    ],
)
def test_a_limit_that_leaves_no_time_to_save_is_refused(time: str, is_too_short: bool) -> None:
    if is_too_short:
        with pytest.raises(UsageError, match="5 minutes"):
            job(time=time).script()
    else:
        assert f"#SBATCH --time={time}" in job(time=time).script()


@pytest.mark.parametrize("option", ["", "=1", "Account=1", "a b=1", "array=2", "x=1\n2", "mem=1"])
def test_wrong_options_of_sbatch_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match="--.*expected"):
        job(options=[option]).script()
