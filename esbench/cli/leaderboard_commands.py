"""Commands of the leaderboard: submit and leaderboard; ``verify --sample`` trains it again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from esbench.cli.app import (
    LEADERBOARD,
    Folder,
    OnlyAlgorithms,
    OnlyEnvironments,
    app,
    complain,
    write,
)

command = partial(app.command, rich_help_panel="Leaderboard")


@command(epilog="Example: esbench submit results/runs/mujoco --out results/leaderboard")
def submit(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder of the leaderboard.")] = LEADERBOARD,
) -> None:
    """Check finished trials and write one leaderboard file per algorithm and environment."""
    from esbench.publish.leaderboard.entries import read_entry
    from esbench.publish.leaderboard.submit import cautions
    from esbench.publish.leaderboard.submit import submit as write_files

    for path, action in write_files(folder, out).items():
        write(f"{action}: {path}")
        for caution in cautions(read_entry(path)):
            complain(caution)


@command(
    epilog="Examples: esbench leaderboard --best   |   esbench leaderboard --env Hopper-v5   |   "
    "esbench leaderboard --format html > leaderboard.html"
)
def leaderboard(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the leaderboard.")
    ] = LEADERBOARD,
    env: OnlyEnvironments = None,
    algorithm: OnlyAlgorithms = None,
    best: Annotated[
        bool, typer.Option("--best", help="Only the best row of each environment.")
    ] = False,
    format_: Annotated[
        Literal["text", "markdown", "csv", "latex", "json", "html"],
        typer.Option("--format", help="Output format; html is one file with filters."),
    ] = "text",
) -> None:
    """Print the leaderboard, by environment and with the best score first."""
    from esbench.cli.console import print_sheet
    from esbench.publish.leaderboard.entries import read_leaderboard, selected
    from esbench.publish.leaderboard.page import render
    from esbench.publish.leaderboard.table import (
        best_rows,
        best_sheet,
        leaderboard_rows,
        leaderboard_sheet,
    )
    from esbench.publish.tables.render_table import export

    entries = read_leaderboard(folder)
    shown = {entry.file_name for entry in selected(entries, env or (), algorithm or ())}
    all_rows = leaderboard_rows(entries)
    rows = [row for row in all_rows if row.file in shown]
    if best:
        rows = best_rows(rows)
        sheet = best_sheet(rows, all_rows)
    else:
        sheet = leaderboard_sheet(rows, terminal=format_ == "text")
    if format_ == "text":
        print_sheet(sheet)
    elif format_ == "html":
        write(render(rows, entries, str(folder) if folder != LEADERBOARD else ""))
    else:
        write(export(sheet, list(map(vars, rows)), format_))
