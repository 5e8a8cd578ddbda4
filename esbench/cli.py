"""The command line: parse, call one function, print."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from esbench.errors import EsbenchError, TrainingError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from esbench.check import Report
    from esbench.progress import GridDisplay
    from esbench.trials import Trial

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

app = typer.Typer(
    name="esbench",
    help="The benchmark suite for evolution strategies in reinforcement learning.",
    epilog="Start with: esbench run quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class Kind(StrEnum):
    """What ``esbench list`` lists."""

    ALGORITHMS = "algorithms"
    ENVIRONMENTS = "environments"
    POLICIES = "policies"
    BEHAVIORS = "behaviors"
    BACKENDS = "backends"
    GRIDS = "grids"


class Format(StrEnum):
    """How tables are printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


class CompareFormat(StrEnum):
    """How ``esbench compare`` prints."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class DiagnosisFormat(StrEnum):
    """How ``esbench diagnose`` prints."""

    TEXT = "text"
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
AtOnce = Annotated[
    int | None,
    typer.Option(help="Trials at a time (default: see 'esbench plan'); changes no result."),
]
TableFormat = Annotated[Format, typer.Option("--format", help="How to print it.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of 'esbench run'.")]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from esbench import __version__

        _write(f"esbench {__version__}")
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
    from esbench.catalogue import catalogue, kind_with_settings
    from esbench.display import print_catalogue, print_settings

    if settings is not None:
        print_settings(kind.value if kind else kind_with_settings(settings), settings)
        return
    kinds = [kind] if kind else list(Kind)
    print_catalogue({chosen.value: catalogue(chosen.value) for chosen in kinds})


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
    at_once: AtOnce = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line a trial.")] = False,
) -> None:
    """Train every trial of a grid; skips what is done and resumes what is half done."""
    from esbench.display import make_console, print_plain
    from esbench.runner import run_grid
    from esbench.workers import WorkerPool

    console = make_console()
    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with WorkerPool(workers) as pool, _watcher(console, len(trials), quiet) as watcher:
            report = run_grid(trials, pool, watcher, at_once=at_once)
    except KeyboardInterrupt:
        command = shlex.join(["esbench", *sys.argv[1:]])
        _complain(f"interrupted; what was done is saved. To go on: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_results(console, root)
    if busy := report.count("elsewhere"):
        print_plain(f"{busy} trials are being run by another process; see: esbench status")
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
    at_once: AtOnce = None,
) -> None:
    """Say what a grid will cost: trials, steps and time, from a speed measured now."""
    from esbench.display import print_costs
    from esbench.plan import costs
    from esbench.schedule import schedule
    from esbench.workers import WorkerPool

    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    size = WorkerPool(workers).size
    todo = [trial.spec.budget.env_steps for trial in trials if not trial.folder.is_done]
    print_costs(costs(trials, size), schedule(todo, size, at_once), root)


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
    from esbench.display import print_standings
    from esbench.plan import standings

    root, trials = _open(grid, env, algorithm, seeds, env_steps, set_, out)
    print_standings(standings(trials), root)


@app.command(epilog="Example: esbench table results/runs/quick --format markdown")
def table(
    folder: Folder,
    format_: TableFormat = Format.TEXT,
) -> None:
    """Print the scores: interquartile mean over seeds with its interval, cost and reference."""
    from esbench import tables
    from esbench.display import print_scores

    rows = tables.score_table(folder)
    match format_:
        case Format.TEXT:
            print_scores(rows)
        case Format.MARKDOWN:
            _write(tables.as_markdown(rows))
        case Format.CSV:
            _write(tables.as_csv(rows))
        case Format.LATEX:
            _write(tables.as_latex(rows))
        case Format.JSON:
            _write(tables.as_json(rows))


@app.command(
    epilog="Examples: esbench compare out-before out-after   |   "
    "esbench compare cma_es openai_es --in results/runs/classic"
)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="An output folder, or an algorithm.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    root: Annotated[
        Path | None,
        typer.Option("--in", metavar="DIR", help="A and B are algorithms of this folder."),
    ] = None,
    format_: Annotated[
        CompareFormat, typer.Option("--format", help="How to print it.")
    ] = CompareFormat.TEXT,
) -> None:
    """Compare two sides: difference with interval, probability of improvement, test, effect."""
    from esbench import compare as sides
    from esbench.display import print_comparison

    found = sides.compare_sides(first, second, root)
    match format_:
        case CompareFormat.TEXT:
            print_comparison(found)
        case CompareFormat.MARKDOWN:
            _write(sides.as_markdown(found))
        case CompareFormat.JSON:
            _write(sides.as_json(found))


@app.command(
    epilog="Examples: esbench efficiency results/runs/quick   |   "
    "esbench efficiency results/runs/quick --target CartPole-v1=475 --target Acrobot-v1=-100"
)
def efficiency(
    folder: Folder,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCORE",
            help="Score to reach (default: the environment's frozen reference), or "
            "ENVIRONMENT=SCORE; repeat for several.",
        ),
    ] = None,
    window: Annotated[int, typer.Option(help="Generations in the mean that is judged.")] = 5,
    format_: TableFormat = Format.TEXT,
) -> None:
    """Print what training spends until it reaches a score: steps, episodes and CPU time."""
    from esbench import layout
    from esbench.display import print_noted
    from esbench.efficiency import EfficiencyRow, efficiency_table, parse_targets, sheet

    rows = efficiency_table(folder, parse_targets(target or []), window)
    full = sheet(rows, window)
    match format_:
        case Format.TEXT:
            print_noted(layout.as_rich(sheet(rows, window, terminal=True)), full.notes)
        case Format.MARKDOWN:
            _write(layout.as_markdown(full))
        case Format.CSV:
            _write(layout.as_csv(EfficiencyRow, rows))
        case Format.LATEX:
            _write(layout.as_latex(full))
        case Format.JSON:
            _write(layout.as_json(rows, full.notes))


@app.command(epilog="Example: esbench plot results/runs/quick --out plots")
def plot(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures (default: DIR/figures).")
    ] = None,
) -> None:
    """Draw learning curves, the rank of the unperturbed policy and the share of targets reached."""
    from esbench.plots import draw

    for path in draw(folder, out):
        _write(str(path))


@app.command(
    epilog="Examples: esbench diagnose results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench diagnose results/runs/quick"
)
def diagnose(
    path: Annotated[
        Path, typer.Argument(metavar="TRIAL", help="A trial's folder, or a folder of trials.")
    ],
    format_: Annotated[
        DiagnosisFormat, typer.Option("--format", help="How to print it.")
    ] = DiagnosisFormat.TEXT,
) -> None:
    """Say how healthy a run is, from what was measured of its updates, and what to do about it."""
    from esbench import diagnosis
    from esbench.display import print_diagnosis, print_health

    found = diagnosis.diagnose(path)
    if format_ is DiagnosisFormat.JSON:
        _write(diagnosis.as_json(found))
    elif (path / "trial.json").exists():
        print_diagnosis(found[0])
    else:
        print_health(found)


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
    from esbench.display import summary

    if (trial is None) == (random_policy is None):
        raise UsageError("expected either a trial's folder or --random-policy ENV")
    if random_policy is not None:
        from esbench.environments import load_environment
        from esbench.random_policy import random_policy_returns

        spec = load_environment(random_policy).spec()
        returns = random_policy_returns(spec, 100 if episodes is None else episodes, seed)
        _write(f"{random_policy}, random actions: {summary(returns)}")
        return
    from esbench.scoring import evaluate_trial
    from esbench.workers import WorkerPool

    assert trial is not None
    with WorkerPool(workers) as pool:
        stored = evaluate_trial(trial, pool, episodes)
    _write(f"generation {stored.generation}: {summary(stored.score.returns)}")
    if stored.recorded is not None:
        same = stored.recorded == stored.score.mean
        _write(
            "identical to the recorded score"
            if same
            else f"DIFFERENT from the recorded score {stored.recorded!r}",
        )
        if not same:
            raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: esbench baseline out --out results/baselines/mine.json")
def baseline(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file.")] = False,
) -> None:
    """Freeze scores, digests, settings and versions in a file that later runs are held to."""
    from esbench.baselines import freeze, write_baseline
    from esbench.display import print_baseline

    frozen = freeze(folder, shlex.join(["esbench", *sys.argv[1:]]))
    write_baseline(out, frozen, replace)
    print_baseline(frozen, out)


@app.command(
    epilog="Examples: esbench check out --baseline results/baselines/ci.json   |   "
    "esbench check out --baseline ci.json --second-stage out-again --junit check.xml"
)
def check(
    folder: Folder,
    baseline: Annotated[Path, typer.Option(help="A file of 'esbench baseline'.")],
    alpha: Annotated[
        float, typer.Option(help="False alarms: share of checks, over all cells and stages.")
    ] = 0.01,
    margin: Annotated[
        float, typer.Option(help="Smallest drop that matters: share of the range.")
    ] = 0.05,
    exact: Annotated[bool, typer.Option("--exact", help="Fail on changed digests too.")] = False,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Exit with 0 where seeds are too few.")
    ] = False,
    second_stage: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Train fresh seeds of what is inconclusive, here."),
    ] = None,
    workers: Workers = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to a file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to a file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write JSON to a file.")] = None,
) -> None:
    """Hold scores and digests to a baseline: exit code 0 only if nothing got worse.

    1: a regression. 3: a cell was not measured. 4: too few seeds to tell.
    """
    from esbench import verdicts
    from esbench.analysis.gate import Rules
    from esbench.baselines import read_baseline
    from esbench.check import check as hold
    from esbench.check import require_apart
    from esbench.display import print_check
    from esbench.files import write_bytes

    require_apart(folder, second_stage)
    frozen = read_baseline(baseline)
    rules = Rules(alpha, margin, stages=1 if second_stage is None else 2)
    report = hold(folder, frozen, rules, exact, allow_inconclusive)
    if second_stage is not None:
        _run_second_stage(report, second_stage, workers)
        report = hold(folder, frozen, rules, exact, allow_inconclusive, second_stage)
    for path, text in (
        (markdown, verdicts.as_markdown),
        (junit, verdicts.as_junit),
        (json, verdicts.as_json),
    ):
        if path is not None:
            write_bytes(path, text(report).encode())
    print_check(report)
    raise typer.Exit(report.exit_code)


@app.command(
    epilog="Examples: esbench verify results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench verify results/runs/quick"
)
def verify(
    trial: Annotated[
        Path, typer.Argument(metavar="TRIAL", help="A trial's folder, or one of several.")
    ],
    workers: Workers = None,
) -> None:
    """Run trials again from their trial.json: identical, statistically equal, or different.

    Exit code 1: different. Nothing is written.
    """
    from esbench.display import print_plain, working
    from esbench.verify import Outcome, sentences
    from esbench.verify import verify as run_again
    from esbench.workers import WorkerPool

    signal.signal(signal.SIGTERM, _interrupt)
    with working(f"running {trial} again") as show, WorkerPool(workers) as pool:
        found = run_again(trial, pool, lambda name, record: show(f"{name}: {record.generation}"))
    for verification in found:
        for line in sentences(verification):
            print_plain(line)
    if any(verification.outcome is Outcome.DIFFERENT for verification in found):
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: esbench bench --env HalfCheetah-v5 --workers 2")
def bench(
    env: Annotated[str, typer.Option(help="Environment.")] = "HalfCheetah-v5",
    workers: Workers = None,
    population: Annotated[int, typer.Option(help="Members a generation.")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each kind, in turn.")] = 3,
    after: Annotated[
        int, typer.Option(help="Env steps of training before the generation that is measured.")
    ] = 1,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time of a generation goes.")
    ] = False,
) -> None:
    """Measure training end to end beside Gymnasium and the simulator alone, in one run."""
    from esbench.bench import measure
    from esbench.display import print_throughput, working

    signal.signal(signal.SIGTERM, _interrupt)
    with working(f"measuring {env}"):
        result = measure(env, workers, population, seconds, rounds, after)
    print_throughput(result, profile)


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


def _run_second_stage(report: Report, folder: Path, workers: int | None) -> None:
    """Train the fresh seeds of what is inconclusive; on Ctrl-C what was done is saved."""
    from esbench.check import second_stage
    from esbench.display import make_console, print_plain
    from esbench.runner import run_grid
    from esbench.units import counted
    from esbench.workers import WorkerPool

    trials = second_stage(report, folder)
    if not trials:
        return
    console = make_console()
    print_plain(f"second stage: {counted(len(trials), 'trial')} on fresh seeds", console)
    signal.signal(signal.SIGTERM, _interrupt)
    with WorkerPool(workers) as pool, _watcher(console, len(trials), True) as watcher:
        run_grid(trials, pool, watcher, at_once=None)


def _watcher(console: Console, trials: int, quiet: bool) -> GridDisplay:
    from esbench.progress import LiveDisplay, PlainDisplay

    if quiet or not console.is_terminal:
        return PlainDisplay(console, trials, quiet)
    return LiveDisplay(console, trials)


def _print_results(console: Console, root: Path) -> None:
    from esbench.display import print_plain, print_scores
    from esbench.plots import draw
    from esbench.tables import score_table

    console.print()
    try:
        print_scores(score_table(root), console)
        for path in draw(root, None):
            print_plain(str(path), console)
    except UsageError as error:  # a damaged trial, or none has two generations yet
        _complain(str(error))


def _write(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def _complain(text: str) -> None:
    sys.stderr.write(f"esbench: {text}\n")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
