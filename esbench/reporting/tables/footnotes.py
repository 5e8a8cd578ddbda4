"""Footnotes that several tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from esbench.analysis.statistics import MIN_RUNS

FEW_SEEDS: Final = 10


class TableRow(Protocol):
    """What the footnotes need to know of a row."""

    @property
    def title(self) -> str:
        """The algorithm, the policy and the environment."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The distinct commands that made its trials."""

    @property
    def differs(self) -> tuple[str, ...]:
        """The settings that differ between rows with the same labels."""


def seeds_notes(seeds: Sequence[int]) -> list[str]:
    """Cautions about rows with few seeds, from the number of seeds of each row."""
    notes = []
    if any(count < FEW_SEEDS for count in seeds):
        notes.append(
            f"Some rows have fewer than {FEW_SEEDS} seeds: the order of close scores may be chance."
        )
    if any(count < MIN_RUNS for count in seeds):
        notes.append(f"Rows with fewer than {MIN_RUNS} seeds have no interval.")
    return notes


def settings_notes(rows: Sequence[TableRow]) -> list[str]:
    """The settings that distinguish rows with the same labels."""
    return [f"{row.title}: {', '.join(row.differs)}" for row in rows if row.differs]


def command_notes(rows: Sequence[TableRow]) -> list[str]:
    """One note per command, with the rows it made unless it made all of them."""
    notes = []
    for command in dict.fromkeys(command for row in rows for command in row.commands):
        made = [row.title for row in rows if command in row.commands]
        which = "" if len(made) == len(rows) else f" ({', '.join(made)})"
        notes.append(f"Made by{which}: {command}")
    return notes
