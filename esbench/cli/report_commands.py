"""Commands that read: list, table, compare, efficiency, plot and diagnose."""

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
        bool, typer.Option("--wide", help="A row an algorithm, a column an environment.")
    ] = False,
) -> None:
    """Print the scores: interquartile mean over seeds with its interval, cost and reference."""
    from esbench.cli.display import print_scores
    from esbench.reporting.tables import score_table as tables

    if wide:
        _wide_table(folder, format_)
        return
    rows = tables.score_table(folder)
    match format_:
        case Format.TEXT:
            print_scores(rows)
        case Format.MARKDOWN:
            write(tables.as_markdown(rows))
        case Format.CSV:
            write(tables.as_csv(rows))
        case Format.LATEX:
            write(tables.as_latex(rows))
        case Format.JSON:
            write(tables.as_json(rows))


def _wide_table(folder: Path, format_: Format) -> None:
    from esbench.cli.display import print_wide
    from esbench.reporting.tables import wide_table as wide
    from esbench.reporting.tables.score_table import score_table

    wide.require_wide(format_.value)
    rows = score_table(folder)
    match format_:
        case Format.MARKDOWN:
            write(wide.as_markdown(wide.wide_table(rows)))
        case Format.LATEX:
            write(wide.as_latex(wide.wide_table(rows)))
        case _:
            print_wide(rows)


@command(
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
    from esbench.cli.display import print_comparison
    from esbench.reporting.tables import comparison as sides

    found = sides.compare_sides(first, second, root)
    match format_:
        case CompareFormat.TEXT:
            print_comparison(found)
        case CompareFormat.MARKDOWN:
            write(sides.as_markdown(found))
        case CompareFormat.JSON:
            write(sides.as_json(found))


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
            help="Score to reach (default: the environment's frozen reference), or "
            "ENVIRONMENT=SCORE; repeat for several.",
        ),
    ] = None,
    window: Annotated[int, typer.Option(help="Generations in the mean that is judged.")] = 5,
    format_: TableFormat = Format.TEXT,
) -> None:
    """Print what training spends until it reaches a score: steps, episodes and CPU time."""
    from esbench.cli.display import print_noted
    from esbench.reporting.tables import render_table as layout
    from esbench.reporting.tables.efficiency import (
        EfficiencyRow,
        efficiency_table,
        parse_targets,
        sheet,
    )

    rows = efficiency_table(folder, parse_targets(target or []), window)
    full = sheet(rows, window)
    match format_:
        case Format.TEXT:
            print_noted(layout.as_rich(sheet(rows, window, terminal=True)), full.notes)
        case Format.MARKDOWN:
            write(layout.as_markdown(full))
        case Format.CSV:
            write(layout.as_csv(EfficiencyRow, rows))
        case Format.LATEX:
            write(layout.as_latex(full))
        case Format.JSON:
            write(layout.as_json(rows, full.notes))


@command(epilog="Example: esbench plot results/runs/quick --out plots")
def plot(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures (default: DIR/figures).")
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
        DiagnosisFormat, typer.Option("--format", help="How to print it.")
    ] = DiagnosisFormat.TEXT,
) -> None:
    """Say how healthy a run is, from what was measured of its updates, and what to do about it."""
    from esbench.cli.display import print_diagnosis, print_health
    from esbench.reporting import diagnosis

    found = diagnosis.diagnose(path)
    if format_ is DiagnosisFormat.JSON:
        write(diagnosis.as_json(found))
    elif (path / "trial.json").exists():
        print_diagnosis(found[0])
    else:
        print_health(found)


@command(epilog="Example: esbench report results/runs/quick --out report.html")
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="The file (default: DIR/report.html).")] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Its heading (default: the folder's name).")
    ] = None,
) -> None:
    """Write one HTML file with everything: scores, curves, health, settings and versions."""
    from esbench.reporting.html.page import write_report

    write(str(write_report(folder, out, title)))
