"""Compares two sides of stored trials: two output folders, or two algorithms of one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from esbench.analysis.comparison import (
    LEVEL,
    Comparison,
    Estimate,
    adjusted,
    compare,
    compare_across,
)
from esbench.analysis.statistics import normalized
from esbench.errors import UsageError, unknown
from esbench.files import as_text
from esbench.grids.environment_files import Scores
from esbench.grids.trial_spec import flatten
from esbench.reporting.tables.render_table import FEW_SEEDS
from esbench.settings import Table
from esbench.store.defaults import completed_if_known
from esbench.store.seed_groups import Cell, cells
from esbench.units import NONE, counted, format_number

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NARROW_BELOW: Final = 6
MOST_APART: Final = 8  # settings that a note names
LONGEST_VALUE: Final = 40  # of one of them: a sigma for each parameter is long


@final
@dataclass(frozen=True)
class Pair:
    """The same environment on both sides.

    Attributes:
        environment: its label.
        first_name, second_name: the cells.
        comparison: of their scores.
        p_value: adjusted by Holm over all pairs.
    """

    environment: str
    first_name: str
    second_name: str
    comparison: Comparison
    p_value: float


@final
@dataclass(frozen=True)
class Sides:
    """Two sides compared.

    Attributes:
        first, second: what they are called.
        pairs: an environment (and algorithm) each.
        across: difference of normalised scores and probability of improvement over environments;
            None for one environment, or where one has no frozen scores to normalise by.
        notes: what to beware of.
    """

    first: str
    second: str
    pairs: tuple[Pair, ...]
    across: tuple[Estimate, Estimate] | None
    notes: tuple[str, ...]


def compare_sides(first: str, second: str, root: Path | None = None) -> Sides:
    """Compare two output folders, or two algorithms of one.

    Environments are compared that both sides have. Where a side has several algorithms in one, they
    are paired by name.

    Args:
        first: a folder; with ``root`` an algorithm's label.
        second: the other one.
        root: an output folder that holds both algorithms.

    Raises:
        UsageError: a folder or an algorithm is not there, a trial is not readable, or the sides
            have nothing in common.
    """
    ours, theirs = (_side(name, root) for name in (first, second))
    matched = _matched(ours, theirs)
    if not matched:
        raise UsageError(
            f"nothing to compare: {first} has {_contents(ours)}, {second} has {_contents(theirs)}"
        )
    scores = [(_finite(a), _finite(b)) for a, b in matched]
    for (a, b), (mine, other) in zip(matched, scores, strict=True):
        for cell, found in ((a, mine), (b, other)):
            if not found:
                raise UsageError(f"{cell.name} on {cell.environment} has no finished trial")
    comparisons = [compare(mine, other) for mine, other in scores]
    pairs = tuple(
        Pair(a.environment, a.name, b.name, comparison, float(p))
        for (a, b), comparison, p in zip(matched, comparisons, adjusted(comparisons), strict=True)
    )
    return Sides(
        first, second, pairs, _across(matched, scores), _notes(ours, theirs, matched, pairs)
    )


def outcome(sides: Sides) -> str:
    """Return in one sentence on how many environments the first side is better."""
    told = [pair for pair in sides.pairs if pair.p_value <= LEVEL]
    better = sum(pair.comparison.mean_difference > 0 for pair in told)
    total = len(sides.pairs)
    if total == 1:
        if not told:
            return f"{sides.first} and {sides.second} cannot be told apart"
        return f"{sides.first} is {'better' if better else 'worse'} than {sides.second}"
    return (
        f"{sides.first} against {sides.second}: better on {better}, worse on "
        f"{len(told) - better}, not told apart on {total - len(told)} of {total}"
    )


def footnotes(sides: Sides) -> list[str]:
    """Return the sentences below the table."""
    several = ", Holm-corrected" if len(sides.pairs) > 1 else ""
    words = (
        "Scores: interquartile means over seeds. Intervals: 95 % percentile bootstrap over seeds. "
        "P(A > B): a run of A beats one of B, ties shared. "
        f"p: two-sided permutation test of means{several}. g: Hedges' effect size."
    )
    return [words, *sides.notes]


def rich_table(sides: Sides) -> RichTable:
    """Return the comparison as a table for a terminal of 80 columns."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("environment", overflow="fold")
    for name in ("A (seeds)", "B (seeds)", "A - B", "P(A > B)", "p", "g"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, *texts in _texts(sides, "\n"):
        table.add_row(name, *texts)
    return table


def as_markdown(sides: Sides) -> str:
    """Return the comparison as Markdown."""
    lines = [
        f"A: {sides.first}; B: {sides.second}",
        "",
        "| Environment | A (seeds) | B (seeds) | A - B | P(A > B) | p | g |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
        *("| " + " | ".join(texts) + " |" for texts in _texts(sides, " ")),
        "",
        f"{outcome(sides)}.",
        "",
        *(f"- {note}" for note in footnotes(sides)),
    ]
    return "\n".join(lines) + "\n"


def as_json(sides: Sides) -> str:
    """Return everything in full precision; NaN is null."""
    return as_text(asdict(sides) | {"outcome": outcome(sides)})


def _side(name: str, root: Path | None) -> list[Cell]:
    if root is None:
        if not Path(name).is_dir():
            raise UsageError(
                f"no folder {name!r}; expected two output folders, or --in DIR and two algorithms "
                "of it"
            )
        return cells(Path(name))
    found = cells(root)
    chosen = [cell for cell in found if cell.name == name]
    if not chosen:
        raise unknown(f"algorithm in {root}", name, {cell.name for cell in found})
    return chosen


def _matched(ours: Sequence[Cell], theirs: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    pairs = []
    for environment in dict.fromkeys(cell.environment for cell in ours):
        mine = [cell for cell in ours if cell.environment == environment]
        other = [cell for cell in theirs if cell.environment == environment]
        if len(mine) == len(other) == 1:
            pairs.append((mine[0], other[0]))
        else:
            names = {cell.name: cell for cell in other}
            pairs += [(cell, names[cell.name]) for cell in mine if cell.name in names]
    return pairs


def _contents(side: Sequence[Cell]) -> str:
    return ", ".join(f"{cell.name} on {cell.environment}" for cell in side)


def _finite(cell: Cell) -> list[float]:
    found = [trial.result()["score"] for trial in cell.trials if trial.is_done]
    return [float(score) for score in found if score is not None]


def _across(
    matched: Sequence[tuple[Cell, Cell]], scores: Sequence[tuple[list[float], list[float]]]
) -> tuple[Estimate, Estimate] | None:
    known = [a.scores for a, _ in matched]
    if len(matched) < 2 or not all(frozen.random and frozen.references for frozen in known):
        return None
    pairs = list(zip(known, scores, strict=True))
    return compare_across(
        [_normalized(frozen, mine) for frozen, (mine, _) in pairs],
        [_normalized(frozen, other) for frozen, (_, other) in pairs],
    )


def _normalized(frozen: Scores, scores: Sequence[float]) -> list[float]:
    assert frozen.random is not None
    return [normalized(s, frozen.random.mean, frozen.references[0].score) for s in scores]


def _notes(
    ours: Sequence[Cell],
    theirs: Sequence[Cell],
    matched: Sequence[tuple[Cell, Cell]],
    pairs: Sequence[Pair],
) -> tuple[str, ...]:
    notes = []
    fewest = min(min(pair.comparison.runs) for pair in pairs)
    if fewest < FEW_SEEDS:
        notes.append(f"Fewer than {FEW_SEEDS} seeds on a side: what looks close may be chance.")
    if fewest < NARROW_BELOW:
        notes.append(
            f"Below {NARROW_BELOW} seeds the intervals are too narrow: with 3 they cover about "
            "80 % instead of 95 %. With 3 seeds a side p cannot be below 0.1."
        )
    if any(len(set(pair.comparison.runs)) > 1 for pair in pairs):
        notes.append(
            "Unequal numbers of seeds: their interquartile means leave out different shares, which "
            "moves them apart where scores are skewed. The test and g are of plain means."
        )
    paired = [cell for pair in matched for cell in pair]
    undone = sum(len(cell.trials) - len(_finite(cell)) for cell in paired)
    if undone:
        notes.append(f"{counted(undone, 'trial')} without a score left out.")
    if alone := [cell for cell in (*ours, *theirs) if cell not in paired]:
        notes.append(f"On one side only, not compared: {_contents(alone)}.")
    for first, second in matched:
        if apart := _apart(first, second):
            more = f"; and {len(apart) - MOST_APART} more" if len(apart) > MOST_APART else ""
            said = "; ".join(apart[:MOST_APART])
            among = sum(cell.environment == first.environment for cell, _ in matched)
            where = first.environment if among == 1 else f"{first.environment} {first.name}"
            notes.append(f"{where}: A and B differ in {said}{more}.")
    return tuple(notes)


def _apart(first: Cell, second: Cell) -> list[str]:
    """Return the settings that differ, in words, but for those that the labels stand for."""
    labels = [cell.descriptions[0]["labels"] for cell in (first, second)]
    ours, theirs = (
        flatten(completed_if_known(cell.trials[0].spec()).model_dump(mode="json"))
        for cell in (first, second)
    )
    named = [part for part in ("algorithm", "policy") if labels[0][part] != labels[1][part]]
    told = [*(f"{part}." for part in named), "seed", "environment.id"]
    return [
        f"{key} ({_value(ours, key)}, {_value(theirs, key)})"
        for key in dict.fromkeys([*ours, *theirs])
        if not key.startswith(tuple(told)) and _value(ours, key) != _value(theirs, key)
    ]


def _value(settings: Table, key: str) -> str:
    text = json.dumps(settings[key]) if key in settings else "none"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def _texts(sides: Sides, gap: str) -> list[list[str]]:
    """Return the cells of the table; ``gap`` stands between a number and its interval."""
    names = [pair.environment for pair in sides.pairs]
    rows = []
    for pair in sides.pairs:
        item = pair.comparison
        alone = names.count(pair.environment) == 1
        rows.append(
            [
                pair.environment if alone else f"{pair.environment} {pair.first_name}",
                f"{format_number(item.first)}{gap}({item.runs[0]})",
                f"{format_number(item.second)}{gap}({item.runs[1]})",
                _interval(item.difference, gap, format_number),
                _interval(item.improvement, gap, "{:.2f}".format),
                f"{pair.p_value:.2g}",
                NONE if math.isnan(item.effect_size) else f"{item.effect_size:+.2f}",
            ]
        )
    if sides.across is not None:
        difference, improvement = sides.across
        normal = _interval(difference, gap, "{:+.2f}".format)
        chance = _interval(improvement, gap, "{:.2f}".format)
        rows.append(["all, normalized", "", "", normal, chance, "", ""])
    return rows


def _interval(estimate: Estimate, gap: str, words: Callable[[float], str]) -> str:
    if math.isnan(estimate.low):
        return words(estimate.value)
    return f"{words(estimate.value)}{gap}[{words(estimate.low)}, {words(estimate.high)}]"
