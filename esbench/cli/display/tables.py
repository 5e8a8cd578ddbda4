"""The plain table of the commands."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import JustifyMethod
from rich.table import Table

NUMERIC: Final = {
    *("trials", "done", "generation", "steps left", "steps/s", "time left"),
    *("seeds", "mean", "random", "reference"),
    *("start", "middle", "end"),
    *("tried", "pruned", "failed", "best", "importance", "default score"),
}


def plain_table(*columns: str, title: str | None = None, no_header: bool = False) -> Table:
    """A table with these columns, numbers on the right; a title and no box."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=not no_header,
    )
    for name in columns:
        justify: JustifyMethod = "right" if name in NUMERIC else "left"
        table.add_column(name, justify=justify, overflow="fold")
    return table
