"""The footnotes of tables: how to read them, cautions, references and commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from esbench.core.units import counted, format_share, format_steps
from esbench.publish.tables.render_table import INTERVAL, MADE_BY, Sheet
from esbench.results.cell import MOST_EXCESS, SAME_TRAINING, Cell, normalized_scores
from esbench.results.run import Variety
from esbench.results.statistics.estimates import (
    MIN_RUNS,
    TRIMMED,
    EpisodeStatistic,
    Overall,
    overall,
)
from esbench.results.statistics.significance import LEVEL

FEW_SEEDS: Final = 10
NOTED: Final = 0.05  # of the budget of steps; more is said in tables, comparisons and plans
WHY: Final = ("a search finishes its last generation", "some agents finish their training")
MOST_TITLES: Final = 3  # of the rows that a command made
COVERED: Final = {3: 75, 4: 88, 5: 90}  # percent, by seeds: plots/error_rates.md
ONE_EPISODE: Final = (
    "every held-out episode is the same one, because the environment is deterministic. The score "
    "is that of one trajectory, which a policy can memorize."
)
EQUAL_EPISODES: Final = (
    "all held-out episodes of a seed have the same return and length. If 'esbench plan' calls the "
    "environment deterministic, they are one trajectory, which a policy can memorize. Otherwise "
    "the policy acts alike in all of them, and the spread of its returns says nothing."
)
VARIETY: Final[dict[Variety, str]] = {"one": ONE_EPISODE, "equal": EQUAL_EPISODES}
SEED_SCORES: Final[dict[EpisodeStatistic, str]] = {
    "mean": "the final policy's mean return over held-out episodes",
    "tail": "the final policy's tail, the mean of the worst 10 % of its held-out episodes",
    "area": "the area under the learning curve of the unperturbed policy, divided by the budget",
}
STANDINGS: Final = (
    "*: the best of its environment by IQM. =: not significantly worse (two-sided permutation test "
    f"of the means at {LEVEL}, Holm-corrected over the rows of the environment)."
)
TAIL: Final = (
    "Tail: mean over all seeds of the mean of the worst 10 % of a final policy's held-out episodes."
)
NAME: Final = "Algorithm"
TUNED: Final = "\N{DOUBLE DAGGER}"
TUNED_NOTE: Final = (
    f"{TUNED}: some settings are taken from the environment's file, not stated in the grid. With "
    "--defaults, none are."
)
OVER_ALL: Final = "Over all environments, normalized"
COLUMN_NOTES: Final = {
    "Normalized": "Normalized: 0 is the mean return of the random policy, 1 the reference.",
    "Tail": TAIL,
    "Selected": "Selected: the score of each run's best policy by its returns in training. It is "
    "one of many, chosen after the fact: do not compare it with scores of final policies.",
    "Time": "Steps and time: of training, mean over seeds.",
}


def score_notes(
    rows: Sequence[Cell], table: Sheet, more: Sequence[str] = (), chosen: bool = False
) -> list[str]:
    """The footnotes of a table of rows; ``more`` stand before the cautions.

    If its columns are ``chosen``, scores, intervals and names may be left out.
    """
    header, cells = table.header, {text for cells in table.body for text in cells}
    hardware = dict.fromkeys(item for row in rows for item in row.hardware)
    score, interval, name = (not chosen or text in header for text in ("Score", INTERVAL, NAME))
    statistic = SEED_SCORES[rows[0].statistic]
    return [
        *[f"Score: interquartile mean (IQM) over seeds of {statistic}."] * score,
        *left_out([len(row.scores) for row in rows] * score),
        *[f"{INTERVAL}: percentile bootstrap over seeds."] * interval,
        *(text for name, text in COLUMN_NOTES.items() if name in header),
        *[STANDINGS] * (score and any(row.standing for row in rows)),
        *[TUNED_NOTE] * (name and any(row.inherited for row in rows)),
        *more,
        *cautions(rows),
        *(
            f"[{number}] {text}"
            for text, number in references_of(rows).items()
            if any(f"[{number}]" in cell for cell in cells)
        ),
        *[f"Time measured on: {'; '.join(hardware)}."] * (bool(hardware) and "Time" in header),
        *command_notes({row.title: row.commands for row in rows}),
    ]


def marked(text: str, tuned: object) -> str:
    """A text of a row, with the mark of those that have tuned settings of the environment's file.

    ``tuned`` is true for them, such as the names of these settings.
    """
    return f"{text} {TUNED}" if tuned else text


def cautions(rows: Sequence[Cell]) -> list[str]:
    """What weakens the scores of rows: few seeds, missing ones, differing settings."""
    notes = seeds_notes([len(row.scores) for row in rows])
    if unfinished := sum(row.unfinished for row in rows):
        notes.append(f"{counted(unfinished, 'trial')} without a score: see 'esbench status'.")
    groups = [[*own] for _, own in groupby(rows, key=lambda row: row.environment)]
    notes += grouped((own[0].environment, text) for own in groups for text in _of_environment(own))
    return notes + grouped(
        (row.title, text) for own in groups for row in own for text in _of_row(row, own)
    )


def worst_text(group: Sequence[Cell], one: str, every: str) -> str:
    """How diverged runs of a group of cells count, as in ``seed_scores``."""
    if all(cell.frozen.random for cell in group):
        return f"Each counts as the worst of {one} and the random policy."
    return f"Each counts as the worst of {every}, since some lack a score of the random policy."


def _of_environment(rows: Sequence[Cell]) -> Iterator[str]:
    budgets = sorted({row.budget for row in rows})
    if len(budgets) > 1:
        listed = ", ".join(map(format_steps, budgets))
        yield f"different budgets of steps ({listed}). Compare rows of equal budgets only."
    if over := excess_text({row.name: row for row in rows}):
        yield over


def _of_row(row: Cell, group: Sequence[Cell]) -> Iterator[str]:
    if row.diverged:
        end = worst_text(group, "the row", "all rows") if row.scores else "The row has no score."
        yield f"{counted(row.diverged, 'run')} diverged. {end}"
    if row.twice:
        yield f"{row.twice[0]} and {row.twice[1]} hold the same trial. The first counts."
    if row.scores_differ:
        yield "trials record different scores of random policy or reference. The first count."
    if row.mixture:
        yield f"trained with different code: {'; '.join(row.mixture)}."
    if row.ignores_seed:
        yield f"{SAME_TRAINING} The seeds count as one."
    if row.is_agent:
        yield "an agent of another library or of your own. The same seed may give other bits."
    if start := row.spec.get("init_from"):
        yield f"training started from the policy of {start['trial']}."
    if row.overspent >= MOST_EXCESS:
        yield f"{row.overspent:.0%} more environment steps than its budget. Not comparable."
    elif row.is_agent and row.env_steps < (1 - NOTED) * row.budget:
        yield f"{row.env_steps / row.budget:.0%} of its budget of environment steps used."
    if row.variety in VARIETY:
        yield VARIETY[row.variety]
    if row.differs:
        yield ", ".join(row.differs)


def excess_text(cells: Mapping[str, Cell], all_of_them: str = "every row") -> str:
    """The cells whose excess is noted, by their names, as one sentence; empty if there is none.

    "snes, pgpe: 7% to 23% more environment steps than the budget, because ..."
    """
    noted = {name: cell for name, cell in cells.items() if NOTED < cell.overspent < MOST_EXCESS}
    if not noted:
        return ""
    names = all_of_them if len(noted) == len(cells) > 1 else ", ".join(noted)
    shares = [cell.overspent for cell in noted.values()]
    extent = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
    why = " and ".join(WHY[is_agent] for is_agent in sorted({c.is_agent for c in noted.values()}))
    return f"{names}: {extent} more environment steps than the budget, because {why}."


def planned_text(largest: Mapping[str, float]) -> str:
    """What the last generation may add to the budget, by algorithm; empty if that is little."""
    noted = sorted((share, name) for name, share in largest.items() if share > NOTED)
    if not noted:
        return ""
    most, names = noted[-1][0], ", ".join(name for _, name in reversed(noted))
    end = "."
    if most >= MOST_EXCESS:
        end = f"; trials that exceed it by {MOST_EXCESS:.0%} or more are not compared: raise "
        end += "budget.env_steps or shrink the population."
    return (
        f"a search finishes its last generation, so training may exceed the budget by up to "
        f"{most:.0%} ({names}){end}"
    )


def grouped(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Notes from pairs of a title and a text, one for each text."""
    titles: dict[str, list[str]] = {}
    for title, text in notes:
        titles.setdefault(text, []).append(title)
    return [f"{', '.join(own)}: {text}" for text, own in titles.items()]


def left_out(seeds: Iterable[int]) -> list[str]:
    """A note on what the IQM leaves out, from the number of seeds of each row; not of one seed."""
    rows: dict[int, list[str]] = {}
    for number in sorted({*seeds} - {0, 1}, reverse=True):
        rows.setdefault(int(TRIMMED * number), []).append(str(number))
    texts = []
    for cut, numbers in rows.items():
        what = f"the best {cut} and the worst {cut}" if cut else "none"
        texts.append(f"{what} of {' or '.join(numbers)} seeds")
    return [f"IQM: leaves out {', '.join(texts)}."] * bool(texts)


def seeds_notes(seeds: Sequence[int]) -> list[str]:
    """Cautions about rows with few seeds, from the number of seeds of each row."""
    covered = [f"{share} % with {number}" for number, share in COVERED.items() if number in seeds]
    limits = {
        (0, FEW_SEEDS): "the order of close scores may be chance.",
        (MIN_RUNS, max(COVERED) + 1): "intervals are too narrow. Instead of 95 %, they cover about "
        f"{', '.join(covered)} seeds.",
        (1, MIN_RUNS): "no interval.",
    }
    return [
        f"Rows with fewer than {end} seeds: {text}"
        for (start, end), text in limits.items()
        if any(start <= count < end for count in seeds)
    ]


def references_of(rows: Sequence[Cell]) -> dict[str, int]:
    """The numbers of the references by their descriptions, in the order of the rows."""
    found = dict.fromkeys(reference_text(row) for row in rows if row.reference)
    return {text: number for number, text in enumerate(found, start=1)}


def reference_text(row: Cell) -> str:
    """Method, source, steps and comparability of the published score of a row that has one."""
    assert row.reference is not None
    comparable = "comparable" if row.reference.comparable else "NOT comparable"
    note = f" ({row.reference.note})" if row.reference.note else ""
    source = f"{row.reference.method}, {row.reference.source}"
    steps = row.reference.env_steps
    trained = "" if steps is None else f", {format_steps(steps)} steps"
    return f"{row.environment}: {source}{trained}; {comparable}{note}"


def overall_notes(rows: Sequence[Cell]) -> list[str]:
    """The scores of each algorithm over all environments, and what is not in them."""
    scores = normalized_scores(rows)
    found = overall(scores)
    if len({row.environment for row in rows}) < 2:
        return []
    if not found:
        return ["No statistics over all environments: no algorithm has normalized scores in all."]
    used = {environment for own in scores.values() for environment in own}
    names = {item.name for item in found}
    missing = {row.environment for row in rows} - used | {row.name for row in rows} - names
    return [
        f"{OVER_ALL}: {item.name}: IQM {overall_text(item)}, mean {format_share(item.mean)}, "
        f"median of the environments' means {format_share(item.median)}, optimality gap "
        f"{format_share(item.optimality_gap)}."
        for item in found
    ] + [f"Not over all environments: {', '.join(sorted(missing))}."] * bool(missing)


def overall_text(item: Overall, separator: str = " ") -> str:
    """The IQM over all environments, and its interval if there is one."""
    value = format_share(item.iqm)
    if math.isnan(item.low):
        return value
    return f"{value}{separator}[{format_share(item.low)}, {format_share(item.high)}]"


def command_notes(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """One note per command, with titles of the rows it made unless it made all of them."""
    notes = []
    for command in dict.fromkeys(command for own in commands.values() for command in own):
        made = [title for title, own in commands.items() if command in own]
        is_of_all = len(made) == len(commands)
        if len(made) > MOST_TITLES:
            made[MOST_TITLES - 1 :] = [f"and {len(made) - MOST_TITLES + 1} more"]
        which = "" if is_of_all else f" ({', '.join(made)})"
        notes.append(f"{MADE_BY}{which}: {command}")
    return notes
