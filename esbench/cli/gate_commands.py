"""Commands that compare scores and digests with earlier ones: baseline, check, verify, history."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    LEADERBOARD,
    Folder,
    OnlyAlgorithms,
    OnlyEnvironments,
    Statistic,
    Workers,
    app,
    complain,
    resumable,
    write,
)
from esbench.cli.training_commands import train
from esbench.core.errors import TrainingError, UsageError
from esbench.core.files import nearest_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from esbench.experiment.trials import Trial
    from esbench.publish.gate.reruns import Verification
    from esbench.publish.leaderboard.sample import Drawn
    from esbench.store.generation_record import GenerationRecord

MAX_SEEDS: Final = 32

command = partial(app.command, rich_help_panel="Gate")


@command(
    epilog="Examples: esbench baseline out --out results/baselines/mine.json   |   "
    "esbench baseline out --suggest   |   esbench baseline out --statistic tail --out tail.json"
)
def baseline(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="Output file.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    statistic: Statistic = "mean",
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Print which numbers of seeds and margins these scores allow."
        ),
    ] = False,
    power: Annotated[
        float | None,
        typer.Option(
            help="With --suggest, share of unchanged checks that end 'no worse' (default: 0.8)."
        ),
    ] = None,
) -> None:
    """Save scores, digests, settings and versions to a file that later runs are checked against."""
    from esbench.cli.console import working
    from esbench.cli.display.gate import print_baseline, print_suggestions
    from esbench.publish.gate.baselines import freeze, write_baseline
    from esbench.publish.gate.suggest import suggestions
    from esbench.results.statistics.judgment import POWER
    from esbench.store.provenance import command as command_line

    if out is None and not suggest:
        raise UsageError("--out is missing; expected a file, or --suggest to write none")
    if power is not None and not suggest:
        raise UsageError(f"--power {power}: expected together with --suggest")
    if replace and out is None:
        raise UsageError("--replace: expected --out, the file to replace")
    if out is not None:
        require_output("--out", out)
    wanted = POWER if power is None else power
    if not 0 < wanted < 1:
        raise UsageError(f"--power {power}: expected a number between 0 and 1, such as 0.8")
    frozen = freeze(folder, command_line(), statistic)
    with working("simulating checks"):
        found = suggestions(frozen, wanted) if suggest else []
    if out is not None:
        write_baseline(out, frozen, replace)
        print_baseline(frozen, out)
    if suggest:
        print_suggestions(found, wanted)


@command(
    epilog="Examples: esbench check out --baseline results/baselines/ci.json   |   "
    "esbench check out --baseline ci.json --until-conclusive --max-seeds 32 --junit check.xml"
)
def check(
    folder: Folder,
    baseline: Annotated[Path, typer.Option(help="A file written by 'esbench baseline'.")],
    statistic: Annotated[
        Literal["mean", "tail", "area"] | None,
        typer.Option(help="Refuse a baseline with another statistic (default: accept any)."),
    ] = None,
    alpha: Annotated[
        float,
        typer.Option(help="Largest probability of a false alarm, over all cells and looks."),
    ] = 0.01,
    margin: Annotated[
        float, typer.Option(help="Smallest relevant drop, as a share of the score range.")
    ] = 0.05,
    exact: Annotated[bool, typer.Option("--exact", help="Also fail if digests changed.")] = False,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Exit with 0 if there are too few seeds.")
    ] = False,
    until_conclusive: Annotated[
        bool,
        typer.Option(
            "--until-conclusive",
            help="Train more seeds into DIR until every verdict is conclusive.",
        ),
    ] = False,
    max_seeds: Annotated[
        int | None,
        typer.Option(
            help="With --until-conclusive, maximum number of seeds per cell (default: 32)."
        ),
    ] = None,
    workers: Workers = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write Markdown to this file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
) -> None:
    """Check scores and digests against a baseline.

    Exit code 0: no regression. 1: a regression. 3: a cell was not measured. 4: too few seeds.
    """
    from esbench.cli.console import show
    from esbench.cli.display.gate import print_check
    from esbench.core.units import counted
    from esbench.experiment.engines import EngineChoice
    from esbench.publish.gate import render_check
    from esbench.publish.gate.baselines import read_baseline, require_statistic
    from esbench.publish.gate.check import EXIT_NOT_MEASURED
    from esbench.publish.gate.check import check as check_folder
    from esbench.publish.gate.sequential import check_until_conclusive
    from esbench.results.statistics.judgment import GateRules
    from esbench.store.outputs import write_bytes

    def train_seeds(seeds: int, trials: Sequence[Trial]) -> None:
        show(f"look at {seeds} seeds: {counted(len(trials), 'trial')} to train")
        with resumable():
            train(trials, EngineChoice(workers), quiet=True)

    for option, value in (("--max-seeds", max_seeds), ("--workers", workers)):
        if value is not None and not until_conclusive:
            raise UsageError(f"{option} {value}: expected together with --until-conclusive")
    require_distinct_outputs(baseline, {"--markdown": markdown, "--junit": junit, "--json": json})
    rules, frozen = GateRules(alpha, margin), read_baseline(baseline)
    if statistic is not None:
        require_statistic(frozen, statistic, baseline)
    if until_conclusive:
        try:
            report = check_until_conclusive(
                folder,
                frozen,
                rules,
                max_seeds if max_seeds is not None else MAX_SEEDS,
                train_seeds,
                exact,
                allow_inconclusive,
            )
        except TrainingError as error:  # exit code 1 means a regression
            complain(str(error))
            raise typer.Exit(EXIT_NOT_MEASURED) from None
    else:
        report = check_folder(folder, frozen, rules, exact, allow_inconclusive)
    print_check(report)
    for path, text in (
        (markdown, render_check.as_markdown),
        (junit, render_check.as_junit),
        (json, render_check.as_json),
    ):
        if path is not None:
            write_bytes(path, text(report).encode())
    raise typer.Exit(report.exit_code)


@command(
    epilog="Examples: esbench verify results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench verify results/runs/quick   |   esbench verify --sample 3 --env Hopper-v5"
)
def verify(
    trial: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRIAL",
            help="A trial's folder, a folder of trials, a file of a leaderboard or, with "
            "--sample, a leaderboard.",
        ),
    ] = None,
    workers: Workers = None,
    sample: Annotated[
        int | None,
        typer.Option(metavar="K", help="Train K random trials of the leaderboard or the file."),
    ] = None,
    env: OnlyEnvironments = None,
    algorithm: OnlyAlgorithms = None,
    leaderboard: Annotated[Path, typer.Option(help="Folder of the leaderboard.")] = LEADERBOARD,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the random choice (default: 0).")
    ] = None,
) -> None:
    """Train trials again and report: identical, no significant difference, or different.

    Exit codes: 1 different, 3 a trial failed. Writes nothing.
    """
    from esbench.cli.console import show, working
    from esbench.core.units import format_steps
    from esbench.engine.worker_pool import WorkerPool
    from esbench.publish.gate.check import EXIT_NOT_MEASURED
    from esbench.publish.gate.reruns import RerunOutcome, sentences
    from esbench.publish.gate.verify import verify as run_again
    from esbench.publish.leaderboard.sample import verify_drawn

    if trial is not None and not trial.exists():
        raise UsageError(
            f"TRIAL = {str(trial)!r}: no such file or folder; {_expected(trial, leaderboard)}"
        )
    if trial is not None and leaderboard != LEADERBOARD:
        raise UsageError(f"TRIAL with --leaderboard {leaderboard}: expected one of them")
    options = {"--env": env, "--algorithm": algorithm, "--seed": seed is not None}
    if sample is None and (given := [name for name, value in options.items() if value]):
        raise UsageError(f"{' and '.join(given)} without --sample: expected --sample K too")
    what = trial or leaderboard
    drawn = _drawn(trial, what, sample, env or (), algorithm or (), seed or 0)
    if drawn:
        steps = format_steps(sum(each.env_steps for each in drawn))
        show(f"{steps} steps of training: {'; '.join(each.name for each in drawn)}")
    outcomes = set()
    with working(f"running {what} again") as spinner, WorkerPool(workers) as pool:

        def watch(name: str, record: GenerationRecord) -> None:
            spinner.tell(f"{name}: {record.generation}")

        def report(verification: Verification) -> None:
            outcomes.add(verification.outcome)
            spinner.show(*sentences(verification))

        if drawn:
            verify_drawn(drawn, pool, watch, report)
        else:
            run_again(what, pool, watch, report)
    if RerunOutcome.DIFFERENT in outcomes:
        raise typer.Exit(EXIT_FAILED)
    if RerunOutcome.FAILED in outcomes:
        raise typer.Exit(EXIT_NOT_MEASURED)


def _drawn(
    trial: Path | None,
    what: Path,
    sample: int | None,
    environments: Sequence[str],
    algorithms: Sequence[str],
    seed: int,
) -> list[Drawn]:
    """The trials of a leaderboard to train again; none if ``trial`` is a folder of trials.

    UsageError if it is neither.
    """
    from esbench.publish.leaderboard.entries import is_leaderboard, read_leaderboard, selected
    from esbench.publish.leaderboard.sample import draw_sample

    if sample is None and (trial is None or is_leaderboard(trial)):
        raise UsageError(
            "expected a trial's folder, a file of a leaderboard, or --sample K"
            + (f", not {str(trial)!r} alone" if trial else "")
        )
    if sample is not None and trial and trial.is_dir() and not is_leaderboard(trial):
        raise UsageError(
            f"--sample {sample}: expected a leaderboard, but {str(trial)!r} has none of its files; "
            "without --sample, the trials of a folder are trained again"
        )
    if trial is not None and trial.is_dir() and sample is None:
        return []
    return draw_sample(selected(read_leaderboard(what), environments, algorithms), sample, seed)


@command(
    epilog="Examples: esbench history checks   |   esbench history checks --out plots --format "
    "markdown"
)
def history(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders with files of 'esbench check --json'."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures (default: DIR/figures).")
    ] = None,
    format_: Annotated[
        Literal["text", "markdown", "json"], typer.Option("--format", help="Output format.")
    ] = "text",
) -> None:
    """Show scores, speeds and digests of past checks by commit, and mark where they changed."""
    from esbench.cli.display.gate import print_history
    from esbench.publish.figures.history import draw_history
    from esbench.publish.history import as_json, as_markdown
    from esbench.publish.history import history as past

    found = past(folders)
    figures = draw_history(found, out or folders[0] / "figures")
    if format_ == "text":
        print_history(found, figures)
    else:
        write(as_json(found) if format_ == "json" else as_markdown(found))


def require_distinct_outputs(baseline: Path, outputs: Mapping[str, Path | None]) -> None:
    """Raises UsageError if a check would write over its baseline, or two files at one path."""
    owners = {baseline.resolve(): "--baseline"}
    for option, path in outputs.items():
        if path is not None and (other := owners.setdefault(path.resolve(), option)) != option:
            raise UsageError(f"{option} {path} is the file of {other}; expected another one")
        if path is not None:
            require_output(option, path)


def require_output(option: str, path: Path) -> None:
    """Raises UsageError if ``path`` is that of a grid or of a stored trial's file."""
    from esbench.store.outputs import require_not_stored

    require_not_stored(path)
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; expected a file")
    if path.suffix == ".toml":
        raise UsageError(f"{option} {path}: expected another suffix than .toml, that of grids")


def _expected(trial: Path, leaderboard: Path) -> str:
    """The end of a message that ``trial`` is missing: the nearest path, or what it can be."""
    if near := nearest_path(trial, leaderboard.glob("*.json")):
        return f"did you mean {str(near)!r}?"
    return (
        f"expected a trial's folder, a folder of trials, or a file such as those in '{leaderboard}'"
    )
