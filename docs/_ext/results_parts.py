"""Parts with results that pages include: the best algorithms, maxima, tuning and thresholds.

Their links begin at the root of the documentation, since several pages include them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from internals import (
    NONE,
    Suite,
    counted,
    format_number,
    format_share,
    normalized,
    overall,
    p_different,
)
from markdown_text import escaped, markdown_table
from results_tables import (
    NOT_RUN,
    Result,
    interval_text,
    linked_algorithm,
    linked_environment,
    score_text,
    seeds_text,
    suite_results,
    table,
)
from thresholds import threshold_table

ROOT = "/results/"
LARGEST = 8  # differences in a table
DIFFERENCE = "Difference, share of the range"


def parts(suites: Sequence[Suite]) -> dict[str, str]:
    """Every part by its name."""
    rows = [
        r for suite in suites for name in suite.environments for r in suite_results(suite, name)
    ]
    entries = [entry for suite in suites for entry in suite.shown]
    found = {
        "best": best_table(suites, ROOT) if rows else "",
        "best-seen": best_seen(suites, rows),
        "tails": tails(suites, rows),
        "tuning": tuning(suites),
        "thresholds": threshold_table(entries),
    }
    return {f"parts/{name}": (text or f"{NOT_RUN}") + "\n" for name, text in found.items()}


def figures(suites: Sequence[Suite], name: str, title: str) -> list[str]:
    """A figure of every suite that has results."""
    return [
        f"```{{figure}} /results/figures/{suite.name}-{name}.png\n:alt: {title}, {suite.name}\n\n"
        f"{title}, suite {suite.name}.\n```"
        for suite in suites
        if suite.shown
    ]


def best_seen(suites: Sequence[Suite], rows: Sequence[Result]) -> str:
    """How the largest return of training differs from the final score, in words and figures."""
    known = [each for each in rows if not math.isnan(each.row.best_seen)]
    if not known:
        return ""
    above = [each for each in known if each.row.best_seen > each.row.score]
    shares = [(scaled(each, each.row.best_seen - each.row.score), each) for each in known]
    shares = sorted((s for s in shares if not math.isnan(s[0])), key=lambda s: -s[0])
    text = (
        f"In {len(above)} of {counted(len(known), 'row')}, the best seen is above the final score. "
        f"The median difference is {format_share(median(share for share, _ in shares))} of the "
        "range from the random policy to the published reference. The largest differences:"
    )
    lines = [
        [
            linked_environment(each.row.environment, f"{ROOT}environments/"),
            linked_algorithm(each, f"{ROOT}algorithms/"),
            format_number(each.row.best_seen),
            format_number(each.row.score),
            format_share(share),
        ]
        for share, each in shares[:LARGEST]
    ]
    headings = [
        "Environment",
        "Algorithm",
        "Best seen",
        "Final score",
        DIFFERENCE,
    ]
    shown = markdown_table(headings, lines, numbers=headings[2:])
    drawn = figures(suites, "best-seen", "Best seen in training against final score")
    return "\n\n".join([text, shown, *drawn])


def scaled(each: Result, difference: float) -> float:
    """A difference as a share of the range from random policy to reference; NaN without one."""
    span = each.row.reference_score - each.row.random_score
    return difference / span if not math.isnan(each.row.normalized) else math.nan


def tails(suites: Sequence[Suite], rows: Sequence[Result]) -> str:
    """The figures of tails, and the best rows whose worst episodes are far below their score."""
    best = [each for each in rows if each.standing == "best"]
    lines = [
        [
            linked_environment(each.row.environment, f"{ROOT}environments/"),
            linked_algorithm(each, f"{ROOT}algorithms/"),
            format_number(each.row.score),
            format_number(each.row.tail),
            format_share(scaled(each, each.row.score - each.row.tail)),
        ]
        for each in best
    ]
    headings = ["Environment", "Best by score", "Score", "Tail", DIFFERENCE]
    shown = markdown_table(headings, lines, numbers=headings[2:]) if lines else ""
    return "\n\n".join([shown, *figures(suites, "tails", "Tail against median")]).strip()


def tuning(suites: Sequence[Suite]) -> str:
    """Rows with settings of the suite's grid beside those of the same cell without."""
    lines = []
    for suite in suites:
        for cell in suite.cells:
            by_origin = {str(origin): entry for entry, origin in reversed(cell.entries)}
            tuned = by_origin.pop("suite", None)
            by_origin.pop("other", None)
            if tuned and by_origin:
                (origin, plain), *_ = by_origin.items()
                rows = {r.row.file: r for r in suite_results(suite, cell.environment)}
                lines.append(
                    [
                        linked_environment(cell.environment, f"{ROOT}environments/"),
                        f"[`{cell.algorithm}`]({ROOT}algorithms/{cell.algorithm}.md)",
                        format_number(rows[tuned.file_name].row.score),
                        format_number(rows[plain.file_name].row.score),
                        origin,
                        f"{p_different(tuned.scores, plain.scores):.3f}",
                    ]
                )
    if not lines:
        return "No cell has results both with settings of the suite's grid and with others."
    headings = ["Environment", "Algorithm", "Suite's settings", "Others", "Which", "p"]
    return markdown_table(headings, lines, numbers=headings[2:4])


def best_table(suites: Sequence[Suite], folder: str = "../") -> str:
    """The best algorithm of every environment, and those whose intervals overlap its own.

    The only row of a suite is left out if another suite compares algorithms in its environment, and
    has a better one.
    """
    lines = []
    found = [(s, name, suite_results(s, name)) for s in suites for name in s.environments]
    compared: dict[str, float] = {}
    for _, environment, rows in found:
        if len(rows) > 1:
            score = rows[0].row.score
            compared[environment] = max(score, compared.get(environment, score))
    for suite, environment, rows in found:
        if not rows:
            continue
        best = rows[0]
        if len(rows) == 1 and best.row.score < compared.get(environment, -math.inf):
            continue
        equal = [each for each in rows if each.row.score == best.row.score]
        others = rows[len(equal) :]
        tied = [each for each in others if each.standing == "tied"]
        equal_names, tied_names = (
            ", ".join(linked_algorithm(each, f"{folder}algorithms/") for each in group)
            for group in (equal, tied)
        )
        lines.append(
            {
                "Environment": linked_environment(environment, f"{folder}environments/"),
                "Suite": f"[{suite.name}]({folder}suites/{suite.name}.md)",
                "Best": equal_names,
                "Score": f"{format_number(best.row.score)} {interval_text(best)}",
                "Interval overlaps": tied_names or NONE,
                "Below": f"{len(others) - len(tied)} of {len(rows)}" if rows[1:] else "only row",
                "Seeds": seeds_text(best),
            }
        )
    headings = [each for each in lines[0] if each != "Suite" or len(suites) > 1]
    return f"{{.results .best}}\n{table(headings, lines)}"


def score_matrix(suite: Suite) -> str:
    """The scores of a suite, one column per environment; algorithms by their mean place."""
    found: dict[str, dict[str, str]] = {}
    places: dict[str, list[float]] = {}
    for environment in suite.environments:
        rows = [row for row in suite_results(suite, environment) if row.entry in suite.shown]
        for place, each in enumerate(rows, start=1):
            name = each.entry.cell.algorithm
            found.setdefault(name, {})[environment] = score_text(each)
            places.setdefault(name, []).append(place)
    order = sorted(found, key=lambda name: (-len(places[name]), fmean(places[name])))
    columns = [name for name in suite.environments if any(name in own for own in found.values())]
    lines = [
        [f"[`{name}`](../algorithms/{name}.md)", *(found[name].get(each, NONE) for each in columns)]
        for name in order
    ]
    return f"{{.results}}\n{markdown_table(['Algorithm', *columns], lines, numbers=columns)}"


def across_table(suite: Suite) -> str:
    """Normalized scores over all environments of a suite, of algorithms that have run in each."""
    scores: dict[str, dict[str, list[float]]] = {}
    for environment in suite.environments:
        for each in suite_results(suite, environment):
            if each.entry in suite.shown and not math.isnan(each.row.normalized):
                scale = each.row.random_score, each.row.reference_score
                own = [normalized(score, *scale) for score in each.entry.scores]
                scores.setdefault(each.entry.cell.algorithm, {})[environment] = own
    lines = [
        [
            f"[`{item.name}`](../algorithms/{item.name}.md)",
            format_share(item.iqm),
            escaped(f"[{format_share(item.low)}, {format_share(item.high)}]"),
            format_share(item.mean),
            format_share(item.median),
            format_share(item.optimality_gap),
        ]
        for item in overall(scores)
    ]
    if not lines:
        return ""
    headings = ["Algorithm", "IQM", "95 % interval", "Mean", "Median", "Optimality gap"]
    names = ", ".join(
        f"`{name}`" for name in dict.fromkeys(e for own in scores.values() for e in own)
    )
    intro = (
        f"Normalized scores over {names}, of the algorithms with results in all of them "
        "(0: random policy, 1: published reference):"
    )
    return f"{intro}\n\n{markdown_table(headings, lines, numbers=headings[1:])}"
