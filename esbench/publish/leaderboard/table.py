"""The leaderboard as a table: one row per cell, by environment, the best score first."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, final

from pydantic_core import to_jsonable_python

from esbench.core.errors import UsageError
from esbench.core.settings import Settings
from esbench.core.units import NONE, format_duration, format_number, format_share, format_steps
from esbench.grids.trainers import trainer_settings
from esbench.grids.trial_spec import DEFAULT_LABEL, EnvironmentSpec, EvaluationSpec, NamedCell
from esbench.policies.policy import POLICIES
from esbench.publish.leaderboard.entries import Entry
from esbench.publish.tables.render_table import INTERVAL, Sheet
from esbench.publish.tables.table_notes import ONE_EPISODE, grouped, seeds_notes
from esbench.results.baselines import OWN_MEAN
from esbench.results.statistics.estimates import iqm
from esbench.store.provenance import Origin

SCORE_NOTE: Final = (
    "Score: interquartile mean (IQM) over training seeds of the final policy's mean return over "
    "held-out episodes, with its 95 % percentile bootstrap interval. Tail: the mean of the "
    "worst tenth of these episodes, mean over all seeds."
)
BEST_NOTE: Final = (
    "Best seen: the largest mean return of the policy over five generations of training, IQM over "
    "seeds. Many papers publish such a maximum; it is not the score of the final policy."
)
COST_NOTE: Final = "Steps, generations and CPU time: of training, mean over seeds."
TERMINAL_COST_NOTE: Final = "Steps: of training, mean over seeds."
_NOT_SETTINGS: Final = frozenset({"id", "backend"})
OVERLAP: Final = "Overlap"
OVERLAP_NOTE: Final = (
    "Overlap: how many other rows of the environment with the same budget of steps have an "
    "interval that overlaps that of the best, so that chance may have decided between them. The "
    "best row is that of all budgets."
)
BEST_COLUMNS: Final = (
    "Environment", "Algorithm", "Policy", "Score", INTERVAL, OVERLAP, "Tail", "Seeds", "Steps",
)  # fmt: skip
FULL_ONLY: Final = frozenset({"Generations", "CPU time", "Normalized"})


@final
@dataclass(frozen=True)
class LeaderboardRow(NamedCell):
    """One cell of a leaderboard. A missing number is NaN.

    Attributes:
        score: IQM over seeds of the final policy's mean return over held-out episodes.
        low, high: its 95 % bootstrap interval.
        tail: mean over seeds of the mean of the worst tenth of these episodes.
        one_episode: whether all these episodes of a seed are the same one.
        best_seen: IQM over seeds of the largest mean return over five generations of training.
        seeds: number of training seeds.
        budget: environment steps that a seed may take.
        env_steps, generations, wall_time_s, cpu_time_s: of training, mean over seeds.
        random_score, reference_score: those of the file, where ``normalized`` is 0 and 1; it is NaN
            without a published reference.
        policy_text: the policy in words.
        file: the name of the file.
    """

    score: float
    low: float
    high: float
    tail: float
    one_episode: bool
    best_seen: float
    seeds: int
    budget: int
    env_steps: float
    generations: float
    wall_time_s: float
    cpu_time_s: float
    random_score: float
    reference_score: float
    reference_source: str
    normalized: float
    commands: tuple[str, ...]
    commits: tuple[str, ...]
    hardware: tuple[str, ...]
    versions: dict[str, str]
    policy_text: str
    file: str


def leaderboard_rows(entries: Sequence[Entry]) -> list[LeaderboardRow]:
    """The rows of all entries by environment, the best first.

    Equal scores are ordered by the lower end of the interval, the tail and the number of seeds.
    """
    counts = Counter(map(_shown, entries))
    rows = [_row(entry, counts[_shown(entry)] > 1) for entry in entries]

    def place(row: LeaderboardRow) -> tuple[str, float, float, float, int, str]:
        low, tail = round(row.low, 6), round(row.tail, 6)  # equal but for errors of rounding
        return row.environment, -row.score, -low, -tail, -row.seeds, row.name

    return sorted(rows, key=place)


def leaderboard_sheet(rows: Sequence[LeaderboardRow], terminal: bool = False) -> Sheet:
    """The table of text with its notes; that of a ``terminal`` has fewer columns.

    UsageError if there is no row.
    """
    if not rows:
        raise UsageError("no row; expected one or more")
    texts = [_texts(row) for row in rows]
    hidden = set(FULL_ONLY) if terminal else set()
    if len({row.policy_text for row in rows}) == 1:
        hidden.add("Policy")
    header = [name for name in texts[0] if name not in hidden]
    body = [[text[name] for name in header] for text in texts]
    cost = TERMINAL_COST_NOTE if terminal else COST_NOTE
    notes = [SCORE_NOTE, BEST_NOTE, cost, *seeds_notes([row.seeds for row in rows])]
    notes += one_episode_notes(rows)
    return Sheet(header, body, notes)


def best_rows(rows: Sequence[LeaderboardRow]) -> list[LeaderboardRow]:
    """The first row of each environment, which has the best score."""
    return [next(group) for _, group in groupby(rows, lambda row: row.environment)]


def best_sheet(found: Sequence[LeaderboardRow], rows: Sequence[LeaderboardRow]) -> Sheet:
    """The table of the best row of each environment among ``rows``; UsageError if there is none."""
    sheet = leaderboard_sheet(found)
    header = [name for name in BEST_COLUMNS if name in (*sheet.header, OVERLAP)]
    body = []
    for best in found:
        place = best.environment, best.budget
        alike = [row for row in rows if (row.environment, row.budget) == place]
        others = [row for row in alike if row.file != best.file]
        overlapping = sum(row.high >= best.low and row.low <= best.high for row in others)
        texts = _texts(best) | {OVERLAP: f"{overlapping} of {len(others)}"}
        body.append([texts[name] for name in header])
    notes = [note for note in sheet.notes if note not in (BEST_NOTE, COST_NOTE)]
    return Sheet(header, body, [*notes, OVERLAP_NOTE])


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

    The defaults of an agent or a plugin are known only where it is installed.
    """
    spec = entry.spec
    algorithm, policy = spec["algorithm"], spec["policy"]
    played = {key: value for key, value in spec["environment"].items() if key not in _NOT_SETTINGS}
    validation = {key: value for key, value in spec["evaluation"].items() if key == "validation"}
    parts: list[tuple[type[Settings], dict[str, Any]]] = []
    with contextlib.suppress(UsageError):
        parts.append((trainer_settings(algorithm["name"]), algorithm["settings"]))
    if policy is not None:
        others = {key: value for key, value in policy["settings"].items() if key != "hidden"}
        with contextlib.suppress(UsageError):
            parts.append((POLICIES.get(policy["template"]).Settings, others))
    parts += [(EnvironmentSpec, played), (EvaluationSpec, validation)]
    return ", ".join(
        f"{name} {json.dumps(value) if isinstance(value, list | dict) else value}"
        for cls, values in parts
        for name, value in values.items()
        if value not in ([], {}) and value != _default(cls, name)
    )


def _default(settings: type[Settings], name: str) -> Any:
    field = settings.model_fields.get(name)
    default = field and field.get_default(call_default_factory=True)
    return to_jsonable_python(default, fallback=str)


def one_episode_notes(rows: Sequence[LeaderboardRow]) -> list[str]:
    """The footnote that names the rows whose held-out episodes are all the same one, if any."""
    return grouped((row.title, ONE_EPISODE) for row in rows if row.one_episode)


def _shown(entry: Entry) -> tuple[object, ...]:
    """What tells a row from others without its settings: labels, policy and budget."""
    return entry.cell.labels, policy_words(entry), entry.spec["budget"]["env_steps"]


def _row(entry: Entry, ambiguous: bool) -> LeaderboardRow:
    cell, origins = entry.to_cell(), entry.origins
    low, high = cell.interval
    best = [math.nan if run.best_center is None else run.best_center for run in entry.runs]
    source = entry.cell.reference_source
    return LeaderboardRow(
        environment=cell.environment,
        algorithm=f"{cell.label} #{entry.variant}" if ambiguous else cell.label,
        policy=cell.policy,
        policy_text=policy_words(entry),
        score=cell.score,
        low=low,
        high=high,
        tail=cell.tail,
        one_episode=cell.variety == "one",
        best_seen=float(iqm(best)),
        seeds=len(cell.runs),
        budget=cell.budget,
        env_steps=cell.env_steps,
        generations=cell.mean_cost("generations"),
        wall_time_s=cell.mean_cost("wall_time_s"),
        cpu_time_s=cell.mean_cost("cpu_time_s"),
        random_score=cell.random_score,
        reference_score=cell.reference_score,
        reference_source=source,
        normalized=math.nan if source == OWN_MEAN else cell.normalized(cell.score),
        commands=entry.commands,
        commits=tuple(dict.fromkeys(origin.git_commit or NONE for origin in origins)),
        hardware=tuple(dict.fromkeys(str(o.hardware.get("cpu", NONE)) for o in origins)),
        versions=_versions(origins),
        file=entry.file_name,
    )


def _versions(origins: Sequence[Origin]) -> dict[str, str]:
    """The versions of each package, joined where origins differ."""
    found: dict[str, dict[str, None]] = {}
    for origin in origins:
        for name, version in origin.versions.items():
            if version:
                found.setdefault(name, {})[version] = None
    return {name: " and ".join(versions) for name, versions in found.items()}


def _texts(row: LeaderboardRow) -> dict[str, str]:
    return {
        "Environment": row.environment,
        "Algorithm": row.algorithm,
        "Policy": row.policy_text,
        "Score": format_number(row.score),
        INTERVAL: f"[{format_number(row.low)}, {format_number(row.high)}]",
        "Tail": format_number(row.tail),
        "Best seen": format_number(row.best_seen),
        "Seeds": str(row.seeds),
        "Steps": format_steps(row.env_steps),
        "Generations": f"{row.generations:,.0f}",
        "CPU time": format_duration(row.cpu_time_s),
        "Normalized": format_share(row.normalized),
    }
