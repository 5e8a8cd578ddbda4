"""Commands that read results: list, table, compare, efficiency, plot, diagnose and report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from esbench.cli.app import (
    CompareFormat,
    DiagnosisFormat,
    Folder,
    Format,
    Kind,
    TableFormat,
    app,
    write,
)

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
            help="List the settings of this algorithm, policy or behavior instead "
            "(KIND is needed only if two of them share the name).",
        ),
    ] = None,
) -> None:
    """List algorithms, environments, policies, behaviors, backends and grids, or settings."""
    from esbench.cli.display import print_catalogue, print_settings
    from esbench.reporting.catalogue import catalogue, kind_with_settings

    if settings is not None:
        print_settings(kind.value if kind else kind_with_settings(settings), settings)
        return
    kinds = [kind] if kind else list(Kind)
    print_catalogue({chosen.value: catalogue(chosen.value) for chosen in kinds})


@command(
    epilog="Examples: esbench table results/runs/quick --format markdown   |   "
    "esbench table results/runs/quick --wide"
)
def table(
    folder: Folder,
    format_: TableFormat = Format.TEXT,
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per algorithm, one column per environment.")
    ] = False,
) -> None:
    """Print the scores: interquartile mean over seeds with its interval, cost and reference."""
    from esbench.cli.console import print_sheet
    from esbench.reporting.tables.render_table import export
    from esbench.reporting.tables.score_table import score_table, sheet
    from esbench.reporting.tables.wide_table import require_wide, wide_sheet

    if wide:
        require_wide(format_.value)
    rows = score_table(folder)
    if format_ is Format.TEXT:
        print_sheet(wide_sheet(rows) if wide else sheet(rows, terminal=True), split=wide)
    else:
        write(export(wide_sheet(rows) if wide else sheet(rows), rows, format_.value))


@command(
    epilog="Examples: esbench compare out-before out-after   |   "
    "esbench compare cma_es openai_es --in results/runs/classic"
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
    format_: Annotated[
        CompareFormat, typer.Option("--format", help="Output format.")
    ] = CompareFormat.TEXT,
) -> None:
    """Compare two sides: difference and its interval, probability of improvement, test."""
    from esbench.cli.display import print_comparison
    from esbench.reporting.tables.comparison import as_json, as_markdown, compare_sides

    sides = compare_sides(first, second, root)
    match format_:
        case CompareFormat.TEXT:
            print_comparison(sides)
        case CompareFormat.MARKDOWN:
            write(as_markdown(sides))
        case CompareFormat.JSON:
            write(as_json(sides))


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
    format_: TableFormat = Format.TEXT,
) -> None:
    """Print the cost of training until it reaches a score: steps, episodes and CPU time."""
    from esbench.cli.console import print_sheet
    from esbench.reporting.tables.efficiency import efficiency_table, parse_targets, sheet
    from esbench.reporting.tables.render_table import export

    rows = efficiency_table(folder, parse_targets(target or []), window)
    if format_ is Format.TEXT:
        print_sheet(sheet(rows, window, terminal=True))
    else:
        write(export(sheet(rows, window), rows, format_.value))


@command(epilog="Example: esbench plot results/runs/quick --out plots")
def plot(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures (default: DIR/figures).")
    ] = None,
) -> None:
    """Draw learning curves, ranks of the unperturbed policy, targets reached and score profiles."""
    from esbench.reporting.figures.learning_curves import draw

    for path in draw(folder, out):
        write(str(path))


@command(
    epilog="Examples: esbench diagnose results/runs/quick/CartPole-v1/openai_es/seed-0   |   "
    "esbench diagnose results/runs/quick"
)
def diagnose(
    path: Annotated[
        Path, typer.Argument(metavar="TRIAL", help="A trial's folder, or a folder of trials.")
    ],
    format_: Annotated[
        DiagnosisFormat, typer.Option("--format", help="Output format.")
    ] = DiagnosisFormat.TEXT,
) -> None:
    """Check the health of training from the diagnostics of its updates, with advice."""
    from esbench.cli.display import print_diagnosis, print_health
    from esbench.reporting import diagnosis
    from esbench.store.trial_folder import is_trial

    found = diagnosis.diagnose(path)
    if format_ is DiagnosisFormat.JSON:
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
    from esbench.reporting.html.page import write_report

    write(str(write_report(folder, out, title)))
