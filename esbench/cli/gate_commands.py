"""Commands that compare with earlier results: baseline, check, verify, history, leaderboard, ..."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from esbench.app import bisecting, gating, importing, reading
from esbench.app.display import complain
from esbench.cli.app import EXIT_FAILED, Options, command, resumable, write
from esbench.core.errors import EsbenchError, TrainingError, UsageError

GATE: Final = "Gate"
EXIT_UNTESTABLE: Final = 125  # of 'git bisect run'
LEADERBOARD: Final = "Leaderboard"


@command(
    GATE,
    gating.baseline,
    "esbench baseline out --out results/baselines/mine.json",
    "esbench baseline out --power 0.95 --out results/baselines/mine.json",
    "esbench baseline out --suggest",
    "esbench baseline out --statistic tail --out tail.json",
)
def _baseline(
    values: Options,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Print which numbers of seeds and margins these scores allow."
        ),
    ] = False,
) -> None:
    from esbench.cli.console import Terminal
    from esbench.cli.printing import print_baseline, print_suggestions
    from esbench.publish.gate.choose_margin import suggestions
    from esbench.results.statistics.judgment import POWER

    if values["out"] is None and not suggest:
        raise UsageError("--out is missing; expected a file, or --suggest to write none")
    power = values["power"] or POWER
    with Terminal().working("simulating checks"):
        frozen = gating.baseline(**values)
        found = suggestions(frozen) if suggest else []
    if values["out"] is not None:
        print_baseline(frozen, values["out"], None if values["margin"] else power)
    if suggest:
        print_suggestions(found, power)


@command(
    GATE,
    gating.check,
    "esbench check out --baseline results/baselines/ci.json",
    "esbench check out --baseline ci.json --until-conclusive --max-seeds 32 --junit check.xml",
    "esbench check out --baseline ci.json --format badge > badge.json",
)
def _check(
    values: Options,
    format_: Annotated[
        Literal["text", "markdown", "json", "junit", "badge"],
        typer.Option(
            "--format",
            help="Output format; badge is JSON for shields.io. Other than text, progress is on "
            "standard error.",
        ),
    ] = "text",
    git_bisect: Annotated[
        bool,
        typer.Option(
            "--git-bisect", help="For 'git bisect run': exit with 125 where there is no verdict."
        ),
    ] = False,
) -> None:
    """Exit code 0: no regression. 1: a regression. 3: a cell was not measured. 4: too few seeds."""
    from esbench.cli.console import Terminal
    from esbench.cli.printing import print_check
    from esbench.publish.gate.check import EXIT_NOT_MEASURED
    from esbench.publish.gate.render_check import RENDERINGS

    try:
        with resumable():
            report = gating.check(**values, display=Terminal(stderr=format_ != "text"))
    except EsbenchError as error:
        is_training = isinstance(error, TrainingError) and values["until_conclusive"]
        if not (is_training or git_bisect):
            raise
        complain(str(error))  # exit code 1 means a regression
        raise typer.Exit(EXIT_UNTESTABLE if git_bisect else EXIT_NOT_MEASURED) from None
    if format_ == "text":
        print_check(report)
    else:
        write(RENDERINGS[format_](report))
    code = report.exit_code
    raise typer.Exit(EXIT_UNTESTABLE if git_bisect and code > EXIT_FAILED else code)


@command(
    GATE,
    bisecting.bisect,
    "esbench bisect v1.2 --grid gate.toml --plan",
    "esbench bisect v1.2 main --grid gate.toml --until-conclusive",
    "esbench bisect HEAD~20 --command 'pytest -q tests/test_scores.py'",
)
def _bisect(values: Options) -> None:
    """Exit code 0: one commit was found. 4: several are left, because some could not be tested."""
    from esbench.cli.console import Terminal
    from esbench.publish.gate.check import EXIT_INCONCLUSIVE

    with resumable():
        found = bisecting.bisect(**values, display=Terminal())
    if len(found.commits) > 1:
        raise typer.Exit(EXIT_INCONCLUSIVE)


@command(
    GATE,
    gating.verify,
    "esbench verify results/runs/quick/CartPole-v1/openai_es/seed-0",
    "esbench verify results/runs/quick",
    "esbench verify --sample 3 --env Hopper-v5",
)
def _verify(values: Options) -> None:
    """Exit codes: 1 different, 3 a trial failed. Writes nothing."""
    from esbench.cli.console import Terminal
    from esbench.publish.gate.check import EXIT_NOT_MEASURED
    from esbench.publish.verification import RerunOutcome

    outcomes = {each.outcome for each in gating.verify(**values, display=Terminal())}
    if RerunOutcome.DIFFERENT in outcomes:
        raise typer.Exit(EXIT_FAILED)
    if RerunOutcome.FAILED in outcomes:
        raise typer.Exit(EXIT_NOT_MEASURED)


@command(
    GATE,
    reading.history,
    "esbench history checks",
    "esbench history checks --out plots --format markdown",
    "esbench history checks --html history.html",
)
def _history(
    values: Options,
    format_: Annotated[
        Literal["text", "markdown", "json"], typer.Option("--format", help="Output format.")
    ] = "text",
) -> None:
    from esbench.cli.printing import print_history
    from esbench.publish.history import as_json, as_markdown

    found = reading.history(**values)
    if format_ == "text":
        print_history(found.cells, found.figures)
    else:
        write((as_json if format_ == "json" else as_markdown)(found.cells))


@command(LEADERBOARD, gating.submit, "esbench submit results/runs/mujoco --out results/leaderboard")
def _submit(values: Options) -> None:
    from esbench.cli.console import Terminal

    gating.submit(**values, display=Terminal())


@command(
    LEADERBOARD,
    reading.leaderboard,
    "esbench leaderboard --best",
    "esbench leaderboard --env Hopper-v5 --reported",
    "esbench leaderboard --format html > leaderboard.html",
)
def _leaderboard(
    values: Options,
    format_: Annotated[
        Literal["text", "markdown", "csv", "latex", "json", "html"],
        typer.Option("--format", help="Output format; html is one file with filters."),
    ] = "text",
) -> None:
    from esbench.cli.console import print_sheet
    from esbench.publish.html.leaderboard_page import as_page
    from esbench.publish.leaderboard import table
    from esbench.publish.leaderboard.reported_rows import (
        REPORTED_HEADER,
        with_records,
        with_reported,
    )
    from esbench.publish.tables.render_table import Sheet, export, records

    best, reported, folder = values.pop("best"), values.pop("reported"), values["folder"]
    others = importing.reported_of(folder, values["env"], values["algorithm"]) if reported else []
    rows = reading.ranked(**values, others=others)
    if not rows and format_ == "html":
        raise UsageError("only reported scores have these names; expected another --format")
    if not rows:
        sheet = Sheet(REPORTED_HEADER, [], [])
    elif best:
        rows = table.best_rows(rows)
        sheet = table.best_sheet(rows)
    else:
        sheet = table.leaderboard_sheet(rows, terminal=format_ == "text")
    sheet = with_reported(sheet, rows, others)
    if format_ == "text":
        print_sheet(sheet)
    elif format_ == "html":
        write(as_page(rows, folder, others))
    else:
        own = records(table.COLUMNS, rows)
        write(export(sheet, with_records(own, others) if reported else own, format_))


@command(
    LEADERBOARD,
    importing.import_scores,
    "esbench import benchmark.md --source https://github.com/DLR-RM/rl-baselines3-zoo",
    "esbench import scores.csv --measure 'mean of 100 episodes' --versions 'gymnasium 1.2'",
    name="import",
)
def _import(values: Options) -> None:
    from esbench.cli.console import Terminal

    importing.import_scores(**values, display=Terminal())
