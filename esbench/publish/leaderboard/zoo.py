"""The rows of an environment with their published policies, or why they have none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from esbench.core.errors import UsageError
from esbench.core.units import NONE, format_number, format_steps
from esbench.publish.leaderboard.table import policy_words
from esbench.publish.tables.render_table import Column, Sheet, make_sheet
from esbench.results.cell import Cell
from esbench.results.entries import Entry, place_of, read_leaderboard, selected
from esbench.results.policy_files import (
    leaderboard_here,
    policies_file,
    read_policies,
    row_name,
    size_of,
)

NOTE: Final = (
    "A row's name is that of its policies: esbench.load_policy(ROW, seed=N), and 'esbench eval', "
    "'render' and 'export' with --seed N. Size: parameters of a policy."
)


@final
@dataclass(frozen=True)
class ZooRow:
    """A row, the name that no other row has, and its published seeds.

    ``parameters`` is the number of parameters of a policy; None without one.
    """

    name: str
    entry: Entry
    cell: Cell
    seeds: tuple[int, ...]
    parameters: int | None

    @property
    def policies(self) -> str:
        """The seeds that have a policy, or why none has one."""
        if not self.seeds:
            return self.entry.policies_state
        first, *others = self.seeds
        if others and others == [*range(first + 1, first + 1 + len(others))]:
            return f"seeds {first}-{others[-1]}"
        return f"seeds {', '.join(map(str, self.seeds))}"


def zoo(environment: str, leaderboard: Path | None = None) -> list[ZooRow]:
    """The rows of an environment, those with policies first, and the best score first.

    Raises:
        UsageError: there is no leaderboard here, it has no such environment, or a file of policies
            is missing or damaged.
    """
    folder = leaderboard or leaderboard_here()
    if folder is None:
        raise UsageError("no leaderboard here; expected a checkout of esbench")
    entries = selected(read_leaderboard(folder), [environment])
    names = Counter(row_name(entry) for entry in entries if entry.policies)
    found = []
    for entry in entries:
        name, policies = row_name(entry), {}
        if entry.policies is not None:
            policies = read_policies(entry, policies_file(entry, folder))
        if names[name] != 1 or not policies:
            name = f"{name}#{entry.variant}"
        size = size_of(next(iter(policies.values()))) if policies else None
        found.append(ZooRow(name, entry, entry.to_cell(), tuple(sorted(policies)), size))
    return sorted(found, key=lambda row: (not row.seeds, place_of(row.cell)))


def zoo_sheet(rows: list[ZooRow]) -> Sheet:
    """The table of text."""
    sheet = make_sheet(COLUMNS, rows)
    return Sheet(sheet.header, sheet.body, [NOTE])


COLUMNS: Final[tuple[Column[ZooRow], ...]] = (
    Column("name", None, "Row"),
    Column("score", lambda row: row.cell.score, "Score", format_number),
    Column("steps", lambda row: row.cell.budget, "Steps", format_steps),
    Column("policy", lambda row: policy_words(row.entry), "Policy"),
    Column("parameters", None, "Size", lambda size: NONE if size is None else f"{size:,}"),
    Column("policies", None, "Policies"),
)
