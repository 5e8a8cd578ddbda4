"""The batch script that trains a grid as a job array on a Slurm cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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


def slurm_script(
    name: str,
    shards: int,
    summary: str,
    out: Path,
    arguments: Sequence[str],
    options: Sequence[str] = (),
    **chosen: object,
) -> str:
    """A script for sbatch: a job array with one task per shard of a grid, on one node each.

    Args:
        name: of the grid.
        shards: number of tasks.
        summary: a line of text about the shards.
        out: the folder of the shards' output folders.
        arguments: of ``esbench run``, without its output folder.
        options: further options of sbatch, such as "account=abc".
        chosen: values of the options ``CHOSEN``; None for the cluster's default. A task that needs
            more than its ``time`` is requeued.

    Raises:
        UsageError: ``time`` or one of ``options`` is wrong.
    """
    if TOO_SHORT.fullmatch(str(chosen.get("time") or "")):
        raise UsageError(
            f"--time {chosen['time']!r}: expected 5 minutes or more, because the trials are saved "
            f"{WARNING_SECONDS // 60} minutes before the limit"
        )
    given = {key.replace("_", "-"): value for key, value in chosen.items() if value is not None}
    directives = [
        f"job-name=esbench-{name}",
        f"array=1-{shards}",
        "nodes=1",
        "ntasks=1",
        *(_directive(key, str(value)) for key, value in given.items()),
        "output=%x-%A_%a.log",
        "open-mode=append",
        *map(_option, options),
        "requeue",
        f"signal=B:USR1@{WARNING_SECONDS}",
    ]
    # Slurm knows the shard and the CPUs of a task.
    words = [sys.executable, "-m", "esbench", "run", *arguments]
    task = '"$SLURM_ARRAY_TASK_ID"'
    folder = f"{shlex.quote(f'{out}/{name}-')}{task}-of-{shards}"
    own = f"--shard {task}/{shards} --out {folder}"
    if "--workers" not in arguments:
        own += ' --workers "$SLURM_CPUS_ON_NODE"'
    return SCRIPT.format(
        summary=summary,
        shards=shards,
        directives="\n".join(f"#SBATCH --{directive}" for directive in directives),
        command=f"{shlex.join(words)} \\\n    {own}",
    )


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
