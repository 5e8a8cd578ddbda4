"""Commands on the policy of a stored trial: eval, render and export."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    EXIT_USAGE,
    Generation,
    Which,
    Workers,
    app,
    complain,
    write,
)
from esbench.core.errors import EsbenchError, NoBestPolicyError, UsageError

command = partial(app.command, rich_help_panel="Train and play")


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
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random actions (default: 0).")
    ] = None,
    workers: Workers = None,
) -> None:
    """Score a stored policy again on its held-out episodes, or score random actions.

    The score of a finished trial's best policy is kept for 'esbench table --which best'.

    With --random-policy, only --episodes and --seed apply.
    """
    if (trial is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV")
    if random_policy is not None:
        options = {
            "--all": all_,
            f"--generation {generation}": generation is not None,
            f"--which {which}": which != "last",
            f"--workers {workers}": workers is not None,
        }
        if wrong := [option for option, is_given in options.items() if is_given]:
            raise UsageError(f"{wrong[0]}: expected a trial, not --random-policy")
        from esbench.cli.display.scores import returns_text
        from esbench.engine.random_policy import random_policy_returns
        from esbench.grids.environment_files import load_environment

        spec = load_environment(random_policy).spec()
        returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed or 0)
        write(f"{random_policy}, random actions: {returns_text(returns)}")
        return
    assert trial is not None
    if seed is not None:
        raise UsageError(f"--seed {seed}: expected --random-policy ENV, not a trial")
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
    from esbench.cli.display.scores import returns_text
    from esbench.engine.worker_pool import WorkerPool
    from esbench.experiment.stored_trainer import evaluate_trial, keep_best
    from esbench.store.find_trials import find_trials

    scored = code = 0
    with WorkerPool(workers) as pool:
        for folder in [item.path for item in find_trials(path)] if all_ else [path]:
            try:
                stored = evaluate_trial(folder, pool, episodes, generation, which)
                scored += 1
                name = f"{folder}: " if all_ else ""
                text = returns_text(stored.score.returns)
                selected = ", selected as the best" if which == "best" else ""
                if stored.validated is not None:
                    selected = f", final policy of generation {stored.validated}"
                write(f"{name}generation {stored.generation}{selected}: {text}")
                if which == "best" and generation is None:
                    keep_best(folder, stored)
            except EsbenchError as error:
                code = max(code, _left_out(folder, error, all_))
                continue
            if stored.identical:
                write("identical to the recorded score")
            elif stored.identical is False:
                write(f"DIFFERENT from the recorded score {stored.recorded!r}")
                code = max(code, EXIT_FAILED)
    raise typer.Exit(code if scored or code else EXIT_USAGE)


def _left_out(folder: Path, error: EsbenchError, one_of_several: bool) -> int:
    """Print why a trial is left out, and return the exit code; raises the error of a single one."""
    if not one_of_several:
        raise error
    complain(f"{folder}: {error}")
    if isinstance(error, NoBestPolicyError):  # a short trial is no mistake
        return 0
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


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
    from esbench.core.units import counted, format_number
    from esbench.video.render_trial import outputs, render_trial

    written = code = 0
    for folder, kept, file in outputs(trial, out, all_, generation):
        try:
            with working(f"rendering {file}"):
                rendered = render_trial(folder, file, episode, max_steps, kept, which)
        except EsbenchError as error:
            code = max(code, _left_out(folder, error, all_))
            continue
        written += 1
        cut = "" if rendered.shown == rendered.steps else f", the first {rendered.shown} shown"
        write(
            f"{rendered.path}: {rendered.environment}, generation {rendered.generation}, "
            f"episode {rendered.episode} (seed {rendered.seed}), "
            f"return {format_number(rendered.total)}, "
            f"{counted(rendered.steps, 'step')}{cut}"
        )
        if rendered.differs:
            complain(f"DIFFERENT from the recorded return {rendered.recorded!r}")
            code = max(code, EXIT_FAILED)
    raise typer.Exit(code if written or code else EXIT_USAGE)


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
    from esbench.app.api import load_policy
    from esbench.cli.console import working
    from esbench.experiment.trained_policy import export_policy

    file = trial / "policy.pt2" if out is None else out
    with working(f"exporting {file}"):
        about = export_policy(load_policy(trial, generation, which), file)
    inputs, outputs = ("[" + ", ".join(map(str, about[key])) + "]" for key in ("inputs", "outputs"))
    state = " and the recurrent state" if about["state"] else ""
    write(
        f"{file}: {about['environment']}, generation {about['generation']}, observations {inputs} "
        f"{about['dtype']}{state} to outputs {outputs}"
    )
