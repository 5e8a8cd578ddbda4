"""The batch script that trains a grid as a job array on a Slurm cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from esbench.core.errors import UsageError

WARNING_SECONDS: Final = 120  # before the time limit; Slurm may be a minute early
# Below five minutes, as minutes[:seconds], hours:minutes:seconds or days-hours[:minutes[:seconds]].
TOO_SHORT: Final = re.compile(r"(?:0+:)?0*[0-4](?::\d+)?|0+-0+(?::0*[0-4](?::\d+)?)?")
CHOSEN: Final = ("partition", "time", "cpus-per-task", "mem")  # options of this command
OURS: Final = (*CHOSEN, "array", "no-requeue", "nodes", "ntasks", "requeue", "signal")

SCRIPT: Final = """\
#!/bin/bash
# {summary}
{directives}

# Before the time limit: save the trials, and wait in the queue to resume them.
requeue() {{
    trap '' TERM
    kill -TERM $!
    wait $!
    code=$?
    if ((code > 128)); then  # interrupted, so something is left to train
        scontrol requeue "$SLURM_JOB_ID"
    fi
    exit "$code"
}}
trap requeue USR1
# Slurm ends a job by sending this to all of its processes: the trials are saved.
trap 'wait $!; exit' TERM

echo "$(date '+%F %T') shard $SLURM_ARRAY_TASK_ID/{shards} on $SLURMD_NODENAME, job $SLURM_JOB_ID,\
 restart ${{SLURM_RESTART_COUNT:-0}}"
{command} &
wait $!
"""


@final
@dataclass(frozen=True)
class SlurmJob:
    """A job array with one task per shard of a grid, on one node each.

    Attributes:
        name: of the grid.
        shards: number of tasks.
        summary: a line of text about the shards.
        out: the folder of the shards' output folders.
        arguments: of ``esbench run``, without its output folder.
        partition: None for the cluster's default, as below.
        time: of one start; a task that needs more is requeued.
        cpus_per_task: CPUs of a task.
        mem: memory of a task, such as "8G".
        options: further options of sbatch, such as "account=abc".
    """

    name: str
    shards: int
    summary: str
    out: Path
    arguments: Sequence[str]
    partition: str | None = None
    time: str | None = None
    cpus_per_task: int | None = None
    mem: str | None = None
    options: Sequence[str] = ()

    def script(self) -> str:
        """The text for sbatch; UsageError if ``time`` or one of ``options`` is wrong."""
        if TOO_SHORT.fullmatch(self.time or ""):
            raise UsageError(
                f"--time {self.time!r}: expected 5 minutes or more, because the trials are saved "
                f"{WARNING_SECONDS // 60} minutes before the limit"
            )
        return SCRIPT.format(
            summary=self.summary,
            shards=self.shards,
            directives="\n".join(f"#SBATCH --{option}" for option in self._directives()),
            command=self._command(),
        )

    def _directives(self) -> list[str]:
        chosen = {name: getattr(self, name.replace("-", "_")) for name in CHOSEN}
        return [
            f"job-name=esbench-{self.name}",
            f"array=1-{self.shards}",
            "nodes=1",
            "ntasks=1",
            *(_directive(name, str(value)) for name, value in chosen.items() if value is not None),
            "output=%x-%A_%a.log",
            "open-mode=append",
            *map(_option, self.options),
            "requeue",
            f"signal=B:USR1@{WARNING_SECONDS}",
        ]

    def _command(self) -> str:
        """The command of a task; Slurm knows its shard and its CPUs."""
        words = [sys.executable, "-m", "esbench", "run", *self.arguments]
        task = '"$SLURM_ARRAY_TASK_ID"'
        folder = f"{shlex.quote(f'{self.out}/{self.name}-')}{task}-of-{self.shards}"
        own = f"--shard {task}/{self.shards} --out {folder}"
        if "--workers" not in self.arguments:
            own += ' --workers "$SLURM_CPUS_ON_NODE"'
        return f"{shlex.join(words)} \\\n    {own}"


def submit_script(script: str) -> str:
    """Submit a batch script; returns what sbatch says. UsageError if it is missing or refuses."""
    try:
        done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(
            f"cannot run sbatch ({error.strerror}); expected a machine of a Slurm cluster; without "
            "--submit, the script is printed"
        ) from None
    if done.returncode:
        said = "; ".join(done.stderr.split("\n")).strip("; ")
        raise UsageError(f"sbatch refuses the job: {said or f'exit code {done.returncode}'}")
    return done.stdout.strip()


def _option(text: str) -> str:
    """An option of sbatch as a directive."""
    name, equals, value = text.removeprefix("--").partition("=")
    if name in OURS:
        raise UsageError(f"--sbatch {text!r}: expected an option that esbench slurm does not set")
    return _directive(name, value) if value else f"{name}{equals}"


def _directive(name: str, value: str) -> str:
    if not value.isprintable():
        raise UsageError(f"--{name} {value!r}: expected one line of text")
    return f"{name}={shlex.quote(value)}"
