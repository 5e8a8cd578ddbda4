"""Score tables: one row per environment and algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Final, final

from esbench.analysis.comparison import LEVEL, Standing, standings
from esbench.analysis.statistics import bootstrap_interval, iqm, normalized
from esbench.files import Json
from esbench.grids.environment_files import Scores
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.reporting.tables.footnotes import command_notes, seeds_notes, settings_notes
from esbench.reporting.tables.render_table import INTERVAL, Sheet
from esbench.reporting.tables.summary import overall, sentences
from esbench.store.cells import Cell, cell_name, cells
from esbench.store.provenance.changes import mixture
from esbench.units import NONE, counted, format_duration, format_number, format_share, format_steps


@final
@dataclass(frozen=True)
class ScoreRow:
    """The score of one algorithm in one environment. A missing number is NaN, a missing text empty.

    Attributes:
        environment, algorithm, policy: labels, as in ``Cell``.
        score: IQM over seeds of the final policy's mean return over held-out episodes.
        low, high: its 95 % bootstrap interval; NaN with fewer than three seeds.
        seeds: the number of trials with a score. Only these enter the numbers.
        unfinished: the number of other trials: partial, running, failed, or without a finite score.
        env_steps, wall_time_s: of training, mean over seeds.
        random_score: the score of random actions.
        reference_score, reference_method, reference_source, reference_comparable,
            reference_note: the first published score in the environment's file.
        normalized: the score on a scale where random actions are 0 and the reference is 1.
        commands: the distinct commands that made the trials.
        hardware: the distinct machines they ran on.
        differs: settings that differ between rows with the same labels, as "key=value".
        inherited: settings of the algorithm that come from the environment's file.
        mixture: packages with several versions among the trials, as "numpy 2.3 and 2.4".
        trials: the folders of the trials, in the order of the seeds.
        scores: the score of each seed, in the order of the seeds.
        standing: "best" in its environment, "tied" if not significantly different from it, or "".
    """

    environment: str
    algorithm: str
    policy: str
    score: float
    low: float
    high: float
    seeds: int
    unfinished: int
    env_steps: float
    wall_time_s: float
    random_score: float
    reference_score: float
    reference_method: str
    reference_source: str
    reference_comparable: bool | None
    reference_note: str
    normalized: float
    commands: tuple[str, ...]
    hardware: tuple[str, ...]
    differs: tuple[str, ...]
    inherited: tuple[str, ...] = ()
    mixture: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    standing: Standing = ""

    @property
    def name(self) -> str:
        """Algorithm and policy; the default policy is not named."""
        return cell_name(self.algorithm, self.policy)

    @property
    def title(self) -> str:
        """Algorithm, policy and environment."""
        return f"{self.name} on {self.environment}"


def score_table(root: Path) -> list[ScoreRow]:
    """One row per environment and algorithm, sorted by environment, the best score first.

    Args:
        root: a folder with trials.

    Raises:
        UsageError: there is no trial, or a trial is not readable.
    """
    found = cells(root)
    results = [scored_results(cell) for cell in found]
    rows = [_row(cell, mine) for cell, mine in zip(found, results, strict=True)]
    scores = [[float(result["score"]) for result in mine] for mine in results]
    for environment in dict.fromkeys(row.environment for row in rows):
        places = [place for place, row in enumerate(rows) if row.environment == environment]
        marks = standings([scores[place] for place in places])
        for place, mark in zip(places, marks, strict=True):
            rows[place] = replace(rows[place], standing=mark)
    return sorted(rows, key=lambda row: (row.environment, _worst_last(row.score), row.name))


def sheet(rows: Sequence[ScoreRow], *, terminal: bool = False) -> Sheet:
    """The table without columns that are empty, and its footnotes.

    With ``terminal`` it has fewer columns, and the policy is part of the algorithm's name.
    """
    references, notes = references_of(rows), footnotes(rows)
    texts = [_texts(row, references) for row in rows]
    optional = ("Random", "Reference", "Normalized")
    hidden = {name for name in optional if all(text[name] == NONE for text in texts)}
    if terminal or all(row.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    if terminal:
        hidden |= {"Random", "Normalized"}
        texts = [text | {"Algorithm": row.name} for text, row in zip(texts, rows, strict=True)]
        notes = [note for note in notes if note != NORMALIZED]
    header = [name for name in texts[0] if name not in hidden]
    body = [[text[name] for name in header] for text in texts]
    score = header.index("Score")
    best = frozenset((n, score) for n, row in enumerate(rows) if row.standing == "best")
    return Sheet(header, body, notes, best)


def footnotes(rows: Sequence[ScoreRow]) -> list[str]:
    """The sentences below a table: how to read it, cautions, references and commands."""
    notes = [f"{PROTOCOL} Steps and time: of training, mean over seeds."]
    if any(not math.isnan(row.normalized) for row in rows):
        notes.append(NORMALIZED)
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += sentences(overall(normalized_scores(rows)))
    notes += cautions(rows)
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    if hardware := dict.fromkeys(item for row in rows for item in row.hardware):
        notes.append(f"Time measured on: {'; '.join(hardware)}.")
    notes += command_notes(rows)
    return [" ".join(note.split()) for note in notes]


PROTOCOL: Final = (
    "Score: interquartile mean (IQM) over training seeds of the final policy's mean return over "
    "held-out episodes. Interval: 95 % percentile bootstrap over seeds."
)
NORMALIZED: Final = "Normalized: 0 is the random policy, 1 the reference."
STANDINGS: Final = (
    "*: the best of its environment. =: not significantly different from the best (with three "
    f"seeds, nothing is): two-sided permutation test of the means at {LEVEL}, Holm-corrected over "
    "the rows of the environment. Unmarked: significantly worse."
)
MARKS: Final[dict[Standing, str]] = {"best": " *", "tied": " =", "": ""}


def scored_results(cell: Cell) -> list[Json]:
    """The results with a finite score."""
    results = [trial.result() for trial in cell.trials if trial.is_done]
    return [result for result in results if result["score"] is not None]


def _row(cell: Cell, scored: Sequence[Json]) -> ScoreRow:
    scores = [float(result["score"]) for result in scored]
    score = float(iqm(scores)) if scores else math.nan
    low, high = map(float, bootstrap_interval(scores)) if scores else (math.nan, math.nan)
    random = cell.scores.random.mean if cell.scores.random else math.nan
    reference = cell.scores.references[0] if cell.scores.references else None
    return ScoreRow(
        environment=cell.environment,
        algorithm=cell.algorithm,
        policy=cell.policy,
        score=score,
        low=low,
        high=high,
        seeds=len(scored),
        unfinished=len(cell.trials) - len(scored),
        env_steps=_mean(scored, "env_steps"),
        wall_time_s=_mean(scored, "wall_time_s"),
        random_score=random,
        reference_score=reference.score if reference else math.nan,
        reference_method=reference.method if reference else "",
        reference_source=reference.source if reference else "",
        reference_comparable=reference.comparable if reference else None,
        reference_note=reference.note if reference else "",
        normalized=normalized_score(score, cell.scores),
        commands=commands_of(cell),
        hardware=tuple(dict.fromkeys(filter(None, map(_hardware, cell.descriptions)))),
        differs=cell.differs,
        inherited=tuple(
            dict.fromkeys(name for content in cell.descriptions for name in content["inherited"])
        ),
        mixture=tuple(mixture(cell.descriptions)),
        trials=tuple(str(trial.path) for trial in cell.trials),
        scores=tuple(scores),
    )


def _mean(results: Sequence[Json], key: str) -> float:
    return fmean(result[key] for result in results) if results else math.nan


def commands_of(cell: Cell) -> tuple[str, ...]:
    """The distinct commands that made the trials."""
    commands = (description.get("command", "") for description in cell.descriptions)
    return tuple(dict.fromkeys(filter(None, commands)))


def normalized_score(value: float, scores: Scores) -> float:
    """A score where random actions are 0 and the reference is 1; NaN if either is unknown."""
    if scores.random is None or not scores.references:
        return math.nan
    return normalized(value, scores.random.mean, scores.references[0].score)


def _hardware(description: Json) -> str:
    hardware = description.get("hardware")
    return f"{hardware.get('cpu')}, {hardware.get('cores')} cores" if hardware else ""


def normalized_scores(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[float]]]:
    """Normalized scores by algorithm and environment, where random and reference are known."""
    table: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not math.isnan(row.normalized):
            scale = row.random_score, row.reference_score
            found = [normalized(score, *scale) for score in row.scores]
            table.setdefault(row.name, {})[row.environment] = found
    return table


def _worst_last(score: float) -> float:
    return math.inf if math.isnan(score) else -score


def cautions(rows: Sequence[ScoreRow]) -> list[str]:
    """Cautions: few seeds, trials without a score, several versions, differing settings."""
    lines = seeds_notes([row.seeds for row in rows])
    if left_out := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(left_out, 'trial')} without a score left out (partial, running, failed or "
            "diverged): see 'esbench status'."
        )
    for row in rows:
        if row.mixture:
            versions = "; ".join(row.mixture)
            lines.append(f"{row.title}: seeds of different code: {versions}.")
    lines += _inherited_notes(rows)
    return lines + settings_notes(rows)


def _inherited_notes(rows: Sequence[ScoreRow]) -> list[str]:
    """Environments whose file has settings for some of the algorithms only."""
    where: dict[str, list[str]] = {}
    for environment, several in groupby(rows, key=lambda row: row.environment):
        settings = {row.algorithm: row.inherited for row in several}
        without = sorted(algorithm for algorithm, names in settings.items() if not names)
        some = [f"{name} ({', '.join(names)})" for name, names in settings.items() if names]
        if some and without:
            text = f"settings from the environment's file: {', '.join(some)}; none: "
            where.setdefault(text + ", ".join(without), []).append(environment)
    return [f"{', '.join(environments)}: {text}." for text, environments in where.items()]


def references_of(rows: Sequence[ScoreRow]) -> dict[str, int]:
    """The numbers of the references by their descriptions, in the order of the rows."""
    texts = dict.fromkeys(reference_text(row) for row in rows if row.reference_method)
    return {text: number for number, text in enumerate(texts, start=1)}


def reference_text(row: ScoreRow) -> str:
    """The description of the published score of a row's environment."""
    comparable = "comparable" if row.reference_comparable else "NOT comparable"
    note = f" ({row.reference_note})" if row.reference_note else ""
    source = f"{row.reference_method}, {row.reference_source}"
    return f"{row.environment}: {source}; {comparable}{note}"


def _texts(row: ScoreRow, references: dict[str, int]) -> dict[str, str]:
    """The text of each cell of a row, by column."""
    reference = format_number(row.reference_score)
    if row.reference_method:
        reference += f" [{references[reference_text(row)]}]"
    total = row.seeds + row.unfinished
    interval = f"[{format_number(row.low)}, {format_number(row.high)}]"
    return {
        "Environment": row.environment,
        "Algorithm": row.algorithm,
        "Policy": row.policy,
        "Score": format_number(row.score) + MARKS[row.standing],
        INTERVAL: NONE if math.isnan(row.low) else interval,
        "Seeds": f"{row.seeds} of {total}" if row.unfinished else str(row.seeds),
        "Steps": format_steps(row.env_steps),
        "Time": format_duration(row.wall_time_s),
        "Random": format_number(row.random_score),
        "Reference": reference,
        "Normalized": format_share(row.normalized),
    }
