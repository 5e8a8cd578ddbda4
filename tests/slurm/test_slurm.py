"""The batch script for Slurm: what it runs, ``esbench slurm`` and a job array on a real Slurm.

The script runs under bash, with programs that stand for Slurm's and Python's. For the last test
Slurm must be installed (Debian: slurm-wlm and munge); ``start_slurm.sh`` starts one of its own.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from command_line import Run, files
from fake_trials import outcome

from esbench import load_results, run
from esbench.experiment.slurm_script import slurm_script

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


def job(**more: object) -> str:
    known = {"name": "grid", "shards": 4, "summary": "4 trials", "out": Path("out")}
    return slurm_script(**{**known, "arguments": ["quick"], **more})


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


def wait_until(condition: Callable[[], object], what: str, minutes: float = 1) -> None:
    deadline = time.monotonic() + 60 * minutes
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {minutes} minutes"
        time.sleep(0.02)


def test_the_command_reaches_python_word_by_word(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path / "my python", ARGUMENTS.format(python=sys.executable))
    monkeypatch.setattr(sys, "executable", str(python))
    words = ["my grid.toml", "--set", "policy.hidden=[4, 8]", "--env", "it's $HOME;\n`ls`"]
    with start(job(arguments=words, out=Path("my out"))) as process:
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
        (signal.SIGTERM, 130, False),  # Slurm sends it to every process; here one is late
        (None, 2, False),
    ],
)
def test_a_job_waits_for_its_trials_and_only_what_was_interrupted_is_requeued(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals | None,
    code: int,
    requeued: bool,
) -> None:
    python = program(tmp_path / "python", TRAINER.format(code=code))
    monkeypatch.setattr(sys, "executable", str(python))
    process = start(job())
    wait_until((tmp_path / "started").exists, "the start of the trainer")
    if number is not None:
        process.send_signal(number)
    if number is not signal.SIGUSR1:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        (tmp_path / "go").touch()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    told = tmp_path / "scontrol.txt"
    assert (told.read_text() if told.exists() else "") == "requeue 17\n" * requeued


def test_options_become_directives() -> None:
    options = ["account=abc", "--comment=two words", "exclusive"]
    chosen = {"partition": "a,b", "time": "1-12", "cpus_per_task": 16, "mem": "8G"}
    plain, found = (set(made.splitlines()) for made in (job(), job(**chosen, options=options)))
    fixed = ["array=1-4", "requeue", "open-mode=append", "signal=B:USR1@120", "nodes=1"]
    assert {f"#SBATCH --{each}" for each in fixed} <= plain
    assert found - plain == {
        "#SBATCH --partition=a,b", "#SBATCH --time=1-12", "#SBATCH --cpus-per-task=16",
        "#SBATCH --mem=8G", "#SBATCH --account=abc", "#SBATCH --comment='two words'",
        "#SBATCH --exclusive",
    }  # fmt: skip


# The command

GRID = ["--env", "doubles:Walk-v0", "--algorithm", "snes", "--algorithm", "openai_es"]
SMALL = [
    *GRID, "--seeds", "0-1", "--env-steps", "150", "--workers", "1", "--set", "policy.hidden=[4]",
    "--set", "evaluation.episodes=3", "--set", "algorithms.openai_es.population_size=4",
]  # fmt: skip


def command_of(script: str) -> list[str]:
    """The words of the command that a task runs."""
    lines = script.replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if " -m esbench run " in line]
    return shlex.split(line)


def test_the_script_parses_and_passes_the_options_of_run_on(esbench: Run, tmp_path: Path) -> None:
    passed = [
        "quick", "--env", "CartPole-v1", "--algorithm", "snes", "--seeds", "0-3",
        "--env-steps", "999", "--set", "policy.hidden=[4, 8]", "--set", "evaluation.episodes=3",
        "--extend", "--workers", "2", "--at-once", "2", "--keep", "3",
        "--record", "members", "--callback", "numpy:sum", "--quiet", "--track", "tensorboard",
        "--episode-timeout", "60.0", "--trial-timeout", "3600.0",
    ]  # fmt: skip
    own = ["--array", "3", "--time", "1:00:00", "--partition", "p", "--mem", "2G"]
    own += ["--cpus-per-task", "100000"]  # a node may have more than this machine
    code, out, err = esbench("slurm", *own, *passed, "--out", "my out")
    assert (code, err) == (0, "")
    assert not files(tmp_path)
    check = subprocess.run(["bash", "-n"], input=out, text=True, capture_output=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")
    words = command_of(out)
    assert words[words.index("run") + 1 : words.index("--shard")] == passed
    assert "4 trials in 3 shards" in out
    assert "#SBATCH --job-name=esbench-quick" in out
    assert "my out/quick-$SLURM_ARRAY_TASK_ID-of-3" in words


def test_submit_gives_the_script_to_sbatch(
    esbench: Run, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "sbatch"
    fake.write_text("#!/bin/bash\ncat > script\necho Submitted batch job 5\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    arguments = ["slurm", *GRID, "--array", "2"]
    printed = esbench(*arguments)[1]
    assert esbench(*arguments, "--submit") == (0, "Submitted batch job 5\n", "")
    assert (tmp_path / "script").read_text() == printed
    fake.write_text("#!/bin/bash\necho 'error: no partition x' >&2; exit 1\n")
    assert "no partition x" in esbench(*arguments, "--submit")[2]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch" in refused(*arguments, "--submit")


def test_shards_make_the_grid(esbench: Run, tmp_path: Path) -> None:
    assert esbench("run", *SMALL, "--shard", "1/2", "--quiet")[::2] == (0, "")
    settings = [word for word in SMALL if "." in word]
    chosen = {"algorithm": ["snes", "openai_es"], "seeds": "0-1", "env_steps": 150}
    options = {**chosen, "overrides": settings, "workers": 1, "quiet": True}
    second = run(env="doubles:Walk-v0", shard="2/2", **options)
    assert second["status"].tolist() == ["done"] * 2
    status = [word for word in SMALL if word not in {"--workers", "1"}]
    for shard in ("1/2", "2/2"):
        assert ": 2 done" in esbench("status", *status, "--shard", shard)[1]
    (shards,) = (tmp_path / "results/runs").iterdir()
    assert sorted(path.name[-7:] for path in shards.iterdir()) == ["-1-of-2", "-2-of-2"]
    code, out, _ = esbench("merge", *map(str, shards.iterdir()), "--out", "all")
    assert (code, "4 copied" in out) == (0, True)
    assert len(run(env="doubles:Walk-v0", out="plain", **options)) == 4
    assert load_results("all")["digest"].tolist() == load_results("plain")["digest"].tolist()


# A real Slurm

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue")
MINUTES = 5
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]
GATED = [
    "--env", "doubles:Gated-v0", "--algorithm", "openai_es", "--algorithm", "snes",
    "--seeds", "0-2", "--env-steps", "3000", "--set", "policy.hidden=[4]",
    "--set", "evaluation.episodes=3", "--set", "algorithms.openai_es.population_size=8",
    "--set", "algorithms.snes.population_size=8",
]  # fmt: skip


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Slurm of this machine, which the programs of Slurm find by SLURM_CONF."""
    script = Path(__file__).parent / "start_slurm.sh"
    # The environment of the jobs is that of sbatch, so they import what this process can.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    # It ends with its input, so also when this process is killed.
    command = ["bash", str(script), "bash", "-c", 'echo "$SLURM_CONF"; cat']
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        configuration = process.stdout.readline().strip()
        assert configuration, "Slurm did not start"
        monkeypatch.setenv("SLURM_CONF", configuration)
        yield
        process.stdin.close()


def told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def restarts(task: str) -> int:
    (number,) = re.findall(r" Restarts=(\d+)", told("scontrol", "show", "job", task))
    return int(number)


def rows(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("metrics.jsonl"))


@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: no {', '.join(MISSING)}")
def test_interrupted_tasks_are_requeued_and_reach_the_same_bits(
    cluster: None, esbench: Run, tmp_path: Path
) -> None:
    name = "doubles_Gated-v0+openai_es+snes"
    shards = [tmp_path / "shards" / f"{name}-{number}-of-3" for number in (1, 2, 3)]
    (tmp_path / "closed").touch()  # no task can finish
    submit = [
        "slurm",
        *GATED,
        "--array",
        "3",
        "--cpus-per-task",
        "1",
        "--out",
        "shards",
        "--submit",
    ]
    code, out, err = esbench(*submit)
    assert (code, err) == (0, "")
    (job,) = re.findall(r"Submitted batch job (\d+)", out)
    for folder in shards:
        wait_until(partial(rows, folder), f"training in {folder}", MINUTES)
    told("scancel", "--batch", "--signal=USR1", f"{job}_1")  # as before the time limit
    told("scontrol", "requeue", f"{job}_2")  # as for a job of higher priority
    for task in ("1", "2"):
        wait_until(partial(restarts, f"{job}_{task}"), f"requeue of task {task}", MINUTES)
    assert not list(tmp_path.rglob("result.json"))
    before = [rows(folder) for folder in shards]
    (tmp_path / "closed").unlink()
    wait_until(lambda: not told("squeue", "--noheader"), "the end of the jobs", MINUTES)

    tasks = told("scontrol", "show", "job", job)
    assert re.findall(r"JobState=(\w+)", tasks) == ["COMPLETED"] * 3
    logs = [path.read_text() for path in sorted(tmp_path.glob(f"*-{job}_*.log"))]
    assert [log.count(" shard ") for log in logs] == [2, 2, 1]
    for log, least in zip(logs[:2], before, strict=False):
        (resumed,) = re.findall(r"resumed after generation (\d+)", log)
        assert 1 <= int(resumed) <= least
    code, out, err = esbench("merge", *map(str, shards), "--out", "merged")
    assert (code, err, "6 copied" in out) == (0, "", True)
    assert esbench("run", *GATED, "--out", "plain", "--quiet")[0] == 0
    assert outcome(tmp_path / "merged") == outcome(tmp_path / "plain")
