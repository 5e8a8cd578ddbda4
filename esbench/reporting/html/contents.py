"""All that a report shows, gathered from an output folder."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from esbench.analysis.health import Level
from esbench.analysis.statistics import MIN_RUNS
from esbench.files import Json
from esbench.grids.trial_spec import flatten
from esbench.reporting.diagnosis import Diagnosis, diagnose_trial
from esbench.reporting.figures.style import assign_styles
from esbench.reporting.html.charts import Chart, Drawing, Place, draw, swatch
from esbench.reporting.html.panels import across, panels
from esbench.reporting.tables.render_table import Sheet
from esbench.reporting.tables.score_table import ScoreRow, normalized_scores, score_table, sheet
from esbench.reporting.tables.summary import Overall, overall, sentences
from esbench.store.origins import own_code_of
from esbench.store.seed_groups import Cell, cells
from esbench.store.trial_folder import Status, TrialFolder
from esbench.units import NONE, counted, format_duration, format_number, format_steps

STATUSES: Final[tuple[Status, ...]] = ("done", "running", "partial", "failed")
DIGEST: Final = 12  # characters: enough to tell two apart by eye


@final
@dataclass(frozen=True)
class Algorithm:
    """One line of the legend: an algorithm with its policy, and how its curves look."""

    number: int
    name: str
    swatch: str


@final
@dataclass(frozen=True)
class Environment:
    """The charts of one environment."""

    number: int
    name: str
    learning: list[Drawing]
    health: list[Drawing]


@final
@dataclass(frozen=True)
class Score:
    """One line of the table: whose it is, by number, and its cells."""

    environment: int
    algorithm: int
    standing: str
    texts: Sequence[str]


@final
@dataclass(frozen=True)
class Finding:
    """What there is to say about one trial, other than that it is well."""

    environment: int
    algorithm: int
    trial: str
    level: Level
    sentence: str
    advice: str


@final
@dataclass(frozen=True)
class Trial:
    """One trial in words. ``origin`` is the number of what it was made with."""

    seed: int
    status: str
    score: str
    steps: str
    generations: int
    time: str
    origin: int
    digest: str
    folder: str
    error: str


@final
@dataclass(frozen=True)
class Settings:
    """The trials that differ in nothing but the seed, and the settings that they share."""

    environment: int
    algorithm: int
    name: str
    settings: dict[str, str]
    trials: list[Trial]


@final
@dataclass(frozen=True)
class Contents:
    """All that a report shows.

    Attributes:
        title: its heading.
        facts: how much there is, each with its name.
        sentences: which algorithm is best where, and how healthy the runs are.
        overall: algorithms over all environments, with their numbers; empty below two environments.
        charts: over all environments.
        algorithms, environments: with their numbers, which the others refer to.
        header, scores, notes: the table of scores.
        findings: warnings first.
        settings: of each cell.
        origins: versions, hardware, commit and command, each once.
    """

    title: str
    facts: dict[str, str]
    sentences: list[str]
    overall: list[tuple[int, Overall]]
    charts: list[Drawing]
    algorithms: list[Algorithm]
    environments: list[Environment]
    header: Sequence[str]
    scores: list[Score]
    notes: Sequence[str]
    findings: list[Finding]
    settings: list[Settings]
    origins: list[dict[str, str]]


def contents(root: Path, title: str | None = None) -> Contents:
    """Return what a report of an output folder shows.

    Args:
        root: folder with trials.
        title: the heading; by default the folder's name.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    found, rows = cells(root), score_table(root)
    algorithms = {cell.name: cell.algorithm for cell in found}
    names = [(algorithms[name], name) for name in sorted(algorithms)]
    places = {
        name: Place(number, style)
        for number, ((_, name), style) in enumerate(zip(names, assign_styles(names), strict=True))
    }
    environments = {name: number for number, name in enumerate(_each_once(found))}
    origins = _origins(found)
    diagnoses = [(cell, diagnose_trial(trial)) for cell in found for trial in cell.trials]
    findings = _findings(diagnoses, environments, places, root)
    table, totals = sheet(rows), overall(normalized_scores(rows))
    shown = set(sentences(totals))  # as a table
    return Contents(
        title=root.resolve().name if title is None else title,
        facts=_facts(found),
        sentences=[*_best(rows), *_left_out(rows), *_twice(found), _health(diagnoses)],
        overall=[(places[item.name].number, item) for item in totals],
        charts=_drawn(across(found, places), "across"),
        algorithms=[
            Algorithm(place.number, name, swatch(place.style, f"swatch-{place.number}"))
            for name, place in places.items()
        ],
        environments=_environments(found, environments, places),
        header=table.header,
        scores=_scores(rows, table, environments, places),
        notes=[note for note in table.notes if note not in shown],
        findings=findings,
        settings=[
            _settings(cell, environments[cell.environment], places[cell.name].number, origins, root)
            for cell in found
        ],
        origins=origins,
    )


def _each_once(found: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.environment for cell in found))


def _facts(found: Sequence[Cell]) -> dict[str, str]:
    trials = [trial for cell in found for trial in cell.trials]
    statuses = Counter(trial.status for trial in trials)
    spent = [trial.columns("env_steps", "cpu_time_s") for trial in trials]
    begun = sorted(
        str(description["created"])
        for cell in found
        for description in cell.descriptions
        if "created" in description
    )
    facts = {
        "Environments": str(len(_each_once(found))),
        "Algorithms": str(len({cell.name for cell in found})),
        "Trials": ", ".join(f"{statuses[name]} {name}" for name in STATUSES if statuses[name]),
        "Steps trained": format_steps(sum(float(run["env_steps"][-1:].sum()) for run in spent)),
        "CPU time": format_duration(sum(float(run["cpu_time_s"][-1:].sum()) for run in spent)),
    }
    if begun:
        first, last = begun[0][:10], begun[-1][:10]
        facts["Begun"] = first if first == last else f"{first} to {last}"
    return facts


def _best(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for each environment: which algorithm is best, and which may be."""
    sentences = []
    for environment, members in itertools.groupby(rows, lambda row: row.environment):
        group = [row for row in members if row.standing]
        if not group:
            continue
        first = group[0]
        equal = [row for row in group if row.score == first.score]
        tied = [row.name for row in group if row.standing == "tied" and row not in equal]
        names = " and ".join(f"{row.name} ({_seeds(row)})" for row in equal)
        verb = "is best" if len(equal) == 1 else "are best alike"
        beside = f"; not told apart: {', '.join(tied)}" if tied else ""
        if tied and min(row.seeds for row in group) < MIN_RUNS:
            beside = f"; with fewer than {MIN_RUNS} seeds nothing can be told apart"
        score = format_number(first.score)
        sentences.append(f"{environment}: {names} {verb} with {score}{beside}.")
    return sentences


def _seeds(row: ScoreRow) -> str:
    """Return how many seeds a score is of, and of how many if some have none."""
    total = row.seeds + row.unfinished
    return f"{row.seeds} of {total} seeds" if row.unfinished else counted(row.seeds, "seed")


def _left_out(rows: Sequence[ScoreRow]) -> list[str]:
    """Return which algorithms are not summed up, since they lack an environment."""
    table = normalized_scores(rows)
    shown = {item.name for item in overall(table)}
    missing = [name for name in table if name not in shown]
    if not (shown and missing):
        return []
    return [f"Without a score in some environment, not summed up over all: {', '.join(missing)}."]


def _twice(found: Sequence[Cell]) -> list[str]:
    return [
        f"{cell.name} on {cell.environment}: {cell.twice[0].name} is stored twice and counts once."
        for cell in found
        if cell.twice
    ]


def _health(diagnoses: Sequence[tuple[Cell, Diagnosis]]) -> str:
    """Return how many trials have a warning, and how many nobody can judge."""
    names = [{finding.name for finding in item.findings} for _, item in diagnoses]
    short = sum("too_short" in found for found in names)
    sick = sum(item.level == "warning" for _, item in diagnoses)
    if short == len(names):
        return f"Health: with {counted(short, 'trial')} too short nothing can be judged."
    judged = counted(len(names) - short, "trial")
    text = f"{sick} of {judged} with a warning" if sick else f"no warning in {judged}"
    return f"Health: {text}{f'; {short} too short to judge' if short else ''}."


def _environments(
    found: Sequence[Cell], numbers: Mapping[str, int], places: Mapping[str, Place]
) -> list[Environment]:
    environments = []
    for name, members in itertools.groupby(found, lambda cell: cell.environment):
        number, charts = numbers[name], panels(list(members), places)
        learning = _drawn(charts.learning, f"learning-{number}")
        environments.append(
            Environment(number, name, learning, _drawn(charts.health, f"health-{number}"))
        )
    return environments


def _drawn(charts: Sequence[Chart], name: str) -> list[Drawing]:
    return [draw(chart, f"{name}-{place}") for place, chart in enumerate(charts)]


def _scores(
    rows: Sequence[ScoreRow],
    table: Sheet,
    environments: Mapping[str, int],
    places: Mapping[str, Place],
) -> list[Score]:
    return [
        Score(environments[row.environment], places[row.name].number, row.standing, texts)
        for row, texts in zip(rows, table.body, strict=True)
    ]


def _findings(
    diagnoses: Sequence[tuple[Cell, Diagnosis]],
    environments: Mapping[str, int],
    places: Mapping[str, Place],
    root: Path,
) -> list[Finding]:
    """Return the warnings and the notes of all trials, warnings first."""
    findings = [
        Finding(
            environments[cell.environment],
            places[cell.name].number,
            Path(item.trial).relative_to(root).as_posix(),
            finding.level,
            finding.sentence,
            finding.advice,
        )
        for cell, item in diagnoses
        for finding in item.findings
        if finding.level != "ok"
    ]
    return sorted(findings, key=lambda finding: finding.level != "warning")


def _settings(
    cell: Cell, environment: int, algorithm: int, origins: Sequence[Json], root: Path
) -> Settings:
    spec = {key: value for key, value in cell.descriptions[0]["spec"].items() if key != "seed"}
    pairs = zip(cell.trials, cell.descriptions, strict=True)
    return Settings(
        environment=environment,
        algorithm=algorithm,
        name=f"{cell.name} on {cell.environment}",
        settings={key: json.dumps(value) for key, value in flatten(spec).items()},
        trials=[
            _trial(trial, description, origins.index(_origin(description)), root)
            for trial, description in pairs
        ],
    )


def _trial(trial: TrialFolder, description: Json, origin: int, root: Path) -> Trial:
    spent, status = trial.columns("env_steps", "wall_time_s", "digest"), trial.status
    score = trial.result()["score"] if status == "done" else None
    generations = len(spent["digest"])
    return Trial(
        seed=description["spec"]["seed"],
        status="done, diverged" if status == "done" and score is None else status,
        score=NONE if score is None else format_number(score),
        steps=format_steps(spent["env_steps"][-1]) if generations else NONE,
        generations=generations,
        time=format_duration(spent["wall_time_s"][-1]) if generations else NONE,
        origin=origin + 1,
        digest=spent["digest"][-1][:DIGEST] if generations else NONE,
        folder=_within(root, trial),
        error=trial.error().strip().rpartition("\n")[2] if status == "failed" else "",
    )


def _origins(found: Sequence[Cell]) -> list[Json]:
    """Return what trials were made with, each once."""
    origins: list[Json] = []
    for description in (item for cell in found for item in cell.descriptions):
        if (origin := _origin(description)) not in origins:
            origins.append(origin)
    return origins


def _origin(description: Json) -> Json:
    """Return versions, hardware, commit and command of a trial in words; what is unknown is not."""
    hardware, versions = description.get("hardware") or {}, description.get("versions") or {}
    origin = {
        "Command": description.get("command"),
        "Commit": description.get("git_commit"),
        "Processor": hardware.get("cpu") and f"{hardware['cpu']}, {hardware.get('cores')} cores",
        "Platform": hardware.get("platform"),
        "Own code": ", ".join(f"{name} {of}" for name, of in own_code_of(description).items()),
        "Versions": ", ".join(f"{name} {of}" for name, of in versions.items() if of),
    }
    return {key: str(value) for key, value in origin.items() if value}


def _within(root: Path, trial: TrialFolder) -> str:
    return trial.path.relative_to(root).as_posix()
