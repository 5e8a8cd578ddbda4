"""Compares two output folders, or two algorithms of one folder."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

from esbench.core.errors import UsageError, unknown
from esbench.core.json_text import as_text
from esbench.core.settings import Table
from esbench.core.units import NONE, counted, format_number, format_p
from esbench.grids.trial_spec import flatten
from esbench.publish.tables.render_table import (
    Column,
    Sheet,
    export,
    interval_text,
    make_sheet,
    records,
)
from esbench.publish.tables.table_notes import (
    SEED_SCORES,
    TAIL,
    TUNED_NOTE,
    excess_text,
    grouped,
    left_out,
    marked,
    seeds_notes,
    worst_text,
)
from esbench.results.cell import Cell, cells_named, require_comparable, seed_scores, variant_of
from esbench.results.sources import read_folder
from esbench.results.statistics.estimates import EpisodeStatistic
from esbench.results.statistics.significance import (
    LEVEL,
    Comparison,
    Estimate,
    compare,
    compare_across,
    holm,
)

if TYPE_CHECKING:
    import pandas as pd

PARTS: Final = ("environment", "algorithm", "policy")
BY: Final[dict[EpisodeStatistic, str]] = {
    "mean": "",
    "tail": ", by their tails",
    "area": ", by the areas under their learning curves",
}
LONGEST_VALUE: Final = 40  # characters of one setting: there may be a sigma per parameter


@final
@dataclass(frozen=True)
class Pair:
    """Two cells of one environment; ``p_value`` has Holm's correction over all pairs."""

    first: Cell
    second: Cell
    comparison: Comparison
    p_value: float

    @property
    def environment(self) -> str:
        """The environment of both cells."""
        return self.first.environment

    @property
    def tails(self) -> tuple[float, float]:
        """Means over seeds of the mean of the worst 10 % of held-out episodes, or NaN."""
        return self.first.tail, self.second.tail


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
    ours, theirs = _side(first, root), _side(second, root)
    require_comparable([*ours, *theirs])
    matched = _matched(ours, theirs, WITHIN if root else BETWEEN)
    if any(_trained(a) & _trained(b) for a, b in matched):
        raise UsageError(
            f"{first} and {second} have trials in common, or copies of one trial; expected two "
            "folders or two algorithms"
        )
    if not matched:
        if root is not None:
            _require_one_row(first, ours, root)
            _require_one_row(second, theirs, root)
        raise UsageError(
            f"nothing to compare: {first} has {_contents(ours)}, {second} has {_contents(theirs)}"
        )
    scored = [_scored(pair, statistic) for pair in matched]
    comparisons = [compare(a.scores, b.scores) for a, b in scored]
    p_values = holm([comparison.p_value for comparison in comparisons])
    pairs = tuple(
        Pair(a, b, comparison, float(p))
        for (a, b), comparison, p in zip(scored, comparisons, p_values, strict=True)
    )
    left_out = [cell for cell in (*ours, *theirs) if not any(cell in pair for pair in matched)]
    notes = _cautions(pairs)
    if left_out:
        notes.append(f"Not compared, without a partner of equal settings: {_contents(left_out)}.")
    return Sides(first, second, statistic, pairs, _across(pairs), tuple(notes))


def _trained(cell: Cell) -> set[tuple[str, str]]:
    """What identifies finished trials and their copies: the digest of rows, which have times."""
    folders = [run.folder for run in cell.done]
    rows = [folder.result().get("rows") or str(folder.path.resolve()) for folder in folders]
    return {
        (as_text(run.description["spec"]), row) for run, row in zip(cell.done, rows, strict=True)
    }


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


def _side_columns(key: str, name: Literal["first", "second"]) -> list[Column[Pair]]:
    side = ("first", "second").index(name)
    return [
        Column(key, attrgetter(f"{name}.name")),
        Column(f"{key}_score", attrgetter(f"comparison.{name}")),
        Column(f"{key}_tail", attrgetter(f"{name}.tail")),
        Column(f"{key}_seeds", lambda pair: pair.comparison.runs[side]),
        Column(
            "",
            attrgetter(f"comparison.{name}", f"{name}.inherited", "comparison.runs"),
            f"{key.upper()} (seeds)",
            lambda value: f"{marked(format_number(value[0]), value[1])}\n({value[2][side]})",
        ),
    ]


def _estimate_columns(key: str, heading: str, write: Callable[[float], str]) -> list[Column[Pair]]:
    place = f"comparison.{key}"
    ends = [Column(f"{key}_{end}", attrgetter(f"{place}.{end}")) for end in ("low", "high")]
    shown = Column("", attrgetter(place), heading, partial(_estimate, write=write))
    return [Column(key, attrgetter(f"{place}.value")), *ends, shown]


def _estimate(estimate: Estimate, write: Callable[[float], str]) -> str:
    """A number above its interval."""
    below = interval_text((estimate.low, estimate.high), write)
    return write(estimate.value) if below == NONE else f"{write(estimate.value)}\n{below}"


def _signed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:+.2f}"


COLUMNS: Final[tuple[Column[Pair], ...]] = (
    Column("environment"),
    *_side_columns("a", "first"),
    *_side_columns("b", "second"),
    *_estimate_columns("difference", "A - B", format_number),
    *_estimate_columns("improvement", "P(A > B)", "{:.2f}".format),
    Column("p_value", None, "p", format_p),
    Column("effect_size", attrgetter("comparison.effect_size"), "g", _signed),
    Column("", attrgetter("tails"), "Tails", lambda tails: ",\n".join(map(format_number, tails))),
)


def sheet(sides: Sides, *, tail: bool = False) -> Sheet:
    """The comparison as a table with its footnotes.

    ``tail`` adds the tails of both sides, unless they are what is compared.
    """
    tail = tail and sides.statistic == "mean"
    place = Column("", partial(_place, sides.pairs), "Environment")
    table = make_sheet([place, *COLUMNS], sides.pairs, () if tail else ("Tails",))
    body = list(table.body)
    if sides.across is not None:
        difference, improvement = sides.across
        across = {
            "Environment": "all, normalized",
            "A - B": _estimate(difference, "{:+.2f}".format),
            "P(A > B)": _estimate(improvement, "{:.2f}".format),
        }
        body.append([across.get(name, "") for name in table.header])
    notes = [
        f"Scores: interquartile means (IQM) over seeds of {SEED_SCORES[sides.statistic]}.",
        *left_out(number for pair in sides.pairs for number in pair.comparison.runs),
        "A - B: with its 95 % percentile bootstrap interval.",
        "P(A > B): probability that a run of A beats one of B, with Newcombe's 95 % interval.",
        "p: two-sided permutation test of the means, Holm-corrected. g: Hedges' effect size.",
        *[f"Tails: of A and B. {TAIL}"] * tail,
        *[TUNED_NOTE] * any(a.first.inherited or a.second.inherited for a in sides.pairs),
        *sides.notes,
    ]
    return replace(table, body=body, notes=notes)


def _place(pairs: Sequence[Pair], pair: Pair) -> str:
    """The environment, with the algorithm if several are compared in it."""
    several = sum(pair.environment == other.environment for other in pairs) > 1
    return f"{pair.environment} {pair.first.name}" if several else pair.environment


def export_comparison(sides: Sides, format_: str) -> str:
    """A comparison as markdown, latex, csv or json; the last two in full precision."""
    if format_ == "json":
        return _as_json(sides)
    tail = any(not math.isnan(tail) for pair in sides.pairs for tail in pair.tails)
    table = sheet(sides, tail=tail)
    first = f"A: {sides.first}; B: {sides.second}. {outcome(sides)}."
    return export(
        replace(table, notes=[first, *table.notes]), records(COLUMNS, sides.pairs), format_
    )


def comparison_frame(sides: Sides) -> pd.DataFrame:
    """One row per environment, or per environment and algorithm."""
    import pandas as pd

    frame = pd.DataFrame(records(COLUMNS, sides.pairs))
    frame.attrs |= {"outcome": outcome(sides), "notes": list(sides.notes)}
    return frame


def _as_json(sides: Sides) -> str:
    """The comparison in full precision; NaN is null."""
    pairs = [
        {
            "environment": pair.environment,
            "first_name": pair.first.name,
            "second_name": pair.second.name,
            "comparison": asdict(pair.comparison),
            "p_value": pair.p_value,
            "tails": pair.tails,
        }
        for pair in sides.pairs
    ]
    across = sides.across and list(map(asdict, sides.across))
    return as_text(vars(sides) | {"pairs": pairs, "across": across, "outcome": outcome(sides)})


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
    if not chosen:
        raise unknown(f"algorithm in {root}", name, {cell.name for cell in found})
    return chosen


def _require_one_row(name: str, side: Sequence[Cell], root: Path) -> None:
    rows = sorted({cell.name for cell in side})
    if len(rows) > 1:
        raise UsageError(f"{name!r} has several rows in {root}; expected one of {', '.join(rows)}")


def _beside_algorithm(cell: Cell) -> tuple[str, str]:
    """The environment, and the hash of all settings but those of the algorithm."""
    others = {key: value for key, value in cell.spec.items() if key != "algorithm"}
    return cell.environment, variant_of(others)


# By which cells of two folders are compared, and those of two algorithms in one folder.
BETWEEN: Final = (attrgetter("environment"), attrgetter("labels"), attrgetter("labels", "variant"))
WITHIN: Final = (attrgetter("environment"), _beside_algorithm)


def _matched(
    ours: Sequence[Cell], theirs: Sequence[Cell], keys: Sequence[Callable[[Cell], Any]]
) -> list[tuple[Cell, Cell]]:
    """The pairs of cells with an equal key that no other cell of their side has; any key counts."""
    pairs = set()
    for key in keys:
        mine, others = _alone(ours, key), _alone(theirs, key)
        pairs |= {(mine[each], others[each]) for each in mine.keys() & others.keys()}
    return [(ours[n], theirs[other]) for n, other in sorted(pairs)]


def _alone(side: Sequence[Cell], key: Callable[[Cell], Any]) -> dict[Any, int]:
    """The places of the cells whose key no other one has, by that key."""
    keys = list(map(key, side))
    counts = Counter(keys)
    return {each: n for n, each in enumerate(keys) if counts[each] == 1}


def _contents(side: Sequence[Cell]) -> str:
    return ", ".join(cell.title for cell in side)


def _scored(pair: tuple[Cell, Cell], statistic: EpisodeStatistic) -> tuple[Cell, Cell]:
    """Two cells with their scores; UsageError if one has none."""
    first, second = (
        replace(cell, statistic=statistic, scores=tuple(scores))
        for cell, scores in zip(pair, seed_scores(pair, statistic), strict=True)
    )
    for cell in (first, second):
        if not cell.scores:
            what = "score" if statistic == "mean" else statistic
            raise UsageError(f"{cell.title} has no finished trial with a finite {what}")
    return first, second


def _across(pairs: Sequence[Pair]) -> tuple[Estimate, Estimate] | None:
    counts = Counter(pair.environment for pair in pairs)
    comparable = len(counts) > 1 and len({*counts.values()}) == 1
    if not comparable or not all(pair.first.has_scale for pair in pairs):
        return None
    first, second = (
        [[*map(pair.first.normalized, cell.scores)] for pair, cell in zip(pairs, side, strict=True)]
        for side in ([pair.first for pair in pairs], [pair.second for pair in pairs])
    )
    return compare_across(first, second)


def _cautions(pairs: Sequence[Pair]) -> list[str]:
    """Few or unequal seeds, runs that are left out or diverged, and settings that differ."""
    runs = [pair.comparison.runs for pair in pairs]
    cells = [cell for pair in pairs for cell in (pair.first, pair.second)]
    notes = seeds_notes([count for both in runs for count in both])
    if (3, 3) in runs:
        notes.append("With 3 seeds on each side p is at least 0.1.")
    if any(ours != theirs for ours, theirs in runs):
        notes.append(
            "Unequal numbers of seeds: interquartile means discard other shares of them. The test "
            "and g use plain means."
        )
    if unfinished := sum(len(cell.runs) - len(cell.scores) for cell in cells):
        notes.append(f"{counted(unfinished, 'trial')} without a score left out.")
    notes += grouped((_place(pairs, pair), text) for pair in pairs for text in _diverged(pair))
    for pair in pairs:
        if over := excess_text({"A": pair.first, "B": pair.second}, "A and B"):
            notes.append(f"{_place(pairs, pair)}: {over}")
        if settings := _differences(pair.first, pair.second):
            notes.append(f"{_place(pairs, pair)}: A and B differ in {'; '.join(settings)}.")
    return notes


def _diverged(pair: Pair) -> Iterator[str]:
    group = pair.first, pair.second
    if diverged := sum(cell.diverged for cell in group):
        end = worst_text(group, "its side", "both sides")
        yield f"{counted(diverged, 'run')} diverged. {end}"


def _differences(first: Cell, second: Cell) -> list[str]:
    """The settings that differ, without those of an algorithm or policy with different labels."""
    ours, theirs = (flatten(cell.spec) for cell in (first, second))
    named = [name for name, a, b in zip(PARTS, first.labels, second.labels, strict=True) if a != b]
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
