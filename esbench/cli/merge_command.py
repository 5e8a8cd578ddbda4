"""The command that joins output folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from esbench.cli.app import app, write


@app.command(
    rich_help_panel="Read results", epilog="Example: esbench merge out-laptop out-server --out out"
)
def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Output folders of 'esbench run'.")
    ],
    out: Annotated[Path, typer.Option(help="Output folder for all trials; may contain some.")],
) -> None:
    """Join output folders; existing trials are kept, or replaced by longer ones."""
    from esbench.core.units import counted
    from esbench.store import merge

    done = merge.merge(folders, out)
    write(
        f"{out}: {counted(sum(done.values()), 'trial')}: {done['copied']} copied, "
        f"{done['replaced']} replaced by a longer one, {done['kept']} there already"
    )
