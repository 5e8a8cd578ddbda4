"""Score tables: trials to typed rows, and rows to cells and footnotes for ``layout``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final, final

from esbench.analysis.comparison import LEVEL, Standing, standings
from esbench.analysis.statistics import bootstrap_interval, iqm, normalized
from esbench.files import Json
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.reporting.tables import render_table as layout
from esbench.reporting.tables.render_table import INTERVAL, Sheet, makers_notes, seeds_notes
from esbench.reporting.tables.summary import overall, sentences
from esbench.store.origins import mixture
from esbench.store.seed_groups import Cell, cell_name, cells
from esbench.units import NONE, format_duration, format_number, format_share, format_steps

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@final
@dataclass(frozen=True)
class ScoreRow:
    """One line of a table. Numbers that do not exist are NaN, texts empty.

    Attributes:
        environment, algorithm, policy: labels, as in ``Cell``.
        score: IQM over seeds of the mean return of the final policy over held-out episodes.
        low, high: its 95 % bootstrap interval; NaN below three seeds.
        seeds: trials with a score, which all numbers here are of.
        unfinished: trials without one: partial, running, failed, or with a score not finite.
        env_steps, wall_time_s: of training, mean over seeds.
        random_score: of random actions.
        reference_score, reference_method, reference_source, reference_comparable,
            reference_note: the first reference of the environment's file.
        normalized: the score where random actions have 0 and the reference 1.
        commands: what made the trials, each once.
        hardware: what they ran on, each once.
        differs: the settings that set it apart from rows of the same labels, as "key=value".
        inherited: settings of the algorithm that are the environment file's, not the grid's; None
            if nobody recorded it.
        mixture: the code of which its trials have several versions, "numpy 2.3 and 2.4".
        trials: the folders of its trials, in the order of the seeds.
        scores: those that it is made of, in the order of the seeds.
        standing: "best" in its environment, "tied" with it as far as a test can tell, or "".
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
    inherited: tuple[str, ...] | None = None
    mixture: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    standing: Standing = ""

    @property
    def name(self) -> str:
        """Algorithm and policy in words; the default policy has no name."""
        return cell_name(self.algorithm, self.policy)


def score_table(root: Path) -> list[ScoreRow]:
    """Return a row for each cell below ``root``, by environment, the best score first.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    found = cells(root)
    results = [_scored(cell) for cell in found]
    rows = [_row(cell, mine) for cell, mine in zip(found, results, strict=True)]
    scores = [[float(result["score"]) for result in mine] for mine in results]
    for environment in dict.fromkeys(row.environment for row in rows):
        places = [place for place, row in enumerate(rows) if row.environment == environment]
        marks = standings([scores[place] for place in places])
        for place, mark in zip(places, marks, strict=True):
            rows[place] = replace(rows[place], standing=mark)
    return sorted(rows, key=lambda row: (row.environment, _worst_last(row.score), row.name))


def footnotes(rows: Sequence[ScoreRow], *, terminal: bool = False) -> list[str]:
    """Return the sentences below a table: how to read it, what to beware of, and who made it.

    ``terminal``: below ``rich_table``, which has fewer columns than the others.
    """
    lines = [f"{PROTOCOL} Steps and time: of training, mean over seeds."]
    if not terminal and any(not math.isnan(row.normalized) for row in rows):
        lines.append("Normalized: 0 is the random policy, 1 the reference.")
    if any(row.standing for row in rows):
        lines.append(standings_note("*", "="))
    lines += sentences(overall(normalized_scores(rows)))
    lines += cautions(rows)
    for text, number in references_of(rows).items():
        lines.append(f"[{number}] {text}")
    if hardware := dict.fromkeys(item for row in rows for item in row.hardware):
        lines.append(f"Time measured on: {'; '.join(hardware)}.")
    lines += makers_notes([(f"{row.name} on {row.environment}", row.commands) for row in rows])
    return [" ".join(line.split()) for line in lines]


def standings_note(best: str, tied: str) -> str:
    """Return what the marks of a score say, by how the best and those tied with it are marked."""
    return (
        f"{best}: the best of its environment. {tied}: not told apart from it by a two-sided "
        f"permutation test of the means at {LEVEL}, Holm-corrected over the environment's rows. "
        "Unmarked: worse."
    )


def as_markdown(rows: Sequence[ScoreRow]) -> str:
    """Return the rows as a Markdown table with its notes."""
    return layout.as_markdown(sheet(rows))


def as_csv(rows: Sequence[ScoreRow]) -> str:
    """Return every field of the rows as CSV, in full precision; NaN is empty."""
    return layout.as_csv(ScoreRow, rows)


def as_json(rows: Sequence[ScoreRow]) -> str:
    """Return ``rows`` (every field, in full precision; NaN is null) and ``footnotes``."""
    return layout.as_json(rows, footnotes(rows))


def as_latex(rows: Sequence[ScoreRow]) -> str:
    """Return the rows as a LaTeX table with its notes; it needs the package booktabs."""
    return layout.as_latex(sheet(rows))


def rich_table(rows: Sequence[ScoreRow]) -> RichTable:
    """Return the rows as a table for a terminal of 80 columns or more, without its footnotes.

    Without references there is no column of them.
    """
    references = references_of(rows)
    texts = [_texts(row, references) | {"Algorithm": row.name} for row in rows]
    columns = [name for name in _TERMINAL_COLUMNS if references or name != "Reference"]
    body = [[text[name] for name in columns] for text in texts]
    return layout.as_rich(Sheet(columns, body, ()))


PROTOCOL: Final = (
    "Score: interquartile mean (IQM) over training seeds of the mean return of the final policy "
    "over held-out episodes. Interval: 95 % percentile bootstrap over seeds."
)
MARKS: Final[dict[Standing, str]] = {"best": " *", "tied": " =", "": ""}
_TERMINAL_COLUMNS: Final = (
    "Environment",
    "Algorithm",
    "Score",
    INTERVAL,
    "Seeds",
    "Steps",
    "Time",
    "Reference",
)


def _scored(cell: Cell) -> list[Json]:
    """Return the results that have a score."""
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
        normalized=normalized(score, random, reference.score) if reference else math.nan,
        commands=_each_once(cell.descriptions, lambda content: content.get("command", "")),
        hardware=_each_once(cell.descriptions, _hardware),
        differs=cell.differs,
        inherited=_inherited(cell.descriptions),
        mixture=tuple(mixture(cell.descriptions)),
        trials=tuple(str(trial.path) for trial in cell.trials),
        scores=tuple(scores),
    )


def _inherited(descriptions: Sequence[Json]) -> tuple[str, ...] | None:
    found = [content["inherited"] for content in descriptions if "inherited" in content]
    return tuple(dict.fromkeys(name for names in found for name in names)) if found else None


def _mean(results: Sequence[Json], key: str) -> float:
    return fmean(result[key] for result in results) if results else math.nan


def _each_once(contents: Sequence[Json], text: Callable[[Json], str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found for content in contents if (found := text(content))))


def _hardware(description: Json) -> str:
    hardware = description.get("hardware")
    return f"{hardware.get('cpu')}, {hardware.get('cores')} cores" if hardware else ""


def normalized_scores(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[float]]]:
    """Return the normalised scores by algorithm and environment, where that has a range."""
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
    """Return what to beware of: few seeds, trials left out, and rows of other settings."""
    lines = seeds_notes([row.seeds for row in rows])
    if left_out := sum(row.unfinished for row in rows):
        lines.append(
            f"{left_out} trial{'s' if left_out > 1 else ''} without a score left out (partial, "
            "running, failed, or diverged): see 'esbench status'."
        )
    lines += [
        f"{row.name} on {row.environment}: seeds of different code, {'; '.join(row.mixture)}."
        for row in rows
        if row.mixture
    ]
    lines += _unequal_starts(rows)
    return lines + [
        f"{row.name} on {row.environment}: {', '.join(row.differs)}" for row in rows if row.differs
    ]


def _unequal_starts(rows: Sequence[ScoreRow]) -> list[str]:
    """Return where one algorithm has settings of the environment's file, and another has none."""
    where: dict[str, list[str]] = {}
    for environment, several in groupby(rows, key=lambda row: row.environment):
        known = {row.algorithm: row.inherited for row in several if row.inherited is not None}
        bare = [algorithm for algorithm, names in known.items() if not names]
        some = [f"{algorithm} ({', '.join(names)})" for algorithm, names in known.items() if names]
        if some and bare:
            said = f"settings from the environment's file: {', '.join(some)}; none: "
            where.setdefault(said + ", ".join(sorted(bare)), []).append(environment)
    return [f"{', '.join(environments)}: {said}." for said, environments in where.items()]


def references_of(rows: Sequence[ScoreRow]) -> dict[str, int]:
    """Return the references in the order of the rows, described, with the number of each."""
    texts = dict.fromkeys(reference_text(row) for row in rows if row.reference_method)
    return {text: number for number, text in enumerate(texts, start=1)}


def reference_text(row: ScoreRow) -> str:
    """Return the reference of a row's environment in words."""
    comparable = "comparable" if row.reference_comparable else "NOT comparable"
    note = f" ({row.reference_note})" if row.reference_note else ""
    source = f"{row.reference_method}, {row.reference_source}"
    return f"{row.environment}: {source}; {comparable}{note}"


def sheet(rows: Sequence[ScoreRow]) -> Sheet:
    """Return the table for reading; columns that say nothing are left out."""
    references = references_of(rows)
    texts = [_texts(row, references) for row in rows]
    optional = ("Random", "Reference", "Normalized")
    header = [
        name
        for name in (texts[0] if texts else ())
        if not (name == "Policy" and all(row.policy == DEFAULT_LABEL for row in rows))
        and not (name in optional and all(text[name] == NONE for text in texts))
    ]
    return Sheet(header, [[text[name] for name in header] for text in texts], footnotes(rows))


def _texts(row: ScoreRow, references: dict[str, int]) -> dict[str, str]:
    """Return a row's cells for reading, by column."""
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
