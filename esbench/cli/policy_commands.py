"""Commands on the policy of a stored trial: eval, render and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from esbench.app import playing
from esbench.app.display import complain
from esbench.cli.app import EXIT_FAILED, EXIT_USAGE, Options, command, write
from esbench.core.errors import EsbenchError, NoBestPolicyError, UsageError

PANEL: Final = "Train and play"


@command(
    PANEL,
    playing.evaluate,
    "esbench eval results/runs/quick/CartPole-v1/openai_es/seed-0",
    "esbench eval CartPole-v1/snes --seed 3",
    "esbench eval --random-policy Hopper-v5 --episodes 100",
    name="eval",
    optional="trial",
)
def _eval(
    values: Options,
    random_policy: Annotated[
        str | None,
        typer.Option(
            metavar="ENV", help="Score uniformly random actions in this environment instead."
        ),
    ] = None,
) -> None:
    """With --random-policy, only --episodes and --seed apply."""
    from esbench.cli.printing import returns_text
    from esbench.results.policy_files import is_row_name

    seed = values["seed"]
    if (values["trial"] is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV, or a row")
    if random_policy is None:
        if seed is not None and not is_row_name(str(values["trial"])):
            raise UsageError(f"--seed {seed}: expected --random-policy ENV or a row, not a trial")
        _score_again(values)
        return
    from esbench.engine.random_policy import random_policy_returns
    from esbench.grids.environment_files import load_environment

    episodes, which = values["episodes"], values["which"]
    options = {
        "--all": values["every"],
        f"--generation {values['generation']}": values["generation"] is not None,
        f"--which {which}": which != "last",
        f"--workers {values['workers']}": values["workers"] is not None,
        "--trust": values["trust"],
    }
    if wrong := [option for option, is_given in options.items() if is_given]:
        raise UsageError(f"{wrong[0]}: expected a trial, not --random-policy")
    spec = load_environment(random_policy).spec()
    returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed or 0)
    write(f"{random_policy}, random actions: {returns_text(returns)}")


def _score_again(values: Options) -> None:
    """Score one trial, or all in a folder; those that cannot be scored are named."""
    from esbench.cli.printing import returns_text

    scored = code = 0
    for folder, stored in playing.evaluations(**values):
        if isinstance(stored, EsbenchError):
            code = max(code, _left_out(folder, stored))
            continue
        scored += 1
        name = f"{folder}: " if values["every"] or folder != Path(values["trial"]) else ""
        selected = ", selected as the best" if values["which"] == "best" else ""
        if stored.validated is not None:
            selected = f", final policy of generation {stored.validated}"
        text = returns_text(stored.score.returns)
        write(f"{name}generation {stored.generation}{selected}: {text}")
        if stored.identical:
            write("identical to the recorded score")
        elif stored.identical is False:
            write(f"DIFFERENT from the recorded score {stored.recorded!r}")
            code = max(code, EXIT_FAILED)
    raise typer.Exit(code if scored or code else EXIT_USAGE)


def _left_out(folder: Path, error: EsbenchError) -> int:
    """Print why a trial is left out, and return the exit code."""
    complain(f"{folder}: {error}")
    if isinstance(error, NoBestPolicyError):  # a short trial is no mistake
        return 0
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


@command(
    PANEL,
    playing.render,
    "esbench render results/runs/quick/CartPole-v1/openai_es/seed-0",
    "esbench render results/runs/quick --all --out render.mp4",
    "esbench render CartPole-v1 --pick worst --out film.webp",
)
def _render(values: Options) -> None:
    from esbench.cli.console import Terminal
    from esbench.core.units import counted, format_number

    written = code = 0
    for folder, rendered in playing.renderings(Terminal(), **values):
        if isinstance(rendered, EsbenchError):
            code = max(code, _left_out(folder, rendered))
            continue
        written += 1
        cut = "" if rendered.shown == rendered.steps else f", the first {rendered.shown} shown"
        write(
            f"{rendered.path}: {rendered.row or rendered.environment}, "
            f"generation {rendered.generation}, "
            f"episode {rendered.episode} (seed {rendered.seed}), "
            f"return {format_number(rendered.total)}, "
            f"{counted(rendered.steps, 'step')}{cut}"
        )
        if rendered.differs:
            complain(f"DIFFERENT from the recorded return {rendered.recorded!r}")
            code = max(code, EXIT_FAILED)
    raise typer.Exit(code if written or code else EXIT_USAGE)


@command(PANEL, playing.export, "esbench export results/runs/quick/CartPole-v1/openai_es/seed-0")
def _export(values: Options) -> None:
    from esbench.cli.console import Terminal

    about = playing.export(**values, display=Terminal())
    inputs, outputs = ("[" + ", ".join(map(str, about[key])) + "]" for key in ("inputs", "outputs"))
    state = " and the recurrent state" if about["state"] else ""
    write(
        f"{about['file']}: {about['environment']}, generation {about['generation']}, observations "
        f"{inputs} {about['dtype']}{state} to outputs {outputs}"
    )
