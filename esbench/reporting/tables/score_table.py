"""Scores: one row per environment and algorithm, and statistics over all environments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Final, final

from esbench.analysis import aggregates
from esbench.analysis.aggregates import stratified_interval
from esbench.analysis.comparison import LEVEL, Standing, standings
from esbench.analysis.statistics import (
    EpisodeStatistic,
    bootstrap_interval,
    iqm,
    normalized,
    tail_mean,
)
from esbench.errors import UsageError, suggestion
from esbench.files import Json
from esbench.grids.environment_files import Scores
from esbench.grids.sweep import value_text, without_setting
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.reporting.tables.render_table import (
    INTERVAL,
    Sheet,
    TableRow,
    command_notes,
    nan_last,
    seeds_notes,
    settings_notes,
    variety_notes,
)
from esbench.store.cells import TOLERATED, Cell, cells, finite_scores
from esbench.store.held_out import Variety, least_varied
from esbench.store.provenance.changes import mixture
from esbench.store.selected_score import selected_score
from esbench.units import NONE, counted, format_duration, format_number, format_share, format_steps

RESAMPLES: Final = 1999
STATISTICS: Final = (
    aggregates.iqm,
    aggregates.mean,
    aggregates.median,
    aggregates.optimality_gap,
)


@final
@dataclass(frozen=True)
class ScoreRow(TableRow):
    """The score of one algorithm in one environment. A missing number is NaN, a missing text empty.

    Attributes:
        score: IQM over seeds of the final policy's mean return over held-out episodes, or of their
            tail where ``statistic`` is "tail".
        low, high: its 95 % bootstrap interval; NaN with fewer than three seeds.
        seeds, unfinished: the numbers of trials with a finite score, which enter, and without.
        env_steps, wall_time_s: of training, mean over seeds.
        normalized: the score on a scale where random actions are 0 and the reference, the first
            published score in the environment's file, is 1.
        inherited: settings of the algorithm that come from the environment's file.
        mixture: packages with several versions among the trials, as "numpy 2.3 and 2.4".
        trials, scores: the folder and the score of each seed.
        standing: "best" in its environment, "tied" if not significantly different from it, or "".
        setting: the value of the setting that ``score_table`` sorts by, if any.
        tail: IQM over seeds of the mean of the worst 10 % of the held-out episodes; NaN if a seed
            that enters has no record of its episodes, or if it is the score.
        selected: IQM over seeds of the held-out score of the best policy in place of the final
            one; NaN unless it was asked for and every seed that enters has one.
        is_agent: whether an agent made the trials.
        overspent: the share of its budget by which an agent exceeded it.
        variety: of the held-out episodes, that of the least varied trial.
    """

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
    setting: Any = None
    tail: float = math.nan
    selected: float = math.nan
    is_agent: bool = False
    overspent: float = 0.0
    variety: Variety = "varied"
    statistic: EpisodeStatistic = "mean"

    @property
    def reference_text(self) -> str:
        """Method, source and comparability of the published score."""
        comparable = "comparable" if self.reference_comparable else "NOT comparable"
        note = f" ({self.reference_note})" if self.reference_note else ""
        source = f"{self.reference_method}, {self.reference_source}"
        return f"{self.environment}: {source}; {comparable}{note}"


@final
@dataclass(frozen=True)
class Overall:
    """Statistics of one algorithm's normalized scores over all runs of all environments.

    See ``analysis.aggregates``. The IQM has a 95 % stratified percentile bootstrap interval, NaN
    with fewer than three seeds in an environment.
    """

    name: str
    iqm: float
    low: float
    high: float
    mean: float
    median: float
    optimality_gap: float


def score_table(
    root: Path,
    by: str | None = None,
    selected: bool = False,
    statistic: EpisodeStatistic = "mean",
) -> list[ScoreRow]:
    """One row per environment and algorithm, sorted by environment, the best score first.

    With ``by``, a setting of the algorithms, rows are sorted by its value instead. With
    ``selected``, they also have the scores of the best policies that ``esbench eval`` has kept. The
    score of a trial is the ``statistic`` of its held-out episodes.

    Raises:
        UsageError: there is no trial, a trial is not readable or has no tail, ``by`` has no two
            values, or no row has a score of its best policies.
    """
    rows: list[ScoreRow] = []
    found = cells(root)
    if by is not None:
        _require_several(by, found, root)
    for _, members in groupby(found, lambda cell: cell.environment):
        group = [
            replace(_row(cell, statistic), setting=cell.settings.get(by or "")) for cell in members
        ]
        marks = standings([row.scores for row in group])
        rows += [replace(row, standing=mark) for row, mark in zip(group, marks, strict=True)]
    if selected:
        scores = {(cell.environment, cell.name): _selected(cell) for cell in found}
        rows = [replace(row, selected=scores[row.environment, row.name]) for row in rows]
        if all(math.isnan(row.selected) for row in rows):
            raise UsageError(
                f"{root} has no row whose trials all have the score of their best policy; compute "
                f"them with: esbench eval --all --which best {root}"
            )
    rows.sort(key=lambda row: (row.environment, nan_last(-row.score), row.name))
    if by is not None:
        rows.sort(key=lambda row: (row.environment, shared_name(row, by), value_order(row.setting)))
    return rows


def _selected(cell: Cell) -> float:
    best = [selected_score(trial) for trial in cell.trials if trial.is_done]
    scores = [float(item["score"]) for item in best if item and item["score"] is not None]
    return float(iqm(scores)) if scores and len(scores) == len(scored_results(cell)) else math.nan


def _require_several(by: str, found: Sequence[Cell], root: Path) -> None:
    keys = dict.fromkeys(key for cell in found for key in cell.settings)
    several = [
        key
        for key in keys
        if len({value_text(cell.settings[key]) for cell in found if key in cell.settings}) > 1
    ]
    if by not in several:
        near = suggestion(by, several) if several else "no setting has"
        raise UsageError(f"--by {by}: expected a setting with several values in {root}; {near}")


def shared_name(row: ScoreRow, by: str) -> str:
    """The name of a row without the setting ``by``."""
    return without_setting(row.name, by, row.setting)


def value_order(value: Any) -> tuple[bool, float, str]:
    """The key that sorts values of a setting: numbers, then others by their text."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, value_text(value)


def sheet(
    rows: Sequence[ScoreRow], *, terminal: bool = False, by: str | None = None, tail: bool = False
) -> Sheet:
    """The table without empty columns.

    With ``terminal`` it has fewer columns, and the policy is part of the algorithm's name; ``tail``
    shows the tail there too. The setting ``by`` has a column instead of a part of that name.
    """
    references, notes = references_of(rows), footnotes(rows)
    texts = [_texts(row, references) for row in rows]
    optional = ("Tail", "Selected", "Random", "Reference", "Normalized")
    hidden = {name for name in optional if all(text[name] == NONE for text in texts)}
    if terminal or all(row.policy == DEFAULT_LABEL for row in rows):
        hidden.add("Policy")
    if terminal:
        hidden |= {"Random", "Normalized"}
        hidden |= set() if tail else {"Tail"}
        crowded = by is not None or not {"Tail", "Selected"} <= hidden
        hidden |= {"Steps", "Time"} if crowded else set()
        texts = [text | {"Algorithm": row.name} for text, row in zip(texts, rows, strict=True)]
        notes = [note for note in notes if note != NORMALIZED and (tail or note != TAIL)]
    if by is not None:
        values = [NONE if row.setting is None else value_text(row.setting) for row in rows]
        texts = [
            {"Environment": row.environment, "Algorithm": shared_name(row, by), by: value}
            | {name: text[name] for name in list(text)[2:]}
            for row, text, value in zip(rows, texts, values, strict=True)
        ]
    header = [name for name in texts[0] if name not in hidden]
    body = [[text[name] for name in header] for text in texts]
    score = header.index("Score")
    best = frozenset((n, score) for n, row in enumerate(rows) if row.standing == "best")
    return Sheet(header, body, notes, best)


def footnotes(rows: Sequence[ScoreRow]) -> list[str]:
    """How to read the table, cautions, references and commands."""
    notes = [f"{protocol(rows)} Steps and time: of training, mean over seeds."]
    if any(not math.isnan(row.normalized) for row in rows):
        notes.append(NORMALIZED)
    if any(not math.isnan(row.tail) for row in rows):
        notes.append(TAIL)
    if any(not math.isnan(row.selected) for row in rows):
        notes.append(SELECTED)
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += sentences(overall(normalized_scores(rows)))
    notes += cautions(rows)
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    if hardware := dict.fromkeys(item for row in rows for item in row.hardware):
        notes.append(f"Time measured on: {'; '.join(hardware)}.")
    notes += command_notes({row.title: row.commands for row in rows})
    return [" ".join(note.split()) for note in notes]


JUDGED: Final[dict[EpisodeStatistic, str]] = {
    "mean": "mean return over held-out episodes",
    "tail": "tail, the mean of the worst 10 % of its held-out episodes (at least one)",
}
TAIL: Final = (
    "Tail: IQM over training seeds of the mean of the worst 10 % of a final policy's held-out "
    "episodes (at least one)."
)
SELECTED: Final = (
    "Selected: the score of each run's best policy by its returns in training, instead of the "
    "final one. It is one of many, chosen after the fact: do not compare it with scores of final "
    "policies. -: not every seed has it (esbench eval --all --which best)."
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


def tail_score(cell: Cell) -> float:
    """The IQM over seeds of the mean of the worst 10 % of held-out episodes; NaN if unknown."""
    tails = [tail_mean(result.get("returns", ())) for result in scored_results(cell)]
    known = tails and not any(map(math.isnan, tails))
    return float(iqm(tails)) if known else math.nan


def protocol(rows: Sequence[ScoreRow]) -> str:
    """What the scores and intervals of a table are."""
    judged = JUDGED["tail" if any(row.statistic == "tail" for row in rows) else "mean"]
    return (
        f"Score: interquartile mean (IQM) over training seeds of the final policy's {judged}. "
        "Interval: 95 % percentile bootstrap over seeds."
    )


def _row(cell: Cell, statistic: EpisodeStatistic) -> ScoreRow:
    scored = scored_results(cell)
    scores = finite_scores(cell, statistic)
    score = float(iqm(scores)) if scores else math.nan
    low, high = map(float, bootstrap_interval(scores)) if scores else (math.nan, math.nan)
    steps, seconds = (
        fmean(result[key] for result in scored) if scored else math.nan
        for key in ("env_steps", "wall_time_s")
    )
    reference = cell.scores.references[0] if cell.scores.references else None
    descriptions = cell.descriptions
    hardware = [item["hardware"] for item in descriptions if item.get("hardware")]
    machines = [f"{item.get('cpu')}, {item.get('cores')} cores" for item in hardware]
    inherited = [name for item in descriptions for name in item.get("inherited", [])]
    return ScoreRow(
        environment=cell.environment,
        algorithm=cell.algorithm,
        policy=cell.policy,
        score=score,
        low=low,
        high=high,
        seeds=len(scored),
        unfinished=len(cell.trials) - len(scored),
        env_steps=steps,
        wall_time_s=seconds,
        random_score=cell.scores.random.mean if cell.scores.random else math.nan,
        reference_score=reference.score if reference else math.nan,
        reference_method=reference.method if reference else "",
        reference_source=reference.source if reference else "",
        reference_comparable=reference.comparable if reference else None,
        reference_note=reference.note if reference else "",
        normalized=normalized_score(score, cell.scores),
        commands=commands_of(cell),
        hardware=tuple(dict.fromkeys(machines)),
        differs=cell.differs,
        inherited=tuple(dict.fromkeys(inherited)),
        mixture=tuple(mixture(descriptions)),
        is_agent=cell.is_agent,
        overspent=cell.overspent,
        trials=tuple(str(trial.path) for trial in cell.trials),
        scores=tuple(scores),
        tail=tail_score(cell) if statistic == "mean" else math.nan,
        statistic=statistic,
        variety=least_varied(scored),
    )


def commands_of(cell: Cell) -> tuple[str, ...]:
    """The distinct commands that made the trials."""
    commands = (description.get("command", "") for description in cell.descriptions)
    return tuple(dict.fromkeys(filter(None, commands)))


def normalized_score(value: float, scores: Scores) -> float:
    """A score where random actions are 0 and the reference is 1; NaN if either is unknown."""
    if scores.random is None or not scores.references:
        return math.nan
    return normalized(value, scores.random.mean, scores.references[0].score)


def normalized_scores(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[float]]]:
    """Normalized scores by algorithm and environment, where random and reference are known."""
    table: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not math.isnan(row.normalized):
            scale = row.random_score, row.reference_score
            found = [normalized(score, *scale) for score in row.scores]
            table.setdefault(row.name, {})[row.environment] = found
    return table


def cautions(rows: Sequence[ScoreRow]) -> list[str]:
    """Few seeds, trials without a score, several versions, differing settings."""
    lines = seeds_notes([row.seeds for row in rows])
    if left_out := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(left_out, 'trial')} without a score left out (partial, running, failed or "
            "diverged): see 'esbench status'."
        )
    lines += [
        f"{row.title}: seeds of different code: {'; '.join(row.mixture)}."
        for row in rows
        if row.mixture
    ]
    lines += _inherited_notes(rows)
    if agents := dict.fromkeys(row.name for row in rows if row.is_agent):
        lines.append(
            f"{', '.join(agents)}: an agent of another library or of your own. Its policy is "
            "scored as all others; that the same seed gives the same bits is not promised."
        )
    lines += [
        f"{row.title}: {row.overspent:.0%} more environment steps than its budget; not comparable."
        for row in rows
        if row.overspent > TOLERATED
    ]
    lines += variety_notes({row.title: row.variety for row in rows})
    return lines + settings_notes({row.title: row.differs for row in rows})


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
    texts = dict.fromkeys(row.reference_text for row in rows if row.reference_method)
    return {text: number for number, text in enumerate(texts, start=1)}


def reference_cell(row: ScoreRow, references: Mapping[str, int], mark: str = "") -> str:
    """The reference score and its number, with a mark between them."""
    score = format_number(row.reference_score)
    return f"{score}{mark} [{references[row.reference_text]}]" if row.reference_method else score


def _texts(row: ScoreRow, references: dict[str, int]) -> dict[str, str]:
    total = row.seeds + row.unfinished
    interval = f"[{format_number(row.low)}, {format_number(row.high)}]"
    return {
        "Environment": row.environment,
        "Algorithm": row.algorithm,
        "Policy": row.policy,
        "Score": format_number(row.score) + MARKS[row.standing],
        INTERVAL: NONE if math.isnan(row.low) else interval,
        "Tail": format_number(row.tail),
        "Selected": format_number(row.selected),
        "Seeds": f"{row.seeds} of {total}" if row.unfinished else str(row.seeds),
        "Steps": format_steps(row.env_steps),
        "Time": format_duration(row.wall_time_s),
        "Random": format_number(row.random_score),
        "Reference": reference_cell(row, references),
        "Normalized": format_share(row.normalized),
    }


def overall(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Overall]:
    """Statistics of every algorithm with scores in all environments, the best IQM first.

    ``scores`` are normalized, [runs], by algorithm and environment. With fewer than two
    environments the result is empty.
    """
    environments = sorted({name for table in scores.values() for name in table})
    if len(environments) < 2:
        return []
    found = []
    for name, table in scores.items():
        strata = [table.get(key, ()) for key in environments]
        if all(strata):
            center, *others = (float(statistic(*strata)) for statistic in STATISTICS)
            low, high = stratified_interval(aggregates.iqm, strata, resamples=RESAMPLES)
            found.append(Overall(name, center, low, high, *others))
    return sorted(found, key=lambda item: -item.iqm)


def sentences(found: Sequence[Overall]) -> list[str]:
    """One sentence per algorithm."""
    return [
        f"Over all environments, normalized: {item.name}: IQM {format_share(item.iqm)}"
        f"{interval(item)}, mean {format_share(item.mean)}, median {format_share(item.median)}, "
        f"optimality gap {format_share(item.optimality_gap)}."
        for item in found
    ]


def interval(item: Overall) -> str:
    """The interval as text to follow the IQM; empty if there is none."""
    if math.isnan(item.low):
        return ""
    return f" [{format_share(item.low)}, {format_share(item.high)}]"
