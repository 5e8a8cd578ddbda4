"""The command that trains a grid on a Slurm cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from esbench.cli.app import GridOptions, app, takes_options, write
from esbench.cli.training_commands import run
from esbench.core.errors import require_integer
from esbench.core.settings import MOST


def takes_options_of_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``run`` that it does not have, in place of its first parameter.

    That is a mapping from their names to their values. A task trains on its own machine, so it has
    no engine of a cluster.
    """
    hidden = {"shard", "engine", "address", "allow_mixed", *inspect.signature(command).parameters}
    options = inspect.signature(run).parameters
    shared = {name: option for name, option in options.items() if name not in hidden}
    return takes_options(command, shared, dict)


@app.command(
    rich_help_panel="Train and play",
    epilog="Example: esbench slurm mujoco --array 20 --time 12:00:00 --cpus-per-task 16 --submit",
)
@takes_options_of_run
def slurm(
    options: Mapping[str, Any],
    array: Annotated[int, typer.Option(help="Tasks; each trains one shard of the grid.")],
    partition: Annotated[str | None, typer.Option(help="Partition of the cluster.")] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Time limit, such as 12:00:00; a task that needs more is requeued."),
    ] = None,
    cpus_per_task: Annotated[
        int | None, typer.Option(help="CPUs per task; a worker process runs on each.")
    ] = None,
    mem: Annotated[str | None, typer.Option(help="Memory per task, such as 8G.")] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another option of sbatch, such as account=abc; can be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the shards' output folders (default: results/runs/NAME-shards)."
        ),
    ] = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="Submit the script instead of printing it.")
    ] = False,
) -> None:
    """Print a batch script that trains a grid as a Slurm job array; takes the options of 'run'."""
    from esbench.experiment.engines import schedule
    from esbench.experiment.slurm_script import SlurmJob, submit_script
    from esbench.experiment.trials import require_folder, shards_folder
    from esbench.experiment.watchers import ImportedCallback, Limits
    from esbench.grids.shards import Shard
    from esbench.integrations.trackers.base import tracker_class

    grid = _grid_options(options)
    summary = grid.describe_shards(array)
    name = grid.compose()[0].name
    folder = shards_folder(name) if out is None else out
    # A mistake is found before the job waits.
    Limits(options["episode_timeout"], options["trial_timeout"])
    for callback in options["callback"] or ():
        ImportedCallback(callback)
    for tracker in options["track"] or ():
        tracker_class(tracker)
    require_folder(folder)
    places = [folder / Shard(number, array).folder(name) for number in range(1, array + 1)]
    for place in [places[0], *filter(Path.exists, places[1:])]:
        replace(grid, out=place).open(options["keep"])
    job = SlurmJob(
        name=name,
        shards=array,
        summary=summary,
        out=folder,
        arguments=_arguments(options),
        partition=partition,
        time=time,
        cpus_per_task=cpus_per_task,
        mem=mem,
        options=sbatch or [],
    )
    script = job.script()
    workers = cpus_per_task if options["workers"] is None else options["workers"]
    if workers is not None:  # the node knows how many it can have
        require_integer("workers", workers, 1, MOST)
        schedule((), workers, options["at_once"])
    write(submit_script(script) if submit else script)


def _grid_options(options: Mapping[str, Any]) -> GridOptions:
    names = {field.name for field in fields(GridOptions)}
    chosen = {name: value for name, value in options.items() if name in names}
    if chosen["device"] == "cuda":  # of the cluster's nodes; this machine may have none
        chosen["device"] = None
    return GridOptions(**chosen)


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Options and the grid as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.strip('_').replace('_', '-')}"
        if name == "grid":
            words += [] if value is None else [value]
        elif isinstance(value, bool):
            words += [option] if value else []
        elif value is not None:
            values = value if isinstance(value, list) else [value]
            words += [word for each in values for word in (option, str(each))]
    return words
