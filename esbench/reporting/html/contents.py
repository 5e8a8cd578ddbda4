"""The data of a report, gathered from an output folder."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

from esbench.analysis.statistics import MIN_RUNS
from esbench.files import Json
from esbench.grids.trial_spec import flatten
from esbench.reporting.diagnosis import Diagnosis, diagnose_trial
from esbench.reporting.figures.style import assign_styles
from esbench.reporting.html.charts import (
    ChartKey,
    ReportChart,
    charts_across,
    environment_charts,
    swatch,
)
from esbench.reporting.tables.render_table import TEXTS
from esbench.reporting.tables.score_table import ScoreRow, normalized_scores, score_table, sheet
from esbench.reporting.tables.summary import interval, overall, sentences
from esbench.store.cells import Cell, cells
from esbench.store.provenance.changes import own_code_of
from esbench.store.trial_folder import Status, TrialFolder
from esbench.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_share,
    format_steps,
)

STATUSES: Final[tuple[Status, ...]] = ("done", "running", "partial", "failed")
DIGEST: Final = 12  # characters of a digest that are shown


@final
@dataclass(frozen=True)
class ReportTable:
    """A table of the page; a row has its cells and the number of its algorithm."""

    header: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]
    texts: Sequence[str] = TEXTS
    """Columns of words; the others are numbers, aligned to the right."""


@final
@dataclass(frozen=True)
class ReportContents:
    """The data of a report.

    Attributes:
        title: the heading.
        facts: numbers of environments, algorithms and trials, steps and time.
        sentences: the best algorithm of each environment, and the health of the runs.
        algorithms: name and swatch, by number.
        overall: the table over all environments; no rows below two environments.
        charts: over all environments.
        scores, best, notes: the table of scores, the indices of its best rows, and its footnotes.
        environments: for each its name and charts, of ``learning`` and ``health``.
        findings: of all trials, warnings first.
        cells: for each its name, settings and a table of its trials.
        origins: versions, hardware, commit and command, each combination once.
    """

    title: str
    facts: dict[str, str]
    sentences: list[str]
    algorithms: list[tuple[str, Json]]
    overall: ReportTable
    charts: list[ReportChart]
    scores: ReportTable
    best: set[int]
    notes: list[str]
    environments: list[Json]
    findings: list[Json]
    cells: list[Json]
    origins: list[dict[str, str]]


def report_contents(root: Path, title: str | None = None) -> ReportContents:
    """Gather the data of the report of an output folder.

    Args:
        root: folder with trials.
        title: the heading; by default the folder's name.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    found, rows = cells(root), score_table(root)
    labels = {cell.name: cell.algorithm for cell in found}
    names = sorted(labels)
    styles = assign_styles([(labels[name], name) for name in names])
    keys = {
        name: ChartKey(names.index(name), style) for name, style in zip(names, styles, strict=True)
    }
    diagnoses = [(cell, diagnose_trial(trial)) for cell in found for trial in cell.trials]
    table, totals = sheet(rows), overall(normalized_scores(rows))
    shown = set(sentences(totals))  # as a table
    origins = _origins(found)
    return ReportContents(
        title=root.resolve().name if title is None else title,
        facts=_facts(found),
        sentences=[*_best(rows), *_not_summed(rows), *_duplicates(found), _health(diagnoses)],
        algorithms=[(name, swatch(key.style)) for name, key in keys.items()],
        overall=ReportTable(
            ("Algorithm", "IQM", "95 % interval", "Mean", "Median", "Optimality gap"),
            [
                (
                    keys[item.name].number,
                    (
                        item.name,
                        format_share(item.iqm),
                        interval(item).strip() or NONE,
                        *map(format_share, (item.mean, item.median, item.optimality_gap)),
                    ),
                )
                for item in totals
            ],
        ),
        charts=charts_across(found, keys),
        scores=ReportTable(
            table.header,
            [(keys[r.name].number, cells) for r, cells in zip(rows, table.body, strict=True)],
        ),
        best={index for index, row in enumerate(rows) if row.standing == "best"},
        notes=[note for note in table.notes if note not in shown],
        environments=_environments(found, keys),
        findings=_findings(diagnoses, keys, root),
        cells=[_cell(cell, keys[cell.name].number, origins, root) for cell in found],
        origins=origins,
    )


def _facts(found: Sequence[Cell]) -> dict[str, str]:
    trials = [trial for cell in found for trial in cell.trials]
    statuses = Counter(trial.status for trial in trials)
    spent = [trial.columns("env_steps", "cpu_time_s") for trial in trials]
    days = sorted(str(item["created"])[:10] for cell in found for item in cell.descriptions)
    return {
        "Environments": str(len({cell.environment for cell in found})),
        "Algorithms": str(len({cell.name for cell in found})),
        "Trials": ", ".join(f"{statuses[name]} {name}" for name in STATUSES if statuses[name]),
        "Steps trained": format_steps(sum(float(run["env_steps"][-1:].sum()) for run in spent)),
        "CPU time": format_duration(sum(float(run["cpu_time_s"][-1:].sum()) for run in spent)),
        "Started": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
    }


def _best(rows: Sequence[ScoreRow]) -> list[str]:
    """A sentence for each environment: the best algorithm, and those tied with it."""
    found = []
    for environment, members in itertools.groupby(rows, lambda row: row.environment):
        group = [row for row in members if row.standing]
        if not group:
            continue
        first = group[0]
        equal = [row for row in group if row.score == first.score]
        tied = [row.name for row in group if row.standing == "tied" and row not in equal]
        names = " and ".join(f"{row.name} ({_seeds(row)})" for row in equal)
        verb = "is best" if len(equal) == 1 else "are equally good"
        beside = f"; not significantly different: {', '.join(tied)}" if tied else ""
        if tied and min(row.seeds for row in group) < MIN_RUNS:
            beside = f"; with fewer than {MIN_RUNS} seeds no difference is significant"
        score = format_number(first.score)
        found.append(f"{environment}: {names} {verb} with {score}{beside}.")
    return found


def _seeds(row: ScoreRow) -> str:
    total = row.seeds + row.unfinished
    return f"{row.seeds} of {total} seeds" if row.unfinished else counted(row.seeds, "seed")


def _not_summed(rows: Sequence[ScoreRow]) -> list[str]:
    """A sentence about the algorithms that lack an environment of the overall table."""
    table = normalized_scores(rows)
    shown = {item.name for item in overall(table)}
    missing = [name for name in table if name not in shown]
    if not (shown and missing):
        return []
    return [f"Not in the overall table, since some environment is missing: {', '.join(missing)}."]


def _duplicates(found: Sequence[Cell]) -> list[str]:
    return [
        f"{cell.name} on {cell.environment}: {cell.twice[0].name} is stored twice and counts once."
        for cell in found
        if cell.twice
    ]


def _health(diagnoses: Sequence[tuple[Cell, Diagnosis]]) -> str:
    """A sentence about the number of trials with a warning and of those too short to judge."""
    total = len(diagnoses)
    short = sum(any(f.name == "too_short" for f in item.findings) for _, item in diagnoses)
    sick = sum(item.level == "warning" for _, item in diagnoses)
    if short == total:
        return f"Health: {counted(total, 'trial')} too short to judge."
    judged = counted(total - short, "trial")
    text = f"{sick} of {judged} with a warning" if sick else f"no warning in {judged}"
    return f"Health: {text}{f'; {short} too short to judge' if short else ''}."


def _environments(found: Sequence[Cell], keys: Mapping[str, ChartKey]) -> list[Json]:
    environments = []
    for name, members in itertools.groupby(found, lambda cell: cell.environment):
        learning, health = environment_charts(list(members), keys)
        environments.append({"name": name, "learning": learning, "health": health})
    return environments


def _findings(
    diagnoses: Sequence[tuple[Cell, Diagnosis]], keys: Mapping[str, ChartKey], root: Path
) -> list[Json]:
    """The warnings and the notes of all trials, warnings first."""
    findings = [
        {
            "algorithm": keys[cell.name].number,
            "trial": Path(item.trial).relative_to(root).as_posix(),
            **asdict(finding),
        }
        for cell, item in diagnoses
        for finding in item.findings
        if finding.level != "ok"
    ]
    return sorted(findings, key=lambda finding: finding["level"] != "warning")


def _cell(cell: Cell, number: int, origins: Sequence[Json], root: Path) -> Json:
    spec = {key: value for key, value in cell.descriptions[0]["spec"].items() if key != "seed"}
    return {
        "algorithm": number,
        "name": f"{cell.name} on {cell.environment}",
        "settings": {key: json.dumps(value) for key, value in flatten(spec).items()},
        "trials": [
            {
                "Seed": str(description["spec"]["seed"]),
                **_trial(trial),
                "Made with": str(origins.index(_origin(description)) + 1),
                "Folder": trial.path.relative_to(root).as_posix(),
            }
            for trial, description in zip(cell.trials, cell.descriptions, strict=True)
        ],
    }


def _trial(trial: TrialFolder) -> dict[str, str]:
    spent, status = trial.columns("env_steps", "wall_time_s", "digest"), trial.status
    score = trial.result()["score"] if status == "done" else None
    generations = len(spent["digest"])
    if status == "failed":
        text = f"failed: {trial.error().strip().rpartition(chr(10))[2]}"
    else:
        text = "done, diverged" if status == "done" and score is None else status
    return {
        "Status": text,
        "Score": NONE if score is None else format_number(score),
        "Steps": format_steps(spent["env_steps"][-1]) if generations else NONE,
        "Generations": str(generations),
        "Time": format_duration(spent["wall_time_s"][-1]) if generations else NONE,
        "Last digest": spent["digest"][-1][:DIGEST] if generations else NONE,
    }


def _origins(found: Sequence[Cell]) -> list[dict[str, str]]:
    """What the trials were made with, each combination once."""
    origins: list[dict[str, str]] = []
    for description in (item for cell in found for item in cell.descriptions):
        if (origin := _origin(description)) not in origins:
            origins.append(origin)
    return origins


def _origin(description: Json) -> dict[str, str]:
    """Versions, hardware, commit and command of a trial as text; unknown ones are left out."""
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
