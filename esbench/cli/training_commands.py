"""Commands that train and plan: run, plan, status, tune, slurm and bench."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from esbench.app import importing, training
from esbench.app.display import complain
from esbench.app.options import TrialOptions, compose, open_trials, with_device
from esbench.cli.app import (
    EXIT_FAILED,
    EXIT_LEFT_OUT,
    Options,
    command,
    option_word,
    resumable,
    write,
)
from esbench.core.errors import UsageError, require_integer

PANEL: Final = "Train and play"
CLUSTER: Final = ("engine", "address", "allow_mixed")  # a task of Slurm trains on its own machine


@command(
    PANEL,
    training.run,
    "esbench run quick",
    "esbench run --env CartPole-v1 --algorithm openai_es --seeds 0-2 --env-steps 100000",
)
def _run(values: Options) -> None:
    from esbench.cli.console import Terminal, show

    terminal = Terminal()
    with resumable():
        frame = training.run(**values, display=terminal)
    assert terminal.progress is not None
    outcomes, root = terminal.progress.outcomes, frame.attrs["folder"]
    if {*outcomes} != {"failed"}:
        _print_results(root)
    if not values["quiet"] and sys.stdout.isatty() and not {"done", "skipped"}.isdisjoint(outcomes):
        show(*_next_steps(root))
    if "elsewhere" in outcomes and (busy := int((frame["status"] == "running").sum())):
        show(f"running in another process: {busy} of {len(outcomes)} trials; see: esbench status")
    if failed := outcomes.count("failed"):
        complain(
            f"{failed} of {len(outcomes)} trials failed; the same command trains them again. If "
            "the message of a trial says that it is damaged, first remove what the message names"
        )
        raise typer.Exit(EXIT_FAILED)
    if missing := frame.attrs["missing"]:
        for sentence in missing:
            complain(f"left out: {sentence}")
        raise typer.Exit(EXIT_LEFT_OUT)


def _print_results(root: Path) -> None:
    from esbench.cli.console import print_sheet, show
    from esbench.publish.figures.write_figures import draw
    from esbench.publish.tables.score_table import score_table, sheet

    show("")
    try:
        print_sheet(sheet(score_table(root), terminal=True))
        show(*(str(path) for figure in draw(root) for path in figure.paths))
    except UsageError as error:  # a damaged trial, or no trial has two generations
        complain(str(error))


def _next_steps(root: Path) -> list[str]:
    folder = shlex.quote(str(root))
    return [
        f"Next: esbench report {folder}         # everything in one HTML file",
        f"      esbench table {folder} --wide   # one column per environment",
        f"      esbench diagnose {folder}       # is every run healthy?",
    ]


@command(PANEL, training.plan, "esbench plan halfcheetah --seeds 0-9")
def _plan(values: Options) -> None:
    from esbench.cli.console import Terminal, show
    from esbench.cli.printing import print_costs

    found = training.plan(**values, display=Terminal())
    print_costs(found.costs, found.layout, found.folder)
    if found.shards:
        show(found.shards)


@command(PANEL, training.status, "esbench status quick")
def _status(values: Options) -> None:
    from esbench.cli.printing import print_standings

    print_standings(*training.standings(**values))


@command(
    PANEL,
    training.tune,
    "esbench tune quick --all --trials 20",
    "esbench tune --env CartPole-v1 --algorithm openai_es --trials 50",
)
def _tune(values: Options) -> None:
    from esbench.cli.console import Terminal, show
    from esbench.cli.printing import print_tuning, print_tuning_costs

    with resumable():
        summaries = training.tune(**values, display=Terminal())
    for summary in summaries:
        show("")
        print_tuning(summary)
        show(*map(str, summary.files))
    show("")
    print_tuning_costs(summaries)
    if any(summary.best is None for summary in summaries):
        raise typer.Exit(EXIT_FAILED)


@command(
    PANEL,
    importing.import_settings,
    "esbench import-settings ppo.yml --env HalfCheetah-v4 > grid.toml",
    name="import-settings",
)
def _import_settings(values: Options) -> None:
    write(importing.import_settings(**values).removesuffix("\n"))


@command(
    PANEL,
    training.run,
    "esbench slurm mujoco --array 20 --time 12:00:00 --cpus-per-task 16 --submit",
    name="slurm",
    without=("out", "shard", *CLUSTER),
    about="Print a batch script that trains a grid as a Slurm job array; takes the options of "
    "'run'.",
)
def _slurm(
    values: Options,
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
    from esbench.core.settings import MOST
    from esbench.experiment.engines import schedule
    from esbench.experiment.slurm_script import slurm_script, submit_script
    from esbench.experiment.trials import require_output_folder, shards_folder
    from esbench.experiment.watchers import ImportedCallback, Limits
    from esbench.grids.shards import Shard
    from esbench.integrations.trackers.tracker import tracker_class

    grid = values["grid"]
    changes: Any = {key: values[key] for key in TrialOptions.__annotations__ if key in values}
    if changes["device"] == "cuda":  # of the cluster's nodes; this machine may have none
        changes["device"] = None
    summary = training.shard_sizes(grid, changes, array)
    name = compose(grid, changes)[0].name
    folder = shards_folder(name) if out is None else out
    # A mistake is found before the job waits.
    Limits(values["episode_timeout"], values["trial_timeout"])
    for callback in values["callback"]:
        ImportedCallback(callback)
    for tracker in values["track"]:
        tracker_class(tracker)
    require_output_folder(folder)
    places = [folder / Shard(number, array).folder(name) for number in range(1, array + 1)]
    for place in [places[0], *filter(Path.exists, places[1:])]:
        changes["out"] = place
        open_trials(grid, changes, values["keep"])
    script = slurm_script(
        name=name,
        shards=array,
        summary=summary,
        out=folder,
        arguments=_arguments(values),
        partition=partition,
        time=time,
        cpus_per_task=cpus_per_task,
        mem=mem,
        options=sbatch or [],
    )
    workers = cpus_per_task if values["workers"] is None else values["workers"]
    if workers is not None:  # the node knows how many it can have
        require_integer("workers", workers, 1, MOST)
        schedule((), workers, values["at_once"])
    write(submit_script(script) if submit else script)


def _arguments(values: Options) -> list[str]:
    """The grid and the options of ``run`` as words of a command line."""
    words: list[str] = []
    for name, value in values.items():
        option = option_word(name)
        if name == "grid":
            words += [] if value is None else [value]
        elif isinstance(value, bool):
            words += [option] if value else []
        elif value is not None:
            several = value if isinstance(value, list | tuple) else [value]
            words += [word for each in several for word in (option, str(each))]
    return words


@command(
    PANEL,
    training.plan,
    "esbench bench --env HalfCheetah-v5 --workers 2",
    name="bench",
    only=("workers", "overrides", "device", *CLUSTER),
    about="Compare the speed of training with Gymnasium and with the simulator alone.",
)
def _bench(
    values: Options,
    env: Annotated[str, typer.Option(help="Environment.")] = "HalfCheetah-v5",
    population: Annotated[int, typer.Option(help="Members per generation.")] = 64,
    seconds: Annotated[float, typer.Option(help="Duration of each measurement in seconds.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Number of measurements of each kind.")] = 3,
    after: Annotated[
        int, typer.Option(help="Environment steps of training before the measured generation.")
    ] = 1,
    algorithm: Annotated[str, typer.Option(help="Algorithm.")] = "openai_es",
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the time of each part of a generation.")
    ] = False,
) -> None:
    from esbench.bench.training_speed import measure
    from esbench.cli.console import Terminal
    from esbench.cli.printing import print_throughput

    settings = with_device(values.pop("overrides"), values.pop("device"))
    chosen: Any = values
    engine = training.engine_choice(chosen)
    with Terminal().working(f"measuring {env}"):
        result = measure(env, engine, population, seconds, rounds, after, algorithm, settings)
    print_throughput(result, profile)
