"""Prints what is registered, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.text import Text

from esbench.cli.console import show
from esbench.cli.display.tables import plain_table
from esbench.publish.catalog import NOT_SET, CatalogEntry, example, settings_of

LONGEST_DEFAULT: Final = 24


def print_catalog(kinds: Mapping[str, Iterable[CatalogEntry]]) -> None:
    """Print the entries of each kind with their papers."""
    for number, (kind, entries) in enumerate(kinds.items()):
        table = plain_table("name", "", title=kind if len(kinds) > 1 else None, no_header=True)
        table.columns[0].no_wrap = True
        for entry in entries:
            paper = ("\n", (entry.paper, "dim")) if entry.paper else ()
            table.add_row(Text(entry.name), Text.assemble(entry.text, *paper))
        show(*([""] if number else []), table)


def print_settings(kind: str, name: str) -> None:
    """Print the settings of an algorithm, policy or behavior, and how to set them."""
    rows = settings_of(kind, name)
    if not rows:
        show(f"{name} has no settings")
        return
    table = plain_table("setting", "default", "type, range and unit; meaning")
    table.columns[0].no_wrap = True
    # A longer default is a list, which can break between its items.
    table.columns[1].no_wrap = all(len(row.default) <= LONGEST_DEFAULT for row in rows)
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        # Text, because brackets are markup in a str.
        search = f"\ntuned over: {row.search}" if row.search else ""
        meaning = Text.assemble((row.type + unit, "cyan"), "\n", row.meaning, (search, "green"))
        table.add_row(Text(row.name, "bold"), Text(row.default), meaning)
    show(table)
    if any(row.default == NOT_SET for row in rows):
        show(f"default {NOT_SET}: not set; the meaning explains the effect\n")
    if text := example(kind, name, rows):
        show(f"Set it on the command line or in a grid file:\n\n{text}\n")
