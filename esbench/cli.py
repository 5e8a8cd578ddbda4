"""The command line: parse, call one function, print."""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from esbench.errors import EsbenchError, TrainingError, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from esbench.progress import GridDisplay
    from esbench.trials import Trial

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
LONGEST_DEFAULT: Final = 24

app = typer.Typer(
    name="esbench",
    help="The benchmark suite for evolution strategies in reinforcement learning.",
    epilog="Start with: esbench run quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


PROFILE_WORDS: Final = {
    "sample": "members' parameters, from their noise",
    "reset": "first states of episodes",
    "observe": "observations normalised, and counted for the statistics",
    "act": "the policy's forward passes",
    "simulate": "the environments' steps, rewards and ends",
    "count": "returns and lengths added up",
    "idle": "workers wait for others to end the generation, or for messages",
    "update": "ask and tell, and the observation statistics; workers wait",
    "store": "rows and checkpoints; workers wait",
}


class Kind(StrEnum):
    """What ``esbench list`` lists."""

    ALGORITHMS = "algorithms"
    ENVIRONMENTS = "environments"
    POLICIES = "policies"
    BEHAVIORS = "behaviors"
    BACKENDS = "backends"
    GRIDS = "grids"


class Format(StrEnum):
    """How ``esbench table`` prints."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


GridArgument = Annotated[
    str | None, typer.Argument(metavar="NAME-OR-FILE", help="A named grid, or a TOML file.")
]
Environments = Annotated[
    list[str] | None,
    typer.Option("--env", help="Environment, instead of the grid's; repeat for several."),
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option("--algorithm", help="Algorithm, instead of the grid's; repeat for several."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds, such as 0-9 or 0,2,5.")]
EnvSteps = Annotated[int | None, typer.Option(help="Training steps a trial.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any setting of the grid; repeat."),
]
Out = Annotated[Path | None, typer.Option(help="Output folder (default: results/runs/NAME).")]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes (default: one a core); they change no result."),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of 'esbench run'.")]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from esbench import __version__

        _console().print(f"esbench {__version__}", highlight=False)
        raise typer.Exit


@app.command(
    "list",
    epilog="Examples: esbench list environments   |   esbench list --settings openai_es",
)
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; all by default.")] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead, what can be set in this algorithm, policy or behavior "
            "(KIND is only needed if two of them share the name).",
        ),
    ] = None,
) -> None:
    """List algorithms, environments, policies, behaviors, backends and grids, or settings."""
    from rich.text import Text

    from esbench.catalogue import catalogue

    console = _console()
    if settings is not None:
        _print_settings(console, kind, settings)
        return
    for number, chosen in enumerate([kind] if kind else list(Kind)):
        table = _table("name", "", title=None if kind else chosen.value, no_header=True)
        table.columns[0].no_wrap = True
        for entry in catalogue(chosen.value):
            paper = ("\n", (entry.paper, "dim")) if entry.paper else ()
            table.add_row(Text(entry.name), Text.assemble(entry.text, *paper))
        console.print(*([""] if number else []), table, sep="\n")


@app.command(
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
    out: Out = None,
    workers: Workers = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line a trial.")] = False,
) -> None:
    """Train every trial of a grid; skips what is done and resumes what is half done."""
    from esbench.runner import run_grid
    from esbench.workers import WorkerPool

    console = _console()
    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with WorkerPool(workers) as pool, _display(console, len(trials), quiet) as display:
            report = run_grid(trials, pool, display)
    except KeyboardInterrupt:
        command = shlex.join(["esbench", *sys.argv[1:]])
        _complain(f"interrupted; what was done is saved. To go on: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_results(console, root)
    if busy := report.count("elsewhere"):
        _plain(console, f"{busy} trials are being run by another process; see: esbench status")
    if failed := report.count("failed"):
        _complain(f"{failed} of {len(trials)} trials failed; the same command retries them")
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: esbench plan halfcheetah --seeds 0-9")
def plan(
    grid: GridArgument = None,
    env: Environments = None,
    algorithm: Algorithms = None,
    seeds: Seeds = None,
    env_steps: EnvSteps = None,
    set_: Overrides = None,
    out: Out = None,
    workers: Workers = None,
) -> None:
    """Say what a grid will cost: trials, steps and time, from a speed measured now."""
    from esbench.plan import costs
    from esbench.units import format_duration, format_steps
    from esbench.workers import WorkerPool

    console = _console()
    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    size = WorkerPool(workers).size
    rows = costs(trials, size)
    table = _table("environment", "trials", "done", "steps left", "steps/s", "time left")
    for cost in rows:
        table.add_row(
            cost.environment,
            str(cost.trials),
            str(cost.done),
            format_steps(cost.env_steps),
            format_steps(cost.steps_per_second),
            format_duration(cost.seconds),
        )
    console.print(table)
    total = format_duration(sum(cost.seconds for cost in rows))
    _plain(
        console,
        f"About {total} of training on {size} workers, one trial after the other on all of them; "
        f"scoring comes on top.\nOutput: {root}",
    )


@app.command(epilog="Example: esbench status quick")
def status(
    grid: GridArgument = None,
    env: Environments = None,
    algorithm: Algorithms = None,
    seeds: Seeds = None,
    env_steps: EnvSteps = None,
    set_: Overrides = None,
    out: Out = None,
) -> None:
    """Say which trials of a grid are done, running, half done, failed or missing."""
    from rich.text import Text

    from esbench.plan import standings
    from esbench.units import format_steps

    console = _console()
    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    styles = {"done": "green", "running": "cyan", "failed": "red", "partial": "yellow"}
    table = _table("trial", "status", "generation", "steps", "")
    counts: dict[str, int] = {}
    for item in standings(trials):
        counts[item.status] = counts.get(item.status, 0) + 1
        steps = f"{format_steps(item.env_steps)} of {format_steps(item.budget)}"
        state = Text(item.status, style=styles.get(item.status, ""))
        name, detail = Text(item.trial.name), Text(item.detail)  # brackets in them are no markup
        table.add_row(name, state, str(item.generation), steps, detail)
    console.print(table)
    _plain(console, f"{root}: {', '.join(f'{n} {name}' for name, n in counts.items())}")


@app.command(epilog="Example: esbench table results/runs/quick --format markdown")
def table(
    folder: Folder,
    format_: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TEXT,
) -> None:
    """Print the scores: interquartile mean over seeds with its interval, cost and reference."""
    from esbench import tables

    rows = tables.score_table(folder)
    match format_:
        case Format.TEXT:
            _print_table(_console(), rows)
        case Format.MARKDOWN:
            _write(tables.as_markdown(rows))
        case Format.CSV:
            _write(tables.as_csv(rows))
        case Format.LATEX:
            _write(tables.as_latex(rows))
        case Format.JSON:
            _write(tables.as_json(rows))


@app.command(epilog="Example: esbench plot results/runs/quick --out plots")
def plot(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures (default: DIR/figures).")
    ] = None,
) -> None:
    """Draw learning curves and the rank of the unperturbed policy, as PNG and SVG."""
    from esbench.plots import draw

    console = _console()
    for path in draw(folder, out):
        _plain(console, str(path))


@app.command(
    "eval",
    epilog="Examples: esbench eval results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench eval --random-policy Hopper-v5 --episodes 100",
)
def eval_(
    trial: Annotated[Path | None, typer.Argument(metavar="TRIAL", help="A trial's folder.")] = None,
    random_policy: Annotated[
        str | None,
        typer.Option(metavar="ENV", help="Score uniformly random actions instead."),
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Held-out episodes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random actions.")] = 0,
    workers: Workers = None,
) -> None:
    """Score a stored policy again on its held-out episodes, or random actions."""
    console = _console()
    if (trial is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV")
    if random_policy is not None:
        from esbench.environments import load_environment
        from esbench.random_policy import random_policy_returns

        spec = load_environment(random_policy).spec()
        returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed)
        _plain(console, f"{random_policy}, random actions: {_summary(returns)}")
        return
    from esbench.scoring import evaluate_trial
    from esbench.workers import WorkerPool

    assert trial is not None
    with WorkerPool(workers) as pool:
        stored = evaluate_trial(trial, pool, episodes)
    _plain(console, f"generation {stored.generation}: {_summary(stored.score.returns)}")
    if stored.recorded is not None:
        same = stored.recorded == stored.score.mean
        _plain(
            console,
            "identical to the recorded score"
            if same
            else f"DIFFERENT from the recorded score {stored.recorded!r}",
        )
        if not same:
            raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: esbench bench --env HalfCheetah-v5 --workers 2")
def bench(
    env: Annotated[str, typer.Option(help="Environment.")] = "HalfCheetah-v5",
    workers: Workers = None,
    population: Annotated[int, typer.Option(help="Members a generation.")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each kind, in turn.")] = 3,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time of a generation goes.")
    ] = False,
) -> None:
    """Measure training end to end beside Gymnasium and the simulator alone, in one run."""
    from esbench.bench import measure

    console = _console()
    signal.signal(signal.SIGTERM, _interrupt)
    result = measure(env, workers, population, seconds, rounds)
    speeds = ("bare", "simulator", "simulated", "training")
    table = _table("round", "gymnasium", "simulator", *speeds[2:], "/ gymnasium", "/ simulator")
    for number, item in enumerate(result.rounds, start=1):
        alone = item.simulator and item.simulated / item.simulator
        values = [_rate(getattr(item, name)) for name in speeds]
        ratios = [_ratio(item.simulated / item.bare), _ratio(alone)]
        table.add_row(str(number), *values, *ratios)
    values = [_rate(result.median(name)) for name in speeds]
    ratios = [_ratio(result.ratio(name)) for name in speeds[:2]]
    table.add_row("median", *values, *ratios, style="bold")
    _plain(
        console,
        f"{env}, population {result.population_size}, {result.workers} processes, "
        f"backend {result.backend}, env steps/s",
    )
    console.print(table)
    _plain(
        console,
        "gymnasium: plain environments, random actions. simulator: mj_step alone, on members' "
        "actions.\nsimulated: training end to end, the steps of the unperturbed policy included. "
        "training: the population's alone.\n"
        f"First generation after {result.startup_s:.1f} s.",
    )
    if profile:
        shares = _table("part of a generation", "share of the processes' time", "what")
        for part, share in result.profile.items():
            shares.add_row(part, f"{100 * share:.1f} %", PROFILE_WORDS[part])
        console.print(shares)


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    # Plugins and own environments that lie in the current folder can be imported by name.
    sys.path.append(os.getcwd())  # noqa: PTH109
    try:
        app()
    except UsageError as error:
        _complain(str(error))
        sys.exit(EXIT_USAGE)
    except TrainingError as error:
        _complain(str(error))
        sys.exit(EXIT_FAILED)
    except EsbenchError as error:
        _complain(str(error))
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        _complain("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)


def _open(
    grid: str | None,
    env: list[str] | None,
    algorithm: list[str] | None,
    seeds: str | None,
    env_steps: int | None,
    overrides: list[str] | None,
    out: Path | None,
) -> tuple[Path, list[Trial]]:
    from esbench.trials import open_grid

    return open_grid(
        grid,
        environments=env or [],
        algorithms=algorithm or [],
        seeds=seeds,
        env_steps=env_steps,
        overrides=overrides or [],
        out=out,
    )


def _print_settings(console: Console, kind: Kind | None, name: str) -> None:
    from rich.text import Text

    from esbench.catalogue import NOT_SET, example, kind_with_settings, settings_of

    chosen = kind.value if kind else kind_with_settings(name)
    rows = settings_of(chosen, name)
    if not rows:
        _plain(console, f"{name} has no settings")
        return
    table = _table("setting", "default", "type, range and unit; meaning")
    table.columns[0].no_wrap = True
    # A longer default is a list, which may break between its items and leaves room for the meaning.
    table.columns[1].no_wrap = all(len(row.default) <= LONGEST_DEFAULT for row in rows)
    for row in rows:
        takes = f"{row.type}: {row.allowed}" if row.allowed else row.type
        takes += f" [{row.unit}]" if row.unit else ""
        # As Text, because brackets are markup in a str.
        meaning = Text.assemble((takes, "cyan"), "\n", row.meaning)
        table.add_row(Text(row.name, "bold"), Text(row.default), meaning)
    console.print(table)
    if any(row.default == NOT_SET for row in rows):
        _plain(console, f"default {NOT_SET}: not set; its meaning says what happens then\n")
    if text := example(chosen, name, rows):
        _plain(console, f"To set one, on the command line or in a grid's TOML file:\n\n{text}\n")


def _display(console: Console, trials: int, quiet: bool) -> GridDisplay:
    from esbench.progress import LiveDisplay, PlainDisplay

    if quiet or not console.is_terminal:
        return PlainDisplay(console, trials, quiet)
    return LiveDisplay(console, trials)


def _print_results(console: Console, root: Path) -> None:
    from esbench.plots import draw
    from esbench.tables import score_table

    console.print()
    try:
        _print_table(console, score_table(root))
        for path in draw(root, None):
            _plain(console, str(path))
    except UsageError as error:  # a damaged trial, or none has two generations yet
        _complain(str(error))


def _print_table(console: Console, rows: Any) -> None:
    from esbench.tables import footnotes, rich_table

    console.print(rich_table(rows))
    for note in footnotes(rows, terminal=True):
        _plain(console, note)


def _summary(returns: Any) -> str:
    mean, std = float(returns.mean()), float(returns.std())
    low, high = float(returns.min()), float(returns.max())
    digits = 2 if not mean or abs(mean) >= 1 else 2 - math.floor(math.log10(abs(mean)))
    return (
        f"mean {mean:.{digits}f}, std {std:.{digits}f}, min {low:.{digits}f}, "
        f"max {high:.{digits}f} over {returns.size} episodes"
    )


def _console() -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1, which means a failed trial here

    return PipeConsole(force_terminal=None if sys.stdout.isatty() else False)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(*columns: str, title: str | None = None, no_header: bool = False) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=not no_header,
    )
    numeric = {"trials", "done", "generation", "steps left", "steps/s", "time left"}
    for name in columns:
        table.add_column(name, justify="right" if name in numeric else "left")
    return table


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _write(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def _complain(text: str) -> None:
    sys.stderr.write(f"esbench: {text}\n")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
