"""Commands that train and plan: run, plan, status and bench."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    Address,
    AllowMixed,
    AtOnce,
    DeviceName,
    EngineChosen,
    GridOptions,
    Overrides,
    Workers,
    all_overrides,
    app,
    complain,
    resumable,
    takes_grid,
)
from esbench.core.errors import UsageError

if TYPE_CHECKING:
    from esbench.experiment.engines import EngineChoice
    from esbench.experiment.trials import Trial
    from esbench.experiment.watchers import Callback, Limits, Outcome
    from esbench.integrations.trackers.base import Tracker

command = partial(app.command, rich_help_panel="Train and play")


@command(
    epilog="Examples: esbench run quick   |   esbench run --env CartPole-v1 "
    "--algorithm openai_es --seeds 0-2 --env-steps 100000"
)
@takes_grid
def run(
    options: GridOptions,
    workers: Workers = None,
    at_once: AtOnce = None,
    keep: Annotated[
        int,
        typer.Option(
            help="Checkpoints to keep per trial, evenly spaced over its budget, for eval and "
            "render.",
        ),
    ] = 1,
    record: Annotated[
        Literal["members"] | None,
        typer.Option(help="Also store what every member did, for esbench.load_members."),
    ] = None,
    callback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE.FILE:FUNCTION",
            help="Function that receives the record of every generation and may return "
            "esbench.Stop; can be repeated.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print one line per trial instead of progress.")
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="tensorboard, wandb, mlflow or your own package.file:Class; can be repeated.",
        ),
    ] = None,
    engine: EngineChosen = "local",
    address: Address = None,
    allow_mixed: AllowMixed = False,
    episode_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Fail a trial if no episode ends within this time (default: no limit).",
        ),
    ] = None,
    trial_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Stop and fail a trial after this time; the same command resumes it.",
        ),
    ] = None,
) -> None:
    """Train every trial of a grid; finished trials are skipped, unfinished ones resumed."""
    from esbench.cli.console import show
    from esbench.experiment.engines import EngineChoice
    from esbench.experiment.watchers import ImportedCallback, Limits
    from esbench.integrations.trackers.base import make_tracker

    chosen = EngineChoice(workers, engine, address, allow_mixed)
    limits = Limits(episode_timeout, trial_timeout)
    callbacks = [ImportedCallback(name) for name in callback or []]
    root, trials = options.open(keep, record is not None)
    trackers = {name: make_tracker(name, root) for name in track or []}
    with resumable():
        report = train(trials, chosen, at_once, quiet, callbacks, trackers, root, limits)
    if set(report) != {"failed"}:
        _print_results(root)
    if not quiet and sys.stdout.isatty() and not {"done", "skipped"}.isdisjoint(report):
        show(*_next_steps(root))
    if "elsewhere" in report and (busy := sum(trial.status == "running" for trial in trials)):
        show(f"running in another process: {busy} of {len(trials)} trials; see: esbench status")
    if failed := report.count("failed"):
        complain(
            f"{failed} of {len(trials)} trials failed; the same command trains them again. If the "
            "message of a trial says that it is damaged, first remove what the message names"
        )
        raise typer.Exit(EXIT_FAILED)


@command(epilog="Example: esbench plan halfcheetah --seeds 0-9")
@takes_grid
def plan(
    options: GridOptions,
    workers: Workers = None,
    at_once: AtOnce = None,
    engine: EngineChosen = "local",
    address: Address = None,
    allow_mixed: AllowMixed = False,
) -> None:
    """Estimate the cost of a grid: trials, steps and time, from a measured speed."""
    from esbench.bench.plan import costs, costs_on
    from esbench.cli.console import show, working
    from esbench.cli.display.grids import print_costs
    from esbench.experiment.engines import EngineChoice
    from esbench.experiment.run_grid import layout_of
    from esbench.grids.shards import parse_shard

    root, trials = options.open()
    with EngineChoice(workers, engine, address, allow_mixed).open() as pool:
        pool.notice = complain
        layout = layout_of(trials, pool, at_once)
        with working("measuring"):
            found = costs(trials, workers, complain) if pool.is_local else costs_on(trials, pool)
    print_costs(found, layout, root)
    if options.shard is not None:
        show(f"Shard {options.shard}; {options.describe_shards(parse_shard(options.shard).count)}")


@command(epilog="Example: esbench status quick")
@takes_grid
def status(options: GridOptions) -> None:
    """Show which trials of a grid are done, running, partial, failed or missing."""
    from esbench.bench.plan import standing
    from esbench.cli.display.grids import print_standings

    root, trials = options.open()
    print_standings(map(standing, trials), root)


@command(epilog="Example: esbench bench --env HalfCheetah-v5 --workers 2")
def bench(
    env: Annotated[str, typer.Option(help="Environment.")] = "HalfCheetah-v5",
    workers: Workers = None,
    population: Annotated[int, typer.Option(help="Members per generation.")] = 64,
    seconds: Annotated[float, typer.Option(help="Duration of each measurement in seconds.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Number of measurements of each kind.")] = 3,
    after: Annotated[
        int, typer.Option(help="Environment steps of training before the measured generation.")
    ] = 1,
    algorithm: Annotated[str, typer.Option(help="Algorithm.")] = "openai_es",
    set_: Overrides = None,
    device: DeviceName = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the time of each part of a generation.")
    ] = False,
    engine: EngineChosen = "local",
    address: Address = None,
    allow_mixed: AllowMixed = False,
) -> None:
    """Compare the speed of training with Gymnasium and with the simulator alone."""
    from esbench.bench.throughput import measure
    from esbench.cli.console import working
    from esbench.cli.display.throughput import print_throughput
    from esbench.experiment.engines import EngineChoice

    settings = all_overrides(set_, device)
    chosen = EngineChoice(workers, engine, address, allow_mixed)
    with working(f"measuring {env}"):
        result = measure(env, chosen, population, seconds, rounds, after, algorithm, settings)
    print_throughput(result, profile)


def train(
    trials: Sequence[Trial],
    engine: EngineChoice,
    at_once: int | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trackers: Mapping[str, Tracker] = MappingProxyType({}),
    root: Path = Path(),
    limits: Limits | None = None,
) -> list[Outcome]:
    """Train trials and display their progress; KeyboardInterrupt comes after they are saved.

    ``root`` is the output folder of the grid, which trackers need.
    """
    from esbench.cli.console import make_console, show, working
    from esbench.cli.progress import GridDisplay
    from esbench.experiment.run_grid import layout_of, run_grid
    from esbench.experiment.tracking import TrackedGrid
    from esbench.experiment.watchers import UNLIMITED

    display = GridDisplay(make_console(), len(trials), quiet)
    tracked = TrackedGrid(display, trackers, root, complain, _draw_curve)
    try:
        with engine.open() as pool:
            pool.notice = complain
            if not (pool.is_local or quiet):
                show(f"ray: {layout_of(trials, pool, at_once).words}")
            with display:
                outcomes = run_grid(
                    trials, pool, tracked, callbacks, at_once, limits or UNLIMITED, apart=True
                )
    finally:
        if trackers:
            with working("finishing the trackers"):
                tracked.close()
    show(*tracked.views)
    return outcomes


def _draw_curve(trial: Trial, folder: Path) -> None:
    from esbench.publish.figures.all_figures import draw
    from esbench.publish.figures.drawing import Output

    with contextlib.suppress(UsageError):  # a single generation makes no curve
        draw(trial.folder.path, folder, output=Output(("png",)))


def _next_steps(root: Path) -> list[str]:
    folder = shlex.quote(str(root))
    return [
        f"Next: esbench report {folder}         # everything in one HTML file",
        f"      esbench table {folder} --wide   # one column per environment",
        f"      esbench diagnose {folder}       # is every run healthy?",
    ]


def _print_results(root: Path) -> None:
    from esbench.cli.console import print_sheet, show
    from esbench.publish.figures.all_figures import draw
    from esbench.publish.tables.score_table import score_table, sheet

    show("")
    try:
        print_sheet(sheet(score_table(root), terminal=True))
        show(*map(str, draw(root, None)))
    except UsageError as error:  # a damaged trial, or no trial has two generations
        complain(str(error))
