"""Commands that train and evaluate: run, plan, status, eval, render and bench."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Address,
    AllowMixed,
    AtOnce,
    DeviceName,
    EngineChosen,
    Generation,
    GridOptions,
    Overrides,
    Which,
    Workers,
    all_overrides,
    app,
    complain,
    takes_grid,
    write,
)
from esbench.errors import UsageError

if TYPE_CHECKING:
    from esbench.integrations.trackers.base import Tracker
    from esbench.training.callbacks import Callback
    from esbench.training.engines import EngineChoice
    from esbench.training.limits import Limits
    from esbench.training.run_trial import Outcome
    from esbench.training.trials import Trial

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
            help="Called with the record of every generation, may return esbench.Stop; can be "
            "repeated.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print one line per trial.")] = False,
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
            help="Fail a trial in which no episode has ended for so long (default: never).",
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
    from esbench.integrations.trackers.base import make_tracker
    from esbench.training.callbacks import ImportedCallback
    from esbench.training.engines import EngineChoice
    from esbench.training.limits import Limits

    chosen = EngineChoice(workers, engine, address, allow_mixed)
    limits = Limits(episode_timeout, trial_timeout)
    callbacks = [ImportedCallback(name) for name in callback or []]
    root, trials = options.open(keep)
    trackers = {name: make_tracker(name, root) for name in track or []}
    trials = [replace(trial, record_members=record == "members") for trial in trials]
    try:
        report = train(trials, chosen, at_once, quiet, callbacks, trackers, root, limits)
    except KeyboardInterrupt:
        command = shlex.join(["esbench", *sys.argv[1:]])
        complain(f"interrupted; progress is saved. Resume with: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_results(root)
    if not quiet and sys.stdout.isatty() and not {"done", "skipped"}.isdisjoint(report):
        show(*_next_steps(root))
    if busy := report.count("elsewhere"):
        show(f"running in another process: {busy} of {len(trials)} trials; see: esbench status")
    if failed := report.count("failed"):
        complain(f"{failed} of {len(trials)} trials failed; the same command retries them")
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
    from esbench.cli.display import print_costs
    from esbench.grids.shards import parse_shard
    from esbench.training.engines import EngineChoice
    from esbench.training.run_grid import layout_of

    root, trials = options.open()
    with EngineChoice(workers, engine, address, allow_mixed).open() as pool:
        pool.notice = complain
        layout = layout_of(trials, pool, at_once)
        with working("measuring"):
            found = costs(trials, workers) if pool.is_local else costs_on(trials, pool)
    print_costs(found, layout, root)
    if options.shard is not None:
        show(f"Shard {options.shard}; {options.describe_shards(parse_shard(options.shard).count)}")


@command(epilog="Example: esbench status quick")
@takes_grid
def status(options: GridOptions) -> None:
    """Show which trials of a grid are done, running, partial, failed or missing."""
    from esbench.bench.plan import standing
    from esbench.cli.display import print_standings

    root, trials = options.open()
    print_standings(map(standing, trials), root)


@command(
    "eval",
    epilog="Examples: esbench eval results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench eval --random-policy Hopper-v5 --episodes 100",
)
def eval_(
    trial: Annotated[Path | None, typer.Argument(metavar="TRIAL", help="A trial's folder.")] = None,
    random_policy: Annotated[
        str | None,
        typer.Option(
            metavar="ENV", help="Score uniformly random actions in this environment instead."
        ),
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Number of held-out episodes.")] = None,
    generation: Generation = None,
    which: Which = "last",
    all_: Annotated[
        bool, typer.Option("--all", help="Score every trial in TRIAL, a folder of trials.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random actions.")] = 0,
    workers: Workers = None,
) -> None:
    """Score a stored policy again on its held-out episodes, or score random actions.

    The score of a finished trial's best policy is kept for 'esbench table --which best'.
    """
    if (trial is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV")
    if random_policy is not None:
        if generation is not None or all_:
            option = "--all" if all_ else f"--generation {generation}"
            raise UsageError(f"{option}: expected a trial, not --random-policy")
        from esbench.cli.display import returns_text
        from esbench.grids.environment_files import load_environment
        from esbench.rollouts.random_policy import random_policy_returns

        spec = load_environment(random_policy).spec()
        returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed)
        write(f"{random_policy}, random actions: {returns_text(returns)}")
        return
    assert trial is not None
    _score_again(trial, all_, workers, episodes, generation, which)


def _score_again(
    path: Path,
    all_: bool,
    workers: int | None,
    episodes: int | None,
    generation: int | None,
    which: Which,
) -> None:
    """Score one trial, or all in a folder; those that cannot be scored are named."""
    from esbench.cli.display import returns_text
    from esbench.rollouts.worker_pool import WorkerPool
    from esbench.store.trial_folder import find_trials
    from esbench.training.scoring import evaluate_trial, keep_best

    code = 0
    selected = ", selected as the best" if which == "best" else ""
    with WorkerPool(workers) as pool:
        for folder in [item.path for item in find_trials(path)] if all_ else [path]:
            try:
                stored = evaluate_trial(folder, pool, episodes, generation, which)
            except UsageError as error:
                if not all_:
                    raise
                complain(f"{folder}: {error}")
                code = max(code, EXIT_USAGE)
                continue
            name = f"{folder}: " if all_ else ""
            text = returns_text(stored.score.returns)
            write(f"{name}generation {stored.generation}{selected}: {text}")
            if which == "best" and generation is None:
                keep_best(folder, stored)
            if stored.identical:
                write("identical to the recorded score")
            elif stored.identical is False:
                write(f"DIFFERENT from the recorded score {stored.recorded!r}")
                code = EXIT_FAILED
    raise typer.Exit(code)


@command(
    epilog="Examples: esbench render results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench render results/runs/quick --all --out render.mp4"
)
def render(
    trial: Annotated[Path, typer.Argument(metavar="TRIAL", help="A trial's folder.")],
    episode: Annotated[int, typer.Option(help="Index of the held-out episode, from 0.")] = 0,
    generation: Generation = None,
    which: Which = "last",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .gif or .mp4 file (default: render.gif in the trial's folder); with --all, the "
            "file's name in each trial's folder.",
        ),
    ] = None,
    max_steps: Annotated[
        int,
        typer.Option(help="Largest number of steps to show; the return is of the whole episode."),
    ] = 1000,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Write a file for every kept checkpoint of every trial in TRIAL, which may be a "
            "folder of trials.",
        ),
    ] = False,
) -> None:
    """Write a GIF or MP4 of a stored policy in one of its held-out episodes."""
    from esbench.cli.console import working
    from esbench.units import counted
    from esbench.video.render_trial import outputs, render_trial

    code = 0
    for folder, kept, file in outputs(trial, out, all_, generation):
        try:
            with working(f"rendering {file}"):
                rendered = render_trial(folder, file, episode, max_steps, kept, which)
        except UsageError as error:
            if not all_:
                raise
            complain(f"{folder}: {error}")
            code = EXIT_USAGE
            continue
        cut = "" if rendered.shown == rendered.steps else f", the first {rendered.shown} shown"
        write(
            f"{rendered.path}: {rendered.environment}, generation {rendered.generation}, "
            f"episode {rendered.episode} (seed {rendered.seed}), return {rendered.total!r}, "
            f"{counted(rendered.steps, 'step')}{cut}"
        )
        if rendered.differs:
            complain(f"DIFFERENT from the recorded return {rendered.recorded!r}")
            code = max(code, EXIT_FAILED)
    raise typer.Exit(code)


@command(epilog="Example: esbench export results/runs/quick/CartPole-v1/openai_es/seed-0")
def export(
    trial: Annotated[Path, typer.Argument(metavar="TRIAL", help="A trial's folder.")],
    generation: Generation = None,
    which: Which = "last",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: policy.pt2 in the trial's folder."),
    ] = None,
) -> None:
    """Write a stored policy as a file that torch.export.load reads without esbench."""
    from esbench.api import load_policy
    from esbench.cli.console import working
    from esbench.training.export_policy import export_policy

    file = trial / "policy.pt2" if out is None else out
    with working(f"exporting {file}"):
        about = export_policy(load_policy(trial, generation, which), file)
    inputs, outputs = ("[" + ", ".join(map(str, about[key])) + "]" for key in ("inputs", "outputs"))
    state = " and the recurrent state" if about["state"] else ""
    write(
        f"{file}: {about['environment']}, generation {about['generation']}, observations {inputs} "
        f"{about['dtype']}{state} to outputs {outputs}"
    )


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
    from esbench.cli.display import print_throughput
    from esbench.training.engines import EngineChoice

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
    from esbench.training.limits import UNLIMITED
    from esbench.training.run_grid import layout_of, run_grid
    from esbench.training.tracking import TrackedGrid

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
    from esbench.reporting.figures.learning_curves import draw
    from esbench.reporting.figures.style import Output

    with contextlib.suppress(UsageError):  # a single generation makes no curve
        draw(trial.folder.path, folder, output=Output(("png",)))


def _next_steps(root: Path) -> list[str]:
    folder = shlex.quote(str(root))
    return [
        f"Next: esbench report {folder}   # everything in one HTML file",
        f"      esbench table {folder} --wide   esbench plot {folder}",
    ]


def _print_results(root: Path) -> None:
    from esbench.cli.console import print_sheet, show
    from esbench.reporting.figures.learning_curves import draw
    from esbench.reporting.tables.score_table import score_table, sheet

    show("")
    try:
        print_sheet(sheet(score_table(root), terminal=True))
        show(*map(str, draw(root, None)))
    except UsageError as error:  # a damaged trial, or no trial has two generations
        complain(str(error))
