"""A job array on a real Slurm, with tasks that are interrupted, requeued and resumed.

Slurm must be installed (Debian: slurm-wlm and munge); ``start_slurm.sh`` starts one of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from command_line import Run

from esbench import load_results

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue")
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]
GRID = [
    "--env", "doubles:Gated-v0", "--algorithm", "openai_es", "--algorithm", "snes",
    "--seeds", "0-2", "--env-steps", "3000", "--set", "policy.hidden=[4]",
    "--set", "evaluation.episodes=3", "--set", "algorithms.openai_es.population_size=8",
    "--set", "algorithms.snes.population_size=8",
]  # fmt: skip
MINUTES = 5.0

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"Slurm is not installed: no {', '.join(MISSING)}"
)


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


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60 * MINUTES
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {MINUTES} minutes"
        time.sleep(0.1)


def restarts(task: str) -> int:
    (number,) = re.findall(r" Restarts=(\d+)", told("scontrol", "show", "job", task))
    return int(number)


def rows(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("metrics.jsonl"))


def outcome(folder: Path) -> tuple[list[str], list[object]]:
    """The digests of all generations, and the scores of all trials."""
    results = [json.loads(path.read_text()) for path in sorted(folder.rglob("result.json"))]
    kept = ("score", "returns", "lengths", "generations", "digest")
    return (
        load_results(folder)["digest"].tolist(),
        [[result[key] for key in kept] for result in results],
    )


def test_interrupted_tasks_are_requeued_and_reach_the_same_bits(
    cluster: None, esbench: Run, tmp_path: Path
) -> None:
    name = "doubles_Gated-v0+openai_es+snes"
    shards = [tmp_path / "shards" / f"{name}-{number}-of-3" for number in (1, 2, 3)]
    (tmp_path / "closed").touch()  # no task can finish
    submit = ["slurm", *GRID, "--array", "3", "--cpus-per-task", "1", "--out", "shards", "--submit"]
    code, out, err = esbench(*submit)
    assert (code, err) == (0, "")
    (job,) = re.findall(r"Submitted batch job (\d+)", out)
    for folder in shards:
        wait_until(partial(rows, folder), f"training in {folder}")
    told("scancel", "--batch", "--signal=USR1", f"{job}_1")  # as before the time limit
    told("scontrol", "requeue", f"{job}_2")  # as for a job of higher priority
    for task in ("1", "2"):
        wait_until(partial(restarts, f"{job}_{task}"), f"requeue of task {task}")
    assert not list(tmp_path.rglob("result.json"))
    before = [rows(folder) for folder in shards]
    (tmp_path / "closed").unlink()
    wait_until(lambda: not told("squeue", "--noheader"), "the end of the jobs")

    tasks = told("scontrol", "show", "job", job)
    assert re.findall(r"JobState=(\w+)", tasks) == ["COMPLETED"] * 3
    logs = [path.read_text() for path in sorted(tmp_path.glob(f"*-{job}_*.log"))]
    assert [log.count(" shard ") for log in logs] == [2, 2, 1]
    for log, least in zip(logs[:2], before, strict=False):
        (resumed,) = re.findall(r"resumed after generation (\d+)", log)
        assert 1 <= int(resumed) <= least
    code, out, err = esbench("merge", *map(str, shards), "--out", "merged")
    assert (code, err, "6 copied" in out) == (0, "", True)
    assert esbench("run", *GRID, "--out", "plain", "--quiet")[0] == 0
    assert outcome(tmp_path / "merged") == outcome(tmp_path / "plain")
