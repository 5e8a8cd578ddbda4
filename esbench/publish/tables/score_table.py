"""Scores: one row per environment and algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, final

from esbench.core.errors import UsageError, suggestion
from esbench.core.json_text import Json
from esbench.grids.environment_files import Scores
from esbench.grids.trial_spec import NamedCell, value_text, without_setting
from esbench.publish.tables.render_table import nan_last
from esbench.results.cells import Cell, cells, seed_scores
from esbench.results.held_out import Variety, least_varied
from esbench.results.statistics.estimates import (
    EpisodeStatistic,
    bootstrap_interval,
    iqm,
    normalized,
    tail_mean,
)
from esbench.results.statistics.significance import Standing, standings
from esbench.store.provenance.changes import mixture
from esbench.store.selected_score import selected_score


@final
@dataclass(frozen=True)
class ScoreRow(NamedCell):
    """The score of one algorithm in one environment. A missing number is NaN, a missing text empty.

    Attributes:
        score: IQM over seeds of the final policy's mean return over held-out episodes, or of the
            tail or the area where that is the ``statistic``.
        low, high: its 95 % bootstrap interval; NaN with fewer than three seeds.
        seeds, unfinished: the numbers of trials that enter, and of those that are not done.
        budget: environment steps that a run may take; 0 if unknown.
        diverged: the number of done trials without a finite score. They enter as in
            ``seed_scores``; if all diverged, none enters.
        env_steps, wall_time_s: of training, mean over seeds.
        normalized: the score on a scale where random actions are 0 and the reference, the first
            published score in the environment's file, is 1.
        inherited: settings of the algorithm that come from the environment's file.
        mixture: packages with several versions among the trials, as "numpy 2.3 and 2.4".
        trials, scores: the folder and the score of each seed.
        standing: "best" in its environment, "tied" if not significantly worse, or "".
        setting: the value of the setting that ``score_table`` sorts by, if any.
        tail: mean over seeds of the mean of the worst 10 % of the held-out episodes; NaN if a seed
            diverged or has no record of its episodes, or if it is the score.
        selected: IQM over seeds of the held-out score of the best policy in place of the final
            one; NaN unless it was asked for and every done seed has a finite one.
        is_agent: whether an agent made the trials.
        overspent: the share of its budget by which an agent exceeded it.
        variety: of the held-out episodes, that of the least varied trial.
        twice: two folders of one trial, first the one that counts, or empty.
        scores_differ: whether trials record several scores of the random policy or the reference.
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
    diverged: int = 0
    budget: int = 0
    twice: tuple[str, ...] = ()
    scores_differ: bool = False

    @property
    def reference_text(self) -> str:
        """Method, source and comparability of the published score."""
        comparable = "comparable" if self.reference_comparable else "NOT comparable"
        note = f" ({self.reference_note})" if self.reference_note else ""
        source = f"{self.reference_method}, {self.reference_source}"
        return f"{self.environment}: {source}; {comparable}{note}"


def score_table(
    root: Path,
    by: str | None = None,
    selected: bool = False,
    statistic: EpisodeStatistic = "mean",
) -> list[ScoreRow]:
    """One row per environment and algorithm, sorted by environment, the best score first.

    With ``by``, a setting of the algorithms, rows are sorted by its value instead. With
    ``selected``, they also have the scores of the best policies that ``esbench eval`` has kept. The
    score of a trial is the ``statistic`` of its episodes.

    Raises:
        UsageError: there is no trial, a trial is not readable or has no tail, ``by`` has no two
            values, or no row has a score of its best policies.
    """
    rows: list[ScoreRow] = []
    found = cells(root)
    if by is not None:
        _require_several(by, found, root)
    for _, members in groupby(found, lambda cell: cell.environment):
        group = _rows(list(members), by or "", statistic)
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
    return float(iqm(scores)) if scores and len(scores) == len(best) else math.nan


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


def _results(cell: Cell) -> list[Json]:
    return [trial.result() for trial in cell.trials if trial.is_done]


def tail_score(cell: Cell) -> float:
    """The mean over seeds of the mean of the worst 10 % of held-out episodes; NaN if unknown.

    No seed is left out, as the IQM does: a tail is there to show the worst.
    """
    tails = [tail_mean(_numbers(result.get("returns", ()))) for result in _results(cell)]
    known = tails and not any(map(math.isnan, tails))
    return fmean(tails) if known else math.nan


def _numbers(returns: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in returns]


def _rows(group: Sequence[Cell], by: str, statistic: EpisodeStatistic) -> list[ScoreRow]:
    """The rows of one environment's cells."""
    scored = [cell for cell in group if cell.has(statistic)]
    scores = dict(zip(map(id, scored), seed_scores(scored, statistic), strict=True))
    return [
        replace(_row(cell, scores.get(id(cell), []), statistic), setting=cell.settings.get(by))
        for cell in group
    ]


def _row(cell: Cell, scores: Sequence[float], statistic: EpisodeStatistic) -> ScoreRow:
    results = _results(cell)
    score = float(iqm(scores)) if scores else math.nan
    low, high = map(float, bootstrap_interval(scores)) if scores else (math.nan, math.nan)
    steps, seconds = (
        fmean(result[key] for result in results) if results else math.nan
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
        seeds=len(scores),
        unfinished=len(cell.trials) - len(results),
        diverged=cell.diverged(statistic) if cell.has(statistic) else 0,
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
        trials=tuple(str(trial.path) for trial in cell.trials if scores and trial.is_done),
        scores=tuple(scores),
        tail=tail_score(cell) if statistic == "mean" else math.nan,
        statistic=statistic,
        variety=least_varied(results),
        budget=descriptions[0]["spec"]["budget"]["env_steps"],
        twice=tuple(map(str, cell.twice or ())),
        scores_differ=cell.scores_differ,
    )


def commands_of(cell: Cell) -> tuple[str, ...]:
    """The distinct commands that made the trials."""
    commands = (description.get("command", "") for description in cell.descriptions)
    return tuple(dict.fromkeys(filter(None, commands)))


def normalized_score(value: float, scores: Scores) -> float:
    """``normalized``, from the scores of an environment; NaN if either is unknown."""
    if scores.random is None or not scores.references:
        return math.nan
    return normalized(value, scores.random.mean, scores.references[0].score)
