"""Commands that read results: list, table, compare, efficiency, plot, diagnose and report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from esbench.cli.app import Folder, Statistic, Trials, app, write
from esbench.core.errors import UsageError

Kind = Literal["algorithms", "agents", "environments", "policies", "behaviors", "backends", "grids"]
Format = Annotated[
    Literal["text", "markdown", "csv", "latex", "json"],
    typer.Option("--format", help="Output format."),
]

command = partial(app.command, rich_help_panel="Read results")


@command(
    "list",
    epilog="Examples: esbench list environments   |   esbench list --settings openai_es",
)
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="What to list (default: everything).")] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="List the settings of this algorithm, agent, policy or behavior instead; NAME may "
            "be a package.file:Class (KIND is needed only if two kinds share the name).",
        ),
    ] = None,
) -> None:
    """List algorithms, agents, environments, policies and other names, or settings."""
    from esbench.cli.display.catalog import print_catalog, print_settings
    from esbench.publish.catalog import catalog, kind_with_settings

    if settings is not None:
        print_settings(kind or kind_with_settings(settings), settings)
        return
    kinds = [kind] if kind else get_args(Kind)
    print_catalog({chosen: catalog(chosen) for chosen in kinds})


@command(
    epilog="Examples: esbench table results/runs/quick --format markdown   |   "
    "esbench table results/runs/quick --wide   |   esbench table out --by learning_rate"
)
def table(
    folder: Folder,
    format_: Format = "text",
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per algorithm, one column per environment.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="SETTING", help="Sort by this setting of the algorithms and give it a column."
        ),
    ] = None,
    which: Annotated[
        Literal["last", "best"],
        typer.Option(
            help="With best, also the score of each run's best policy, in a column 'Selected'; "
            "first run: esbench eval --all --which best DIR"
        ),
    ] = "last",
    tail: Annotated[
        bool,
        typer.Option(
            "--tail",
            help="Also the mean of the worst 10 % of held-out episodes; with --wide instead of the "
            "intervals. Formats other than text always have it, except with --wide.",
        ),
    ] = False,
    statistic: Statistic = "mean",
) -> None:
    """Print the scores: interquartile mean over seeds with its interval, cost and reference."""
    from esbench.cli.console import print_sheet
    from esbench.publish.tables.render_table import export, records
    from esbench.publish.tables.score_table import (
        COLUMNS,
        require_one_layout,
        score_table,
        sheet,
        wide_frame,
        wide_sheet,
    )

    if wide and format_ == "json":
        raise UsageError(
            "--wide with --format json: expected one of text, markdown, csv, latex; "
            "json has one row per environment and algorithm, without --wide"
        )
    require_one_layout(wide, by, which, statistic, tail)
    rows = score_table(folder, by, which == "best", statistic)
    if format_ == "text":
        shown = partial(sheet, terminal=True, by=by)
        print_sheet((wide_sheet if wide else shown)(rows, tail=tail), split=wide)
    elif wide and format_ == "csv":
        write(wide_frame(rows, tail=tail).to_csv())
    else:
        shown = partial(sheet, by=by)
        sheet_ = (wide_sheet if wide else shown)(rows, tail=tail)
        write(export(sheet_, records(COLUMNS, rows), format_))


@command(
    epilog="Examples: esbench compare out-before out-after   |   "
    "esbench compare cma_es openai_es --in results/runs/classic --statistic tail"
)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="An output folder, or an algorithm.")],
    second: Annotated[
        str, typer.Argument(metavar="B", help="The other output folder, or algorithm.")
    ],
    root: Annotated[
        Path | None,
        typer.Option("--in", metavar="DIR", help="A and B are algorithms in this folder."),
    ] = None,
    format_: Format = "text",
    tail: Annotated[
        bool,
        typer.Option(
            "--tail",
            help="Also print the mean of the worst 10 % of held-out episodes of both sides; other "
            "formats always have it.",
        ),
    ] = False,
    statistic: Statistic = "mean",
) -> None:
    """Compare two sides: difference and its interval, probability of improvement, test."""
    from esbench.cli.display.scores import print_comparison
    from esbench.publish.tables.comparison_table import compare_sides, export_comparison

    sides = compare_sides(first, second, root, statistic)
    if format_ == "text":
        print_comparison(sides, tail=tail)
    else:
        write(export_comparison(sides, format_))


@command(
    epilog="Examples: esbench efficiency results/runs/quick   |   "
    "esbench efficiency results/runs/quick --target CartPole-v1=475 --target Acrobot-v1=-100"
)
def efficiency(
    folder: Folder,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCORE",
            help="Target score (default: the reference score of the environment), or "
            "ENVIRONMENT=SCORE; can be repeated.",
        ),
    ] = None,
    window: Annotated[
        int, typer.Option(help="Generations in the mean return that is compared to the target.")
    ] = 5,
    format_: Format = "text",
) -> None:
    """Print the cost of training until it reaches a score: steps, episodes and CPU time."""
    from esbench.cli.console import print_sheet
    from esbench.publish.tables.efficiency_table import (
        COLUMNS,
        efficiency_table,
        parse_targets,
        sheet,
    )
    from esbench.publish.tables.render_table import export, records

    rows = efficiency_table(folder, parse_targets(target or []), window)
    if format_ == "text":
        print_sheet(sheet(rows, window, terminal=True))
    else:
        write(export(sheet(rows, window), records(COLUMNS, rows), format_))


@command(
    epilog="Examples: esbench plot results/runs/quick --out plots   |   "
    "esbench plot results/runs/classic --panels steps --size 3.3x2.6 --format pdf"
)
def plot(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures (default: DIR/figures).")
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Algorithms to draw, such as openai_es,cma_es."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Size of each figure in inches; if it is higher than wide, panels are stacked.",
        ),
    ] = None,
    panels: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Panels of the learning curves, such as steps,rank (default: steps,time,rank).",
        ),
    ] = None,
    format_: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--format", help="File format (default: png and svg)."),
    ] = None,
) -> None:
    """Draw learning curves, ranks, targets reached, score profiles and the scores of sweeps."""
    from esbench.publish.figures.all_figures import draw, parse_panels
    from esbench.publish.figures.drawing import SUFFIXES, Output, parse_size
    from esbench.publish.figures.environment_figure import PANELS

    names = [name.strip() for name in algorithms.split(",")] if algorithms is not None else []
    suffixes = (format_,) if format_ else SUFFIXES
    output = Output(suffixes, None if size is None else parse_size(size))
    chosen = PANELS if panels is None else parse_panels(panels)
    for path in draw(folder, out, names, output, chosen):
        write(str(path))


@command(
    epilog="Examples: esbench diagnose results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench diagnose results/runs/quick"
)
def diagnose(
    path: Trials,
    format_: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Output format.")
    ] = "text",
) -> None:
    """Check the health of training from the diagnostics of its updates, with advice."""
    from esbench.cli.display.diagnosis import print_diagnosis, print_health
    from esbench.publish import diagnosis
    from esbench.store.trial_folder import is_trial

    found = diagnosis.diagnose(path)
    if format_ == "json":
        write(diagnosis.as_json(found))
    elif is_trial(path):
        print_diagnosis(found[0])
    else:
        print_health(found)


@command(epilog="Example: esbench report results/runs/quick --out report.html")
def report(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Output file (default: DIR/report.html).")
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Title (default: the folder's name).")
    ] = None,
) -> None:
    """Write one HTML file with scores, learning curves, diagnostics, settings and versions."""
    from esbench.publish.html.page import write_report

    write(str(write_report(folder, out, title)))
