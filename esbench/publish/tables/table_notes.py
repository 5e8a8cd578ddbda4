"""The footnotes of tables: how to read them, cautions, references and commands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from esbench.core.units import counted, format_share, format_steps
from esbench.results.cell import TOLERATED, Cell, normalized_scores
from esbench.results.run import Variety
from esbench.results.statistics.estimates import MIN_RUNS, EpisodeStatistic, Overall, overall
from esbench.results.statistics.significance import LEVEL

FEW_SEEDS: Final = 10
NARROW_BELOW: Final = 6  # seeds: intervals of fewer cover too little
ONE_EPISODE: Final = (
    "every held-out episode is the same one, because the environment is deterministic. The score "
    "is that of one trajectory, which a policy can memorize."
)
EQUAL_EPISODES: Final = (
    "all held-out episodes of a seed have the same return and length. If 'esbench plan' calls the "
    "environment deterministic, they are one trajectory, which a policy can memorize."
)
SEED_SCORES: Final[dict[EpisodeStatistic, str]] = {
    "mean": "the final policy's mean return over held-out episodes",
    "tail": "the final policy's tail, the mean of the worst 10 % of its held-out episodes (at "
    "least one)",
    "area": "the unperturbed policy's mean return during training, the area under its learning "
    "curve up to the budget, divided by the budget",
}
NORMALIZED: Final[dict[EpisodeStatistic, str]] = {
    "mean": "Normalized: 0 is the random policy, 1 the reference.",
    "tail": "Normalized: 0 is the mean return of the random policy, 1 that of the reference; both "
    "are means, not tails.",
    "area": "Normalized: 0 is the random policy, 1 the reference throughout training.",
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
STANDINGS: Final = (
    "*: the best of its environment by IQM. =: not significantly worse than the best. No mark: "
    f"significantly worse. Test: two-sided permutation test of the means at {LEVEL}, "
    "Holm-corrected over the rows of the environment. Between rows of three seeds, no difference "
    "is significant."
)


def footnotes(rows: Sequence[Cell], costs: bool = True) -> list[str]:
    """The footnotes of a score table; without ``costs``, they do not explain steps and time."""
    statistic = rows[0].statistic
    hardware = dict.fromkeys(item for row in rows for item in row.hardware)
    found = overall(normalized_scores(rows))
    notes = [
        protocol(rows) + " Steps and time: of training, mean over seeds." * costs,
        any(row.scores and row.has_scale for row in rows) and NORMALIZED[statistic],
        statistic == "mean" and any(not math.isnan(row.tail) for row in rows) and TAIL,
        any(not math.isnan(row.selected) for row in rows) and SELECTED,
        any(row.standing for row in rows) and STANDINGS,
        *overall_sentences(found),
        *left_out(rows, found),
        *cautions(rows),
        *(f"[{number}] {text}" for text, number in references_of(rows).items()),
        bool(hardware) and costs and f"Time measured on: {'; '.join(hardware)}.",
        *command_notes({row.title: row.commands for row in rows}),
    ]
    return [" ".join(note.split()) for note in notes if note]


def protocol(rows: Sequence[Cell]) -> str:
    """What the scores and intervals of a table are."""
    return (
        f"Score: interquartile mean (IQM) over training seeds of {SEED_SCORES[rows[0].statistic]}. "
        "Interval: 95 % percentile bootstrap over seeds."
    )


def cautions(rows: Sequence[Cell]) -> list[str]:
    """Few seeds, trials without a score, several versions, differing settings."""
    lines = seeds_notes([len(row.scores) for row in rows])
    if left_out := sum(row.unfinished for row in rows):
        lines.append(
            f"{counted(left_out, 'trial')} without a score left out (partial, running or failed): "
            "see 'esbench status'."
        )
    for row in rows:
        if row.diverged:
            counts = "they count as the row's worst score, or as that of the random policy if it is"
            meaning = f"{counts} lower." if row.scores else "no score."
            lines.append(f"{row.title}: {counted(row.diverged, 'run')} diverged; {meaning}")
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


def _budget_notes(rows: Sequence[Cell]) -> list[str]:
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


def _inherited_notes(rows: Sequence[Cell]) -> list[str]:
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


def references_of(rows: Sequence[Cell]) -> dict[str, int]:
    """The numbers of the references by their descriptions, in the order of the rows."""
    found = dict.fromkeys(reference_text(row) for row in rows if row.reference)
    return {text: number for number, text in enumerate(found, start=1)}


def reference_text(row: Cell) -> str:
    """Method, source and comparability of the published score of a row that has one."""
    assert row.reference is not None
    comparable = "comparable" if row.reference.comparable else "NOT comparable"
    note = f" ({row.reference.note})" if row.reference.note else ""
    source = f"{row.reference.method}, {row.reference.source}"
    return f"{row.environment}: {source}; {comparable}{note}"


def left_out(rows: Sequence[Cell], found: Sequence[Overall]) -> list[str]:
    """Which environments and algorithms of a table are not in its statistics, and why."""
    names = list(dict.fromkeys(row.environment for row in rows))
    if len(names) < 2:
        return []
    used = dict.fromkeys(row.environment for row in rows if row.scores and row.has_scale)
    if len(used) < 2:
        need = "They need a score, a random and a reference score in two or more, and have them in"
        return [f"No statistics over all environments. {need}: {', '.join(used) or 'none'}."]
    scaled = {row.environment for row in rows if row.has_scale}
    included = {item.name for item in found}
    lacking = {
        "a reference score above a random one": [name for name in names if name not in scaled],
        "a score": [name for name in names if name in scaled and name not in used],
        "a score in some of them": list(
            dict.fromkeys(row.name for row in rows if row.name not in included)
        ),
    }
    return [
        f"Not in the statistics over all environments, without {what}: {', '.join(listed)}."
        for what, listed in lacking.items()
        if listed
    ]


def overall_sentences(found: Sequence[Overall]) -> list[str]:
    """One sentence per algorithm about its scores over all environments."""
    return [
        f"Over all environments, normalized: {item.name}: IQM {format_share(item.iqm)}"
        f"{overall_interval(item)}, mean {format_share(item.mean)}, median "
        f"{format_share(item.median)}, optimality gap {format_share(item.optimality_gap)}."
        for item in found
    ]


def overall_interval(item: Overall) -> str:
    """The interval as text to follow the IQM; empty if there is none."""
    if math.isnan(item.low):
        return ""
    return f" [{format_share(item.low)}, {format_share(item.high)}]"


def seeds_notes(seeds: Sequence[int], *, best: bool = True) -> list[str]:
    """Cautions about rows with few seeds, from the number of seeds of each row.

    ``best``: the table marks the best row of every environment.
    """
    notes = []
    if any(count < FEW_SEEDS for count in seeds):
        notes.append(
            f"Some rows have fewer than {FEW_SEEDS} seeds: the order of close scores may be chance."
        )
    if any(MIN_RUNS <= count < NARROW_BELOW for count in seeds):
        notes.append(
            f"Bootstrap intervals of fewer than {NARROW_BELOW} seeds are too narrow: with 3, they "
            "cover about 75 % instead of 95 %."
        )
    if any(0 < count < MIN_RUNS for count in seeds):
        marks = ", and no row of their environment is marked as the best" if best else ""
        notes.append(f"Rows with fewer than {MIN_RUNS} seeds have no interval{marks}.")
    return notes


def settings_notes(differs: Mapping[str, Sequence[str]]) -> list[str]:
    """The settings that distinguish rows with the same labels, by the rows' titles."""
    return [f"{title}: {', '.join(settings)}" for title, settings in differs.items() if settings]


def variety_notes(rows: Mapping[str, Variety]) -> list[str]:
    """Which rows, by their titles, rest on held-out episodes that are all the same."""
    texts: dict[Variety, str] = {"one": ONE_EPISODE, "equal": EQUAL_EPISODES}
    found = {kind: [title for title, own in rows.items() if own == kind] for kind in texts}
    return [f"{', '.join(titles)}: {texts[kind]}" for kind, titles in found.items() if titles]


def command_notes(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """One note per command, with the titles of the rows it made unless it made all of them."""
    notes = []
    for command in dict.fromkeys(command for own in commands.values() for command in own):
        made = [title for title, own in commands.items() if command in own]
        which = "" if len(made) == len(commands) else f" ({', '.join(made)})"
        notes.append(f"Made by{which}: {command}")
    return notes
