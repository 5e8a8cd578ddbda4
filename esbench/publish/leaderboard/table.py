"""The leaderboard as a table or a page: one row per cell, by environment, the best first."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, final

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.settings import Settings
from esbench.core.units import NONE, format_duration, format_number, format_share, format_steps
from esbench.grids.environment_files import (
    environment_names,
    environment_versions,
    load_environment,
)
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.tables.render_table import INTERVAL, Column, Sheet, interval_text, make_sheet
from esbench.publish.tables.table_notes import (
    ONE_EPISODE,
    TUNED_NOTE,
    grouped,
    left_out,
    marked,
    seeds_notes,
)
from esbench.results.cell import Cell
from esbench.results.entries import Entry, place_of, read_leaderboard, selected
from esbench.results.policy_files import (
    leaderboard_here,
    policies_file,
    read_policies,
    row_name,
    size_of,
)
from esbench.results.statistics.estimates import iqm
from esbench.results.statistics.significance import chances_of_best

SCORE_NOTE: Final = (
    "Score: interquartile mean (IQM) over training seeds of the final policy's mean return over "
    "held-out episodes, with its 95 % percentile bootstrap interval. Tail: the mean of the worst "
    "tenth of these episodes, mean over all seeds."
)
BEST_NOTE: Final = (
    "Best seen: the largest mean return of the policy over five generations of training, IQM over "
    "seeds. Many papers publish such a maximum; it is not the score of the final policy."
)
COST_NOTE: Final = "Steps, generations and CPU time: of training, mean over seeds."
TERMINAL_COST_NOTE: Final = "Steps: of training, mean over seeds."
CHANGED_NOTE: Final = (
    "not as in the environment's file. Scores compare only if rewards and ends of episodes are "
    "the same."
)
_NOT_SETTINGS: Final = frozenset({"id", "backend"})
BEST: Final = "P(best)"
CHANCE_NOTE: Final = (
    f"{BEST}: how often the row has the best score of its environment, over all budgets, when the "
    "seeds of every row are resampled. Equal scores share it."
)
BEST_COLUMNS: Final = (
    "Environment", "Algorithm", "Policy", "Score", INTERVAL, BEST, "Tail", "Seeds", "Steps",
)  # fmt: skip
FULL_ONLY: Final = frozenset({"Best seen", "Generations", "CPU time", "Normalized"})


@final
@dataclass(frozen=True)
class LeaderboardRow:
    """An entry and its cell, whose name ends with "#" and a hash where others have its labels.

    ``chance`` is that of the best score among the rows of its environment; see
    ``chances_of_best``.
    """

    entry: Entry
    cell: Cell
    chance: float

    @cached_property
    def best_seen(self) -> float:
        """IQM over seeds of the largest mean return over five generations of training."""
        best = (run.best_center for run in self.entry.runs)
        return float(iqm([math.nan if value is None else value for value in best]))

    @property
    def versions(self) -> dict[str, str]:
        """The versions of each package, joined where seeds differ."""
        found: dict[str, dict[str, None]] = {}
        for origin in self.entry.origins:
            for name, version in origin.versions.items():
                if version:
                    found.setdefault(name, {})[version] = None
        return {name: " and ".join(versions) for name, versions in found.items()}

    @property
    def commits(self) -> tuple[str, ...]:
        """The distinct commits that trained the seeds."""
        return tuple(dict.fromkeys(origin.git_commit or NONE for origin in self.entry.origins))

    @property
    def hardware(self) -> tuple[str, ...]:
        """The distinct processors that trained the seeds."""
        found = (str(origin.hardware.get("cpu", NONE)) for origin in self.entry.origins)
        return tuple(dict.fromkeys(found))


def leaderboard_rows(entries: Sequence[Entry]) -> list[LeaderboardRow]:
    """The rows of all entries by environment, the best first.

    Equal scores are ordered by the lower end of the interval, the tail and the number of seeds.
    """

    def shown(entry: Entry) -> tuple[object, ...]:
        return entry.cell.labels, policy_words(entry), entry.spec["budget"]["env_steps"]

    counts = Counter(map(shown, entries))
    rows = []
    for entry in entries:
        cell = entry.to_cell()
        if counts[shown(entry)] > 1:
            cell = replace(cell, algorithm=f"{cell.label} #{entry.variant}")
        rows.append(LeaderboardRow(entry, cell, math.nan))
    found: list[LeaderboardRow] = []
    rows.sort(key=lambda row: place_of(row.cell))
    for _, group in groupby(rows, attrgetter("cell.environment")):
        own = list(group)
        chances = chances_of_best([row.cell.scores for row in own])
        found += map(lambda row, chance: replace(row, chance=chance), own, chances)
    return found


def leaderboard_sheet(rows: Sequence[LeaderboardRow], terminal: bool = False) -> Sheet:
    """The table of text with its notes; that of a ``terminal`` has fewer columns.

    UsageError if there is no row.
    """
    if not rows:
        raise UsageError("no row; expected one or more")
    hidden = set(FULL_ONLY) if terminal else set()
    if len({policy_words(row.entry) for row in rows}) == 1:
        hidden.add("Policy")
    seeds = [len(row.cell.runs) for row in rows]
    notes = [SCORE_NOTE, *left_out(seeds), CHANCE_NOTE]
    notes += [TERMINAL_COST_NOTE] if terminal else [BEST_NOTE, COST_NOTE]
    notes += [TUNED_NOTE] * any(row.cell.inherited for row in rows)
    notes += [*seeds_notes(seeds), *one_episode_notes(rows), *environment_notes(rows)]
    notes.append(policies_note(rows))
    return replace(make_sheet(COLUMNS, rows, hidden), notes=notes)


def best_rows(rows: Sequence[LeaderboardRow]) -> list[LeaderboardRow]:
    """The first row of each environment, which has the best score."""
    return [next(group) for _, group in groupby(rows, attrgetter("cell.environment"))]


def best_sheet(found: Sequence[LeaderboardRow]) -> Sheet:
    """The table of the best row of each environment; UsageError if there is none."""
    sheet = leaderboard_sheet(found)
    places = [sheet.header.index(name) for name in BEST_COLUMNS if name in sheet.header]
    header, *body = [[cells[n] for n in places] for cells in (sheet.header, *sheet.body)]
    hidden = BEST_NOTE, COST_NOTE, policies_note(found)
    notes = [note for note in sheet.notes if note not in hidden]
    return Sheet(header, body, notes)


def policies_note(rows: Sequence[LeaderboardRow]) -> str:
    """The footnote on published policies."""
    states = Counter(row.entry.policies_state for row in rows)
    counts = ", ".join(f"{state} ({count})" for state, count in sorted(states.items()))
    command = "'esbench list --policies-of ENV'"
    return f"Policies: {counts}; {command} names them, with --leaderboard DIR for another folder."


def policy_words(entry: Entry) -> str:
    """The label of a policy, or its template with its layers; "own" for that of an agent."""
    policy: dict[str, Any] | None = entry.spec["policy"]
    if entry.cell.policy != DEFAULT_LABEL:
        return entry.cell.policy
    if policy is None:
        return "own"
    hidden = policy["settings"].get("hidden")
    layers = hidden if isinstance(hidden, list) else []
    return " ".join(filter(None, [policy["template"], "-".join(map(str, layers))]))


def settings_words(entry: Entry) -> str:
    """What is not default of algorithm, policy, training episodes and validation: "sigma 0.1".

    Empty if the defaults are not known here: an agent or a plugin is not installed, or the file
    names code of its author's own.
    """
    try:
        spec = entry.to_cell().trial_spec(0)
    except UsageError:
        return ""
    found = _changed(spec.algorithm.settings)
    if spec.policy is not None:
        found += [pair for pair in _changed(spec.policy.settings) if pair[0] != "hidden"]
    found += [pair for pair in _changed(spec.environment) if pair[0] not in _NOT_SETTINGS]
    found += [pair for pair in _changed(spec.evaluation) if pair[0] == "validation"]
    return ", ".join(
        f"{name} {json.dumps(value) if isinstance(value, list | dict) else value}"
        for name, value in found
    )


def _changed(settings: Settings) -> list[tuple[str, Any]]:
    """The settings that are not the defaults, with their values."""
    values = settings.model_dump(mode="json")
    changed = settings.model_dump(exclude_defaults=True)
    return [(name, values[name]) for name in changed if values[name] not in ([], {})]


def one_episode_notes(rows: Sequence[LeaderboardRow]) -> list[str]:
    """The footnote that names the rows whose held-out episodes are all the same one, if any."""
    return grouped((row.cell.title, ONE_EPISODE) for row in rows if row.cell.variety == "one")


def environment_notes(rows: Sequence[LeaderboardRow]) -> list[str]:
    """The footnote that names the rows of an environment that is not that of its file, if any."""
    known = {row.cell.environment for row in rows} & {*environment_names()}
    files = {name: load_environment(name).spec().model_dump(mode="json") for name in known}
    changed = (
        (row.cell.title, _changed_environment(row.entry, files[row.cell.environment]))
        for row in rows
        if row.cell.environment in files
    )
    return grouped((title, f"{what}: {CHANGED_NOTE}") for title, what in changed if what)


def _changed_environment(entry: Entry, file: Json) -> str:
    """How arguments and wrappers differ from those of the environment's file; empty if not."""
    own = entry.spec["environment"]
    theirs, ours = file["kwargs"], own["kwargs"]
    found = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
    for word, some, others in (("", own, file), ("no ", file, own)):
        found += [
            word + each["wrapper"].rpartition(":")[2]
            for each in some["wrappers"]
            if each not in others["wrappers"]
        ]
    return f"with {', '.join(found)}" if found else ""


def _own(key: str, name: str = "", heading: str = "", **how: Any) -> Column[LeaderboardRow]:
    """A column of an attribute of the cell."""
    return Column(key, attrgetter(f"cell.{name or key}"), heading, **how)


def _cost(key: Any, heading: str = "", text: Callable[[Any], str] = str) -> Column[LeaderboardRow]:
    """A column of what training costs, mean over seeds."""
    return Column(key, lambda row: row.cell.mean_cost(key), heading, text)


COLUMNS: Final[tuple[Column[LeaderboardRow], ...]] = (
    _own("environment", heading="Environment"),
    _own("algorithm"),
    Column("", lambda row: marked(row.cell.algorithm, row.cell.inherited), "Algorithm"),
    Column("tuned", lambda row: bool(row.cell.inherited)),
    _own("inherited"),
    _own("policy"),
    Column("", lambda row: policy_words(row.entry), "Policy"),
    _own("score", heading="Score", text=format_number),
    Column("low", lambda row: row.cell.interval[0]),
    Column("high", lambda row: row.cell.interval[1]),
    _own("", "interval", INTERVAL, text=partial(interval_text, write=format_number)),
    Column("chance_best", attrgetter("chance"), BEST, format_share),
    _own("tail", heading="Tail", text=format_number),
    Column("one_episode", lambda row: row.cell.variety == "one"),
    Column("best_seen", None, "Best seen", format_number),
    Column("seeds", lambda row: len(row.cell.runs), "Seeds"),
    _own("budget"),
    _cost("env_steps", "Steps", format_steps),
    _cost("generations", "Generations", "{:,.0f}".format),
    _cost("wall_time_s"),
    _cost("cpu_time_s", "CPU time", format_duration),
    _own("random_score"),
    _own("reference_score"),
    Column("reference_source", lambda row: row.cell.reference.source if row.cell.reference else ""),
    Column(
        "normalized", lambda row: row.cell.normalized(row.cell.score), "Normalized", format_share
    ),
    Column("commands", attrgetter("entry.commands")),
    Column("commits"),
    Column("hardware"),
    Column("versions"),
    Column(
        "environment_versions",
        lambda row: {
            k: o.comparable for k, o in environment_versions(row.cell.environment).items()
        },
    ),
    Column("policy_text", lambda row: policy_words(row.entry)),
    Column("file", attrgetter("entry.file_name")),
    Column("policies", attrgetter("entry.policies_state")),
)
"""The columns of the table of text, and of JSON, CSV and data frames in full precision."""


POLICIES_NOTE: Final = (
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
    return replace(make_sheet(POLICY_COLUMNS, rows), notes=[POLICIES_NOTE])


POLICY_COLUMNS: Final[tuple[Column[ZooRow], ...]] = (
    Column("name", None, "Row"),
    Column("score", lambda row: row.cell.score, "Score", format_number),
    Column("steps", lambda row: row.cell.budget, "Steps", format_steps),
    Column("policy", lambda row: policy_words(row.entry), "Policy"),
    Column("parameters", None, "Size", lambda size: NONE if size is None else f"{size:,}"),
    Column("policies", None, "Policies"),
)
