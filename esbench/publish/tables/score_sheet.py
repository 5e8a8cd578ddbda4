"""Scores as a table of text with its notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from esbench.core.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_share,
    format_steps,
)
from esbench.grids.trial_spec import DEFAULT_LABEL, value_text
from esbench.publish.tables.across_environments import overall_notes
from esbench.publish.tables.render_table import (
    INTERVAL,
    Sheet,
    command_notes,
    seeds_notes,
    settings_notes,
    variety_notes,
)
from esbench.publish.tables.score_table import ScoreRow, shared_name
from esbench.results.cells import TOLERATED
from esbench.results.statistics.estimates import EpisodeStatistic
from esbench.results.statistics.significance import LEVEL, Standing

SEED_SCORES: Final[dict[EpisodeStatistic, str]] = {
    "mean": "the final policy's mean return over held-out episodes",
    "tail": "the final policy's tail, the mean of the worst 10 % of its held-out episodes (at "
    "least one)",
    "area": "the unperturbed policy's mean return during training, the area under its learning "
    "curve up to the budget, divided by the budget",
}
TAIL: Final = (
    "Tail: mean over all training seeds of the mean of the worst 10 % of a final policy's held-out "
    "episodes (at least one)."
)
SELECTED: Final = (
    "Selected: the score of each run's best policy by its returns in training, instead of the "
    "final one. It is one of many, chosen after the fact: do not compare it with scores of final "
    "policies. -: not every seed has it (esbench eval --all --which best)."
)
NORMALIZED: Final[dict[EpisodeStatistic, str]] = {
    "mean": "Normalized: 0 is the random policy, 1 the reference.",
    "tail": "Normalized: 0 is the mean return of the random policy, 1 that of the reference; both "
    "are means, not tails.",
    "area": "Normalized: 0 is the random policy, 1 the reference throughout training.",
}
STANDINGS: Final = (
    "*: the best of its environment by IQM. =: not significantly worse than the best. No mark: "
    f"significantly worse. Test: two-sided permutation test of the means at {LEVEL}, "
    "Holm-corrected over the rows of the environment. Between rows of three seeds, no difference "
    "is significant."
)
MARKS: Final[dict[Standing, str]] = {"best": " *", "tied": " =", "": ""}


def sheet(
    rows: Sequence[ScoreRow], *, terminal: bool = False, by: str | None = None, tail: bool = False
) -> Sheet:
    """The table without empty columns.

    With ``terminal`` it has fewer columns, and the policy is part of the algorithm's name; ``tail``
    shows the tail there too. The setting ``by`` has a column instead of a part of that name.
    """
    references = references_of(rows)
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
    notes = footnotes(rows, costs="Time" not in hidden)
    if terminal:
        notes = [
            note for note in notes if note not in NORMALIZED.values() and (tail or note != TAIL)
        ]
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


def footnotes(rows: Sequence[ScoreRow], costs: bool = True) -> list[str]:
    """How to read the table, cautions, references and commands.

    Without ``costs``, they do not explain steps and time.
    """
    notes = [protocol(rows) + (" Steps and time: of training, mean over seeds." if costs else "")]
    if any(not math.isnan(row.normalized) for row in rows):
        notes.append(NORMALIZED[rows[0].statistic])
    if any(not math.isnan(row.tail) for row in rows):
        notes.append(TAIL)
    if any(not math.isnan(row.selected) for row in rows):
        notes.append(SELECTED)
    if any(row.standing for row in rows):
        notes.append(STANDINGS)
    notes += overall_notes(rows)
    notes += cautions(rows)
    notes += [f"[{number}] {text}" for text, number in references_of(rows).items()]
    hardware = dict.fromkeys(item for row in rows for item in row.hardware)
    if hardware and costs:
        notes.append(f"Time measured on: {'; '.join(hardware)}.")
    notes += command_notes({row.title: row.commands for row in rows})
    return [" ".join(note.split()) for note in notes]


def protocol(rows: Sequence[ScoreRow]) -> str:
    """What the scores and intervals of a table are."""
    return (
        f"Score: interquartile mean (IQM) over training seeds of {SEED_SCORES[rows[0].statistic]}. "
        "Interval: 95 % percentile bootstrap over seeds."
    )


def cautions(rows: Sequence[ScoreRow]) -> list[str]:
    """Few seeds, trials without a score, several versions, differing settings."""
    lines = seeds_notes([row.seeds for row in rows])
    if left_out := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(left_out, 'trial')} without a score left out (partial, running or failed): "
            "see 'esbench status'."
        )
    lines += [
        f"{row.title}: {counted(row.diverged, 'run')} diverged; "
        + (
            "they count as the row's worst score, or as that of the random policy if it is lower."
            if row.seeds
            else "no score."
        )
        for row in rows
        if row.diverged
    ]
    lines += [
        f"{row.title}: {row.twice[0]} and {row.twice[1]} hold the same trial; the first counts."
        for row in rows
        if row.twice
    ]
    lines += [
        f"{row.title}: its trials record different scores of the random policy or the reference; "
        "those of the first seed count."
        for row in rows
        if row.scores_differ
    ]
    lines += [
        f"{row.title}: seeds of different code: {'; '.join(row.mixture)}."
        for row in rows
        if row.mixture
    ]
    lines += _budget_notes(rows)
    lines += _inherited_notes(rows)
    if agents := dict.fromkeys(row.name for row in rows if row.is_agent):
        lines.append(
            f"{', '.join(agents)}: an agent of another library or of your own. Its policy is "
            "scored like all others; the same seed may give other bits."
            + " It has no area."
            * (rows[0].statistic == "area")
        )
    lines += [
        f"{row.title}: {row.overspent:.0%} more environment steps than its budget; not comparable."
        for row in rows
        if row.overspent > TOLERATED
    ]
    lines += [
        f"{row.title}: {row.env_steps / row.budget:.0%} of its budget of environment steps used."
        for row in rows
        if row.is_agent and row.env_steps < (1 - TOLERATED) * row.budget
    ]
    lines += variety_notes({row.title: row.variety for row in rows})
    return lines + settings_notes({row.title: row.differs for row in rows})


def _budget_notes(rows: Sequence[ScoreRow]) -> list[str]:
    """Environments whose rows have different budgets."""
    lines = []
    for environment, several in groupby(rows, key=lambda row: row.environment):
        names: dict[int, list[str]] = {}
        for row in several:
            names.setdefault(row.budget, []).append(row.name)
        if len(names) > 1:
            listed = "; ".join(f"{format_steps(b)} ({', '.join(names[b])})" for b in sorted(names))
            lines.append(
                f"{environment}: different budgets of steps: {listed}. Compare scores of equal "
                "budgets only."
            )
    return lines


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
