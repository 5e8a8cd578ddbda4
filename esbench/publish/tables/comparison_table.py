"""Compares two output folders, or two algorithms of one folder."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

from esbench.core.errors import UsageError, unknown
from esbench.core.json_text import as_text
from esbench.core.settings import Table
from esbench.core.units import NONE, counted, format_number
from esbench.grids.trial_spec import flatten
from esbench.publish.tables import render_table
from esbench.publish.tables.render_table import Column, Sheet, interval_text, records, texts
from esbench.publish.tables.table_notes import FEW_SEEDS, NARROW_BELOW, SEED_SCORES, TAIL
from esbench.results.cell import (
    Cell,
    cells_named,
    require_distinct_seeds,
    require_within_budget,
    seed_scores,
)
from esbench.results.sources import read_folder
from esbench.results.statistics.estimates import MIN_RUNS, EpisodeStatistic
from esbench.results.statistics.significance import (
    LEVEL,
    Comparison,
    Estimate,
    adjusted,
    compare,
    compare_across,
)

if TYPE_CHECKING:
    import pandas as pd

PARTS: Final = ("environment", "algorithm", "policy")
BY: Final[dict[EpisodeStatistic, str]] = {
    "mean": "",
    "tail": ", by their tails",
    "area": ", by the areas under their learning curves",
}
MOST_DIFFERENCES: Final = 8  # settings named in one note
LONGEST_VALUE: Final = 40  # characters of one setting: there may be a sigma per parameter


@final
@dataclass(frozen=True)
class Pair:
    """Two algorithms in one environment; ``p_value`` has Holm's correction over all pairs.

    ``tails`` are means over seeds of the mean of the worst 10 % of held-out episodes, or NaN.
    """

    environment: str
    first_name: str
    second_name: str
    comparison: Comparison
    p_value: float
    tails: tuple[float, float]


@final
@dataclass(frozen=True)
class Sides:
    """The comparison of two sides, by environment or by environment and algorithm.

    ``statistic`` makes the score of a trial of its episodes. ``across``: difference of
    normalized scores and probability of improvement over environments; None for one environment, if
    one lacks the scores to normalize by, or if one has more pairs than another.
    """

    first: str
    second: str
    statistic: EpisodeStatistic
    pairs: tuple[Pair, ...]
    across: tuple[Estimate, Estimate] | None
    notes: tuple[str, ...]


def _score(of: tuple[float, int]) -> str:
    return f"{format_number(of[0])}\n({of[1]})"


def _estimate(estimate: Estimate, write: Callable[[float], str]) -> str:
    """A number above its interval."""
    below = interval_text((estimate.low, estimate.high), write)
    return write(estimate.value) if below == NONE else f"{write(estimate.value)}\n{below}"


def _columns_of_side(side: Literal[0, 1]) -> tuple[Column[Pair], ...]:
    key, place = "ab"[side], attrgetter(("comparison.first", "comparison.second")[side])
    return (
        Column(key, attrgetter(("first_name", "second_name")[side])),
        Column(f"{key}_score", place),
        Column(f"{key}_tail", lambda pair: pair.tails[side]),
        Column(f"{key}_seeds", lambda pair: pair.comparison.runs[side]),
        Column(
            "",
            lambda pair: (place(pair), pair.comparison.runs[side]),
            f"{key.upper()} (seeds)",
            _score,
        ),
    )


def _columns_of_estimate(
    key: str, heading: str, write: Callable[[float], str]
) -> tuple[Column[Pair], ...]:
    of = attrgetter(f"comparison.{key}")
    return (
        Column(key, lambda pair: of(pair).value),
        Column(f"{key}_low", lambda pair: of(pair).low),
        Column(f"{key}_high", lambda pair: of(pair).high),
        Column("", of, heading, partial(_estimate, write=write)),
    )


COLUMNS: Final[tuple[Column[Pair], ...]] = (
    Column("environment", heading="Environment"),
    *_columns_of_side(0),
    *_columns_of_side(1),
    *_columns_of_estimate("difference", "A - B", format_number),
    *_columns_of_estimate("improvement", "P(A > B)", "{:.2f}".format),
    Column("p_value", None, "p", "{:.2g}".format),
    Column(
        "effect_size",
        lambda pair: pair.comparison.effect_size,
        "g",
        lambda g: NONE if math.isnan(g) else f"{g:+.2f}",
    ),
    Column(
        "", lambda pair: pair.tails, "Tails", lambda tails: ",\n".join(map(format_number, tails))
    ),
)


def compare_sides(
    first: str, second: str, root: Path | None = None, statistic: EpisodeStatistic = "mean"
) -> Sides:
    """Compare two output folders, or two algorithms of one folder.

    Compares the environments that both sides have. If a side has several algorithms in an
    environment, algorithms with equal names are compared. With ``root``, an output folder, the
    sides are the labels of two of its algorithms. The score of a trial is the ``statistic`` of its
    episodes.

    Raises:
        UsageError: a folder or an algorithm does not exist, a trial is not readable or has no tail,
            or the sides share no environment.
    """
    ours, theirs = (
        [replace(cell, statistic=statistic) for cell in _side(name, root)]
        for name in (first, second)
    )
    require_within_budget([*ours, *theirs])
    require_distinct_seeds([*ours, *theirs])
    matched = _matched(ours, theirs)
    if any(_paths(a) & _paths(b) for a, b in matched):
        raise UsageError(
            f"{first} and {second} have trials in common; expected two folders or two algorithms"
        )
    if not matched:
        raise UsageError(
            f"nothing to compare: {first} has {_contents(ours)}, {second} has {_contents(theirs)}"
        )
    scores = [_scores(a, b, statistic) for a, b in matched]
    comparisons = [compare(mine, other) for mine, other in scores]
    pairs = tuple(
        Pair(a.environment, a.name, b.name, comparison, float(p), (a.tail, b.tail))
        for (a, b), comparison, p in zip(matched, comparisons, adjusted(comparisons), strict=True)
    )
    across = _across(matched, scores)
    notes = _notes(ours, theirs, matched, pairs)
    return Sides(first, second, statistic, pairs, across, notes)


def _paths(cell: Cell) -> set[Path]:
    return {run.folder.path.resolve() for run in cell.runs}


def outcome(sides: Sides) -> str:
    """One sentence that says where the first side is better or worse."""
    significant = [pair for pair in sides.pairs if pair.p_value <= LEVEL]
    better = sum(pair.comparison.mean_difference > 0 for pair in significant)
    worse, total = len(significant) - better, len(sides.pairs)
    end = BY[sides.statistic]
    if total > 1:
        return (
            f"{sides.first} against {sides.second}: better on {better}, worse on {worse}, not "
            f"significantly different on {total - len(significant)} of {total}{end}"
        )
    if not significant:
        return f"{sides.first} and {sides.second} are not significantly different{end}"
    return f"{sides.first} is {'better' if better else 'worse'} than {sides.second}{end}"


def sheet(sides: Sides, *, tail: bool = False) -> Sheet:
    """The comparison as a table with its footnotes.

    ``tail`` adds the tails of both sides, unless they are what is compared.
    """
    tail = tail and sides.statistic == "mean"
    names = [pair.environment for pair in sides.pairs]
    write = texts(COLUMNS)
    header = [name for name in write if tail or name != "Tails"]
    body = [[write[name](pair) for name in header] for pair in sides.pairs]
    for cells, pair in zip(body, sides.pairs, strict=True):
        if names.count(pair.environment) > 1:
            cells[0] = f"{pair.environment} {pair.first_name}"
    if sides.across is not None:
        difference, improvement = sides.across
        across = {
            "Environment": "all, normalized",
            "A - B": _estimate(difference, "{:+.2f}".format),
            "P(A > B)": _estimate(improvement, "{:.2f}".format),
        }
        body.append([across.get(name, "") for name in header])
    of_what = f" of {SEED_SCORES[sides.statistic]}"
    several = ", Holm-corrected" if len(sides.pairs) > 1 else ""
    columns = (
        f"Scores: interquartile means over seeds{of_what}. "
        "Interval of A - B: 95 % percentile bootstrap over seeds. "
        "P(A > B): the probability that a run of A beats a run of B, a tie counts half, with its "
        "95 % interval by Newcombe (2006). "
        f"p: two-sided permutation test of the means{several}. g: Hedges' effect size."
    )
    notes = [columns, *[f"Tails: of A and B. {TAIL}"] * tail, *sides.notes]
    return Sheet(header, body, notes)


def export_comparison(sides: Sides, format_: str) -> str:
    """A comparison as markdown, latex, csv or json; the last two in full precision."""
    match format_:
        case "markdown":
            return as_markdown(sides)
        case "latex":
            return as_latex(sides)
        case "csv":
            return comparison_frame(sides).to_csv(index=False)
        case _:
            return as_json(sides)


def comparison_frame(sides: Sides) -> pd.DataFrame:
    """One row per environment, or per environment and algorithm."""
    import pandas as pd

    frame = pd.DataFrame(records(COLUMNS, sides.pairs))
    frame.attrs |= {"outcome": outcome(sides), "notes": list(sides.notes)}
    return frame


def as_markdown(sides: Sides) -> str:
    """The comparison as Markdown."""
    shown = sheet(sides, tail=_has_tails(sides))
    table, _, notes = render_table.as_markdown(shown).partition("\n\n")
    return "\n\n".join([_head(sides), table, f"{outcome(sides)}.", notes])


def as_latex(sides: Sides) -> str:
    """The comparison as LaTeX; sides and outcome are notes."""
    shown = sheet(sides, tail=_has_tails(sides))
    notes = [f"{_head(sides)}. {outcome(sides)}.", *shown.notes]
    return render_table.as_latex(Sheet(shown.header, shown.body, notes))


def as_json(sides: Sides) -> str:
    """The comparison as JSON in full precision; NaN is null."""
    return as_text(asdict(sides) | {"outcome": outcome(sides)})


def _head(sides: Sides) -> str:
    return f"A: {sides.first}; B: {sides.second}"


def _has_tails(sides: Sides) -> bool:
    return any(not math.isnan(tail) for pair in sides.pairs for tail in pair.tails)


def _side(name: str, root: Path | None) -> list[Cell]:
    if root is None:
        if not Path(name).is_dir():
            raise UsageError(
                f"no folder {name!r}; expected two output folders, or --in DIR and two of its "
                "algorithms"
            )
        return read_folder(Path(name))
    found = read_folder(root)
    chosen = cells_named(found, name)
    rows = sorted({cell.name for cell in chosen})
    if len(rows) > 1:
        raise UsageError(f"{name!r} has several rows in {root}; expected one of {', '.join(rows)}")
    if not rows:
        raise unknown(f"algorithm in {root}", name, {cell.name for cell in found})
    return chosen


def _matched(ours: Sequence[Cell], theirs: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells of equal environments and labels; labels may differ where both have one cell.

    Where a side has several cells with the same labels, those of equal settings.
    """
    environments = [Counter(cell.environment for cell in side) for side in (ours, theirs)]
    labels = [Counter(cell.labels for cell in side) for side in (ours, theirs)]
    return [
        (mine, other)
        for mine in ours
        for other in theirs
        if mine.environment == other.environment
        and (
            all(count[mine.environment] == 1 for count in environments)
            or (mine.labels == other.labels and all(count[mine.labels] == 1 for count in labels))
            or (mine.labels == other.labels and mine.variant == other.variant)
        )
    ]


def _contents(side: Sequence[Cell]) -> str:
    return ", ".join(cell.title for cell in side)


def _scores(
    mine: Cell, other: Cell, statistic: EpisodeStatistic
) -> tuple[list[float], list[float]]:
    first, second = seed_scores([mine, other], statistic)
    for cell, scores in ((mine, first), (other, second)):
        if not scores:
            what = "score" if statistic == "mean" else statistic
            raise UsageError(f"{_contents([cell])} has no finished trial with a finite {what}")
    return first, second


def _across(
    matched: Sequence[tuple[Cell, Cell]], scores: Sequence[tuple[list[float], list[float]]]
) -> tuple[Estimate, Estimate] | None:
    pairs = Counter(cell.environment for cell, _ in matched)
    comparable = len(pairs) > 1 and len({*pairs.values()}) == 1
    if not comparable or not all(cell.has_scale for cell, _ in matched):
        return None
    first, second = (
        [
            [cell.normalized(score) for score in pair[side]]
            for (cell, _), pair in zip(matched, scores, strict=True)
        ]
        for side in (0, 1)
    )
    return compare_across(first, second)


def _notes(
    ours: Sequence[Cell],
    theirs: Sequence[Cell],
    matched: Sequence[tuple[Cell, Cell]],
    pairs: Sequence[Pair],
) -> tuple[str, ...]:
    notes = []
    fewest = min(min(pair.comparison.runs) for pair in pairs)
    if fewest < FEW_SEEDS:
        notes.append(f"Fewer than {FEW_SEEDS} seeds on a side: small differences may be chance.")
    if any(MIN_RUNS <= min(pair.comparison.runs) < NARROW_BELOW for pair in pairs):
        notes.append(
            f"With fewer than {NARROW_BELOW} seeds the intervals are too narrow: with 3 they "
            "cover about 80 % instead of 95 %."
        )
    if any(pair.comparison.runs == (3, 3) for pair in pairs):
        notes.append("With 3 seeds on each side p is at least 0.1.")
    if any(len(set(pair.comparison.runs)) > 1 for pair in pairs):
        notes.append(
            "Unequal numbers of seeds: the interquartile means discard different shares of the "
            "scores, so they differ if scores are skewed. The test and g use plain means."
        )
    paired = [cell for pair in matched for cell in pair]
    runs = sum(sum(pair.comparison.runs) for pair in pairs)
    if unfinished := sum(len(cell.runs) for cell in paired) - runs:
        notes.append(f"{counted(unfinished, 'trial')} without a score left out.")
    if diverged := sum(cell.diverged for cell in paired):
        known = all(cell.frozen.random for cell in paired)
        worst = "its own side and the random policy" if known else "both sides"
        notes.append(f"{counted(diverged, 'run')} diverged, counted as the worst of {worst}.")
    common = {cell.labels for cell in ours} & {cell.labels for cell in theirs}
    left_out = [cell for cell in (*ours, *theirs) if cell not in paired]
    if alone := [cell for cell in left_out if cell.labels not in common]:
        notes.append(f"On one side only, not compared: {_contents(alone)}.")
    if unequal := [cell for cell in left_out if cell.labels in common]:
        notes.append(
            "Not compared, because a side has several rows of this name and none on the other side "
            f"has equal settings: {_contents(unequal)}."
        )
    for first, second in matched:
        if settings := _differences(first, second):
            rest = len(settings) - MOST_DIFFERENCES
            listed = "; ".join(settings[:MOST_DIFFERENCES]) + (f"; and {rest} more" * (rest > 0))
            several = sum(cell.environment == first.environment for cell, _ in matched) > 1
            where = f"{first.environment} {first.name}" if several else first.environment
            notes.append(f"{where}: A and B differ in {listed}.")
    return tuple(notes)


def _differences(first: Cell, second: Cell) -> list[str]:
    """The settings that differ, without those of an algorithm or policy with different labels."""
    labels = [dict(zip(PARTS, cell.labels, strict=True)) for cell in (first, second)]
    ours, theirs = (flatten(cell.spec) for cell in (first, second))
    named = [part for part in ("algorithm", "policy") if labels[0][part] != labels[1][part]]
    agents = ["policy"] if first.is_agent or second.is_agent else []  # of the agent's own
    ignored = (*(f"{part}." for part in named), *agents, "seed", "environment.id")
    keys = dict.fromkeys([*ours, *theirs])
    for side in ours, theirs:  # an empty table is that without the keys of the other side
        for key in [key for key, value in side.items() if value == {}]:
            if any(other.startswith(f"{key}.") for other in keys):
                keys.pop(key, None)
    return [
        f"{key} ({_value(ours, key)}, {_value(theirs, key)})"
        for key in keys
        if not key.startswith(ignored) and _value(ours, key) != _value(theirs, key)
    ]


def _value(settings: Table, key: str) -> str:
    text = json.dumps(settings[key]) if key in settings else "none"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
