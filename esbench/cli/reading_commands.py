"""Commands that read results: list, table, compare, efficiency, plot, diagnose, report, ..."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import typer

from esbench.app import gating, reading
from esbench.cli.app import Options, app, command, write
from esbench.core.errors import UsageError

PANEL: Final = "Read results"

Kind = Literal["algorithms", "agents", "environments", "policies", "behaviors", "backends", "grids"]
Format = Annotated[
    Literal["text", "markdown", "csv", "latex", "json"],
    typer.Option("--format", help="Output format."),
]
Figures = Annotated[
    Path | None, typer.Option(help="Folder for the figures (default: DIR/figures).")
]


@app.command(
    "list",
    rich_help_panel=PANEL,
    epilog="Examples: esbench list environments   |   esbench list --settings openai_es   |   "
    "esbench list --policies-of HalfCheetah-v5",
)
def _list(
    kind: Annotated[Kind | None, typer.Argument(help="What to list (default: everything).")] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="List the settings of this algorithm, agent, policy or behavior instead; NAME may "
            "be a package.file:Class (KIND is needed only if two kinds share the name).",
        ),
    ] = None,
    policies_of: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="List the rows of the leaderboard in this environment whose policies can be "
            "loaded, and why others cannot.",
        ),
    ] = None,
    leaderboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the leaderboard (with --policies-of)."),
    ] = None,
) -> None:
    """List algorithms, agents, environments, policies and other names, or settings."""
    from esbench.cli.printing import print_catalog, print_settings
    from esbench.publish.catalog import catalog, kind_with_settings

    if policies_of is not None:
        if kind is not None or settings is not None:
            raise UsageError("--policies-of ENV: expected without KIND and --settings")
        from esbench.cli.console import print_sheet
        from esbench.publish.leaderboard.table import zoo, zoo_sheet

        print_sheet(zoo_sheet(zoo(policies_of, leaderboard)))
        return
    if leaderboard is not None:
        raise UsageError(f"--leaderboard {leaderboard}: expected with --policies-of ENV")
    if settings is not None:
        print_settings(kind or kind_with_settings(settings), settings)
        return
    kinds = [kind] if kind else get_args(Kind)
    print_catalog({chosen: catalog(chosen) for chosen in kinds})


@command(
    PANEL,
    reading.table,
    "esbench table results/runs/quick --format markdown",
    "esbench table results/runs/quick --wide",
    "esbench table out --by learning_rate",
    "esbench table out --format bmf > bmf.json",
)
def _table(
    values: Options,
    format_: Annotated[
        Literal["text", "markdown", "csv", "latex", "json", "bmf", "benchmark-action"],
        typer.Option(
            "--format",
            help="Output format; bmf is that of Bencher, benchmark-action that of "
            "github-action-benchmark with the tool customBiggerIsBetter.",
        ),
    ] = "text",
    tail: Annotated[
        bool,
        typer.Option(
            "--tail",
            help="Also the mean of the worst 10 % of held-out episodes; with --wide instead of the "
            "intervals. Formats other than text always have it, except with --wide.",
        ),
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Columns to show, in this order, such as algorithm,score,interval.",
            metavar="NAME,NAME",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            help="Another name for an environment or algorithm; repeatable.",
            metavar="OLD=NEW",
        ),
    ] = None,
    notes: Annotated[
        Literal["below", "caption", "none"] | None,
        typer.Option("--notes", help="Place of the notes of a LaTeX table (default: below)."),
    ] = None,
    caption: Annotated[str, typer.Option("--caption", help="Caption of a LaTeX table.")] = "",
    label: Annotated[str, typer.Option("--label", help="Label of a LaTeX table.")] = "",
) -> None:
    from esbench.cli.console import print_sheet
    from esbench.publish.tables.metrics import as_benchmark_action, as_bmf
    from esbench.publish.tables.render_table import Paper, as_csv, export, records, renamed
    from esbench.publish.tables.score_table import (
        COLUMNS,
        require_one_layout,
        score_table,
        shared_name,
        sheet,
        wide_frame,
        wide_sheet,
    )

    folder, wide, by, which, statistic = values.values()
    if wide and format_ in ("json", "bmf", "benchmark-action"):
        raise UsageError(
            f"--wide with --format {format_}: expected one of text, markdown, csv, latex; "
            f"{format_} has one row per environment and algorithm, without --wide"
        )
    chosen = [] if columns is None else columns.split(",")
    require_one_layout(wide, by, which, statistic, tail, chosen)
    if format_ != "latex" and (notes or caption or label):
        raise UsageError(
            f"--notes, --caption or --label with --format {format_}: expected --format latex"
        )
    for option, given in {"--rename": rename, "--columns": chosen}.items():
        if given and format_ not in ("text", "markdown", "latex"):
            raise UsageError(
                f"{option} with --format {format_}: expected one of text, markdown, latex"
            )
    paper = Paper(notes or "below", caption, label)
    rows = score_table(folder, by, which == "best", statistic)
    make = (
        partial(wide_sheet, tail=tail) if wide else partial(sheet, tail=tail, by=by, columns=chosen)
    )
    names = {name for row in rows for name in (row.environment, row.algorithm)}
    if by is not None:
        names |= {shared_name(row, by) for row in rows}

    made = make(rows, **({"terminal": True} if format_ == "text" and not wide else {}))
    shown = renamed(made, rename or (), names)
    if format_ == "text":
        print_sheet(shown, split=wide)
    elif format_ in ("bmf", "benchmark-action"):
        write((as_bmf if format_ == "bmf" else as_benchmark_action)(rows))
    elif wide and format_ == "csv":
        write(as_csv(wide_frame(rows, tail=tail).reset_index(allow_duplicates=True)))
    else:
        write(export(shown, records(COLUMNS, rows), format_, paper))


@command(
    PANEL,
    reading.compare,
    "esbench compare out-before out-after",
    "esbench compare cma_es openai_es --in results/runs/classic --statistic tail",
)
def _compare(
    values: Options,
    format_: Format = "text",
    tail: Annotated[
        bool,
        typer.Option(
            "--tail",
            help="Also print the mean of the worst 10 % of held-out episodes of both sides; other "
            "formats always have it.",
        ),
    ] = False,
) -> None:
    from esbench.cli.printing import print_comparison
    from esbench.publish.tables.comparison_table import compare_sides, export_comparison

    first, second, root, statistic = values.values()
    sides = compare_sides(str(first), str(second), root, statistic)
    if format_ == "text":
        print_comparison(sides, tail=tail)
    else:
        write(export_comparison(sides, format_))


@command(
    PANEL,
    reading.efficiency,
    "esbench efficiency results/runs/quick",
    "esbench efficiency results/runs/quick --target CartPole-v1=475 --target Acrobot-v1=-100",
)
def _efficiency(values: Options, format_: Format = "text") -> None:
    from esbench.cli.console import print_sheet
    from esbench.publish.tables.efficiency_table import (
        COLUMNS,
        efficiency_table,
        parse_targets,
        sheet,
    )
    from esbench.publish.tables.render_table import export, records

    rows = efficiency_table(values["folder"], parse_targets(values["target"]), values["window"])
    if format_ == "text":
        print_sheet(sheet(rows, values["window"], terminal=True))
    else:
        write(export(sheet(rows, values["window"]), records(COLUMNS, rows), format_))


@command(
    PANEL,
    reading.plot,
    "esbench plot results/runs/quick --out plots",
    "esbench plot results/runs/classic --panels steps --size 3.3x2.6 --format pdf",
)
def _plot(
    values: Options,
    out: Figures = None,
    format_: Annotated[
        Literal["png", "svg", "pdf"] | None,
        typer.Option("--format", help="File format (default: png and svg)."),
    ] = None,
) -> None:
    from esbench.cli.console import show
    from esbench.publish.figures.drawing import SUFFIXES, Output
    from esbench.publish.figures.write_figures import draw

    folder = values.pop("folder")
    names, size, panels, figures = reading.drawn(**values)
    output = Output((format_,) if format_ else SUFFIXES, size)
    for paths, caption in draw(folder, out, names, output, panels, figures):
        write("\n".join(map(str, paths)))
        if caption:
            show(f"Caption of {paths[0].stem}: {caption}", stderr=True)


@command(
    PANEL,
    reading.diagnose,
    "esbench diagnose results/runs/quick/CartPole-v1/openai_es/seed-0",
    "esbench diagnose results/runs/quick",
)
def _diagnose(
    values: Options,
    format_: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Output format.")
    ] = "text",
) -> None:
    from esbench.cli.printing import print_diagnosis, print_health
    from esbench.publish import diagnosis
    from esbench.store.trial_folder import TrialFolder

    found = reading.diagnose(**values)
    if format_ == "json":
        write(diagnosis.as_json(found))
    elif TrialFolder(values["path"]).has_begun:
        print_diagnosis(found[0])
    else:
        print_health(found)


@command(PANEL, reading.report, "esbench report results/runs/quick --out report.html")
def _report(values: Options) -> None:
    write(str(reading.report(**values)))


@command(PANEL, gating.merge, "esbench merge out-laptop out-server --out out")
def _merge(values: Options) -> None:
    from esbench.core.units import counted

    done = gating.merge(**values)
    write(
        f"{values['out']}: {counted(sum(done.values()), 'trial')}: {done['copied']} copied, "
        f"{done['replaced']} replaced by a longer one, {done['kept']} there already"
    )
