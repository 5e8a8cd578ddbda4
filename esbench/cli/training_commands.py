"""Commands that train and evaluate: run, plan, status, eval, render and bench."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Algorithms,
    AtOnce,
    DeviceName,
    Environments,
    EnvSteps,
    Extend,
    Generation,
    GridArgument,
    Out,
    Overrides,
    Seeds,
    Workers,
    app,
    complain,
    interrupt,
    write,
)
from esbench.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from esbench.cli.progress import GridDisplay
    from esbench.training.trials import Trial


command = partial(app.command, rich_help_panel="Train and play")


@command(
    epilog="Examples: esbench run quick   |   esbench run --env CartPole-v1 "
    "--algorithm openai_es --seeds 0-2 --env-steps 100000"
)
def run(
    grid: GridArgument = None,
    env: Environments = None,
    algorithm: Algorithms = None,
    seeds: Seeds = None,
    env_steps: EnvSteps = None,
    set_: Overrides = None,
    device: DeviceName = None,
    out: Out = None,
    extend: Extend = False,
    workers: Workers = None,
    at_once: AtOnce = None,
    keep: Annotated[
        int,
        typer.Option(
            min=1,
            help="Checkpoints to keep per trial, evenly spaced over its budget, for eval and "
            "render.",
        ),
    ] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print one line per trial.")] = False,
) -> None:
    """Train every trial of a grid; finished trials are skipped, unfinished ones resumed."""
    from esbench.cli.console import make_console, print_plain
    from esbench.rollouts.worker_pool import WorkerPool
    from esbench.training.run_grid import run_grid

    console = make_console()
    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, device, out, extend)
    trials = [replace(trial, keep=keep) for trial in trials]
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with WorkerPool(workers) as pool, make_watcher(console, len(trials), quiet) as watcher:
            report = run_grid(trials, pool, watcher, at_once=at_once)
    except KeyboardInterrupt:
        command = shlex.join(["esbench", *sys.argv[1:]])
        complain(f"interrupted; progress is saved. Resume with: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_results(console, root)
    if busy := report.count("elsewhere"):
        print_plain(f"{busy} trials are running in another process; see: esbench status")
    if failed := report.count("failed"):
        complain(f"{failed} of {len(trials)} trials failed; the same command retries them")
        raise typer.Exit(EXIT_FAILED)


@command(epilog="Example: esbench plan halfcheetah --seeds 0-9")
def plan(
    grid: GridArgument = None,
    env: Environments = None,
    algorithm: Algorithms = None,
    seeds: Seeds = None,
    env_steps: EnvSteps = None,
    set_: Overrides = None,
    device: DeviceName = None,
    out: Out = None,
    extend: Extend = False,
    workers: Workers = None,
    at_once: AtOnce = None,
) -> None:
    """Estimate the cost of a grid: trials, steps and time, from a measured speed."""
    from esbench.bench.plan import costs
    from esbench.cli.console import working
    from esbench.cli.display import print_costs
    from esbench.rollouts.worker_pool import WorkerPool
    from esbench.training.schedule import schedule

    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, device, out, extend)
    todo = [trial.spec.budget.env_steps for trial in trials if not trial.is_done]
    layout = schedule(todo, WorkerPool(workers).size, at_once)
    with working("measuring"):
        found = costs(trials, workers)
    print_costs(found, layout, root)


@command(epilog="Example: esbench status quick")
def status(
    grid: GridArgument = None,
    env: Environments = None,
    algorithm: Algorithms = None,
    seeds: Seeds = None,
    env_steps: EnvSteps = None,
    set_: Overrides = None,
    device: DeviceName = None,
    out: Out = None,
    extend: Extend = False,
) -> None:
    """Show which trials of a grid are done, running, partial, failed or missing."""
    from esbench.bench.plan import standings
    from esbench.cli.display import print_standings

    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, device, out, extend)
    print_standings(standings(trials), root)


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
    seed: Annotated[int, typer.Option(help="Seed of the random actions.")] = 0,
    workers: Workers = None,
) -> None:
    """Score a stored policy again on its held-out episodes, or score random actions."""
    from esbench.cli.display import returns_text

    if (trial is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV")
    if random_policy is not None:
        if generation is not None:
            raise UsageError(f"--generation {generation}: expected a trial, not --random-policy")
        from esbench.grids.environment_files import load_environment
        from esbench.rollouts.random_policy import random_policy_returns

        spec = load_environment(random_policy).spec()
        returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed)
        write(f"{random_policy}, random actions: {returns_text(returns)}")
        return
    from esbench.rollouts.worker_pool import WorkerPool
    from esbench.training.scoring import evaluate_trial

    assert trial is not None
    with WorkerPool(workers) as pool:
        stored = evaluate_trial(trial, pool, episodes, generation)
    write(f"generation {stored.generation}: {returns_text(stored.score.returns)}")
    if stored.recorded is not None:
        same = stored.recorded == stored.score.mean
        write(
            "identical to the recorded score"
            if same
            else f"DIFFERENT from the recorded score {stored.recorded!r}",
        )
        if not same:
            raise typer.Exit(EXIT_FAILED)


@command(
    epilog="Examples: esbench render results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench render results/runs/quick --all --out render.mp4"
)
def render(
    trial: Annotated[Path, typer.Argument(metavar="TRIAL", help="A trial's folder.")],
    episode: Annotated[int, typer.Option(help="Index of the held-out episode, from 0.")] = 0,
    generation: Generation = None,
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
    from esbench.cli.display import rendered_text
    from esbench.video.render_trial import outputs, render_trial

    failed = differs = False
    for wanted in outputs(trial, out, all_, generation):
        try:
            with working(f"rendering {wanted.file}"):
                rendered = render_trial(
                    wanted.trial, wanted.file, episode, max_steps, wanted.generation
                )
        except UsageError as error:
            if not all_:
                raise
            complain(f"{wanted.trial}: {error}")
            failed = True
            continue
        write(rendered_text(rendered))
        if rendered.differs:
            complain(f"DIFFERENT from the recorded return {rendered.recorded!r}")
            differs = True
    if failed or differs:
        raise typer.Exit(EXIT_USAGE if failed else EXIT_FAILED)


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
) -> None:
    """Compare the speed of training with Gymnasium and with the simulator alone."""
    from esbench.bench.throughput import measure
    from esbench.cli.console import working
    from esbench.cli.display import print_throughput

    signal.signal(signal.SIGTERM, interrupt)
    with working(f"measuring {env}"):
        result = measure(
            env, workers, population, seconds, rounds, after, algorithm, _with_device(set_, device)
        )
    print_throughput(result, profile)


def _with_device(overrides: list[str] | None, device: str | None) -> list[str]:
    """The overrides of ``--set`` and ``--device``.

    Raises:
        UsageError: there is no GPU; checked before the policy, which might not support one.
    """
    if device == "cuda":
        from esbench.policies.kernels.device import require_device

        require_device("cuda")
    return [*(overrides or []), *([] if device is None else [f"policy.device={device}"])]


def _open(
    grid: str | None,
    env: list[str] | None,
    algorithm: list[str] | None,
    seeds: str | None,
    env_steps: int | None,
    overrides: list[str] | None,
    device: str | None,
    out: Path | None,
    extend: bool,
) -> tuple[Path, list[Trial]]:
    from esbench.training.trials import open_grid

    return open_grid(
        grid,
        environments=env or [],
        algorithms=algorithm or [],
        seeds=seeds,
        env_steps=env_steps,
        overrides=_with_device(overrides, device),
        out=out,
        extend=extend,
    )


def make_watcher(console: Console, trials: int, quiet: bool) -> GridDisplay:
    """The progress display: live on a terminal, otherwise line by line."""
    from esbench.cli.progress import LiveDisplay, PlainDisplay

    if quiet or not console.is_terminal:
        return PlainDisplay(console, trials, quiet)
    return LiveDisplay(console, trials)


def _print_results(console: Console, root: Path) -> None:
    from esbench.cli.console import print_plain, print_sheet
    from esbench.reporting.figures.learning_curves import draw
    from esbench.reporting.tables.score_table import score_table, sheet

    console.print()
    try:
        print_sheet(sheet(score_table(root), terminal=True), console)
        for path in draw(root, None):
            print_plain(str(path), console)
    except UsageError as error:  # a damaged trial, or no trial has two generations
        complain(str(error))
