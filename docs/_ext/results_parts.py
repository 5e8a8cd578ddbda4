"""Parts with results that pages include: best algorithms, overall scores, maxima, thresholds.

Their links begin at the root of the documentation, since several pages include them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, median

from comparisons import compared, expected, without_chosen
from internals import (
    BEST,
    NONE,
    Overall,
    Suite,
    counted,
    format_duration,
    format_number,
    format_p,
    format_share,
    iqm,
    markdown_code,
    overall,
    p_different,
    p_is,
)
from markdown_text import markdown_table, page_link
from results_tables import (
    NOT_RUN,
    Result,
    combined,
    interval_text,
    linked_algorithm,
    score_text,
    seeds_text,
    suite_results,
    table,
)
from thresholds import threshold_table

ROOT = "/results/"
LARGEST = 8  # differences in a table
MOST_NAMES = 6  # of algorithms in one cell of a table
LINEAR = ("mujoco", "control", "wong-2024")  # suites of whole episodes and linear policies
WALKING = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
GROUPS = {
    "walking": WALKING,
    "mujoco": ("Swimmer-v5", "InvertedDoublePendulum-v5", *WALKING),
    "control": (
        *("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"),
        *("LunarLander-v3", "BipedalWalker-v3"),
    ),
}
PUBLISHED = "_wong"  # the end of the labels of published settings
OVERALL_HEADINGS = ("Algorithm", "IQM", "95 % interval")
DIFFERENCE = "Difference, share of the range"


def parts(
    suites: Sequence[Suite],
    groups: Mapping[str, Sequence[Sequence[Result]]],
    drawn: Mapping[str, Collection[str]],
) -> dict[str, str]:
    """Every part by its name.

    ``groups``: the groups of rows of each environment. ``drawn``: the figures of each suite.
    """
    rows = [
        r for suite in suites for name in suite.environments for r in suite_results(suite, name)
    ]
    best = {environment: combined(own) for environment, own in groups.items()}
    linear = [suite for suite in suites if suite.name in LINEAR]
    entries = [each.entry for own in best.values() for each in own]
    found = {
        f"overall-{name}": overall_table(linear, environments)
        for name, environments in GROUPS.items()
    }
    found |= {
        "best": best_table(best, ROOT, with_suites=True) if best else "",
        "best-seen": best_seen(rows, figures(drawn, "best-seen", "Best seen against final score")),
        "tails": tails(rows, figures(drawn, "tails", "Tail against median")),
        "tuning": tuning(suites),
        "published-settings": published_settings(suites),
        "ppo": beside_agents(best),
        "thresholds": threshold_table(entries),
        "compared": compared(entries),
        "without-chosen": without_chosen(entries),
        "expected": expected(linear, [*GROUPS["control"], *GROUPS["mujoco"]], best),
    }
    return {f"parts/{name}": (text or f"{NOT_RUN}") + "\n" for name, text in found.items()}


def figures(drawn: Mapping[str, Collection[str]], name: str, title: str) -> list[str]:
    """The figure of this name of every suite that has it."""
    return [
        f"```{{figure}} /results/figures/{suite}-{name}.png\n:alt: {title}, {suite}\n\n"
        f"{title}, suite {suite}.\n```"
        for suite, names in drawn.items()
        if name in names
    ]


def best_seen(rows: Sequence[Result], drawn: Sequence[str]) -> str:
    """How the largest return of training differs from the final score, in words and figures."""
    known = [each for each in rows if not math.isnan(each.row.best_seen)]
    if not known:
        return ""
    above = [each for each in known if each.row.best_seen > each.cell.score]
    shares = [(scaled(each, each.row.best_seen - each.cell.score), each) for each in known]
    shares = sorted((s for s in shares if not math.isnan(s[0])), key=lambda s: -s[0])
    text = (
        f"In {len(above)} of {counted(len(known), 'row')}, the best seen is above the final score. "
        f"The median difference is {format_share(median(share for share, _ in shares))} of the "
        "range from the random policy to the published reference. The largest differences:"
    )
    lines = [
        [
            environment_of(each),
            linked_algorithm(each, f"{ROOT}algorithms/"),
            format_number(each.row.best_seen),
            format_number(each.cell.score),
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
    return "\n\n".join([text, shown, *drawn])


def environment_of(each: Result) -> str:
    """The environment of a row as a link to its page."""
    return page_link(each.cell.environment, f"{ROOT}environments/")


def scaled(each: Result, difference: float) -> float:
    """A difference as a share of the range from random policy to reference; NaN without one."""
    span = each.cell.reference_score - each.cell.random_score
    return difference / span if each.cell.has_scale else math.nan


def tails(rows: Sequence[Result], drawn: Sequence[str]) -> str:
    """The figures of tails, and the best rows whose worst episodes are far below their score."""
    best = [each for each in rows if each.standing == "best"]
    lines = [
        [
            environment_of(each),
            linked_algorithm(each, f"{ROOT}algorithms/"),
            format_number(each.cell.score),
            format_number(each.cell.tail),
            format_share(scaled(each, each.cell.score - each.cell.tail)),
        ]
        for each in best
    ]
    headings = ["Environment", "Best by score", "Score", "Tail", DIFFERENCE]
    shown = markdown_table(headings, lines, numbers=headings[2:]) if lines else ""
    return "\n\n".join([shown, *drawn]).strip()


def tuning(suites: Sequence[Suite]) -> str:
    """Rows with settings of the suite's grid beside those of the same cell with the defaults."""
    lines = []
    for suite in suites:
        for cell in suite.cells:
            by_origin = {str(origin): entry for entry, origin in reversed(cell.entries)}
            tuned, plain = by_origin.get("suite"), by_origin.get("defaults")
            if tuned and plain:
                rows = {r.entry.file_name: r for r in suite_results(suite, cell.environment)}
                both = [rows[each.file_name].cell for each in (tuned, plain)]
                lines.append(
                    [
                        page_link(cell.environment, f"{ROOT}environments/"),
                        page_link(cell.algorithm, f"{ROOT}algorithms/"),
                        *(format_number(each.score) for each in both),
                        *(f"{each.mean_cost('generations'):.0f}" for each in both),
                        format_p(p_different(tuned.scores, plain.scores)),
                    ]
                )
    if not lines:
        return "No cell has results both with settings of the suite's grid and with the defaults."
    numbers = ["Suite's settings", "Defaults", "Generations", "Generations, defaults"]
    return markdown_table(["Environment", "Algorithm", *numbers, "p"], lines, numbers=numbers)


def published_settings(suites: Sequence[Suite]) -> str:
    """Scores with the settings of the other suites and with published ones, with p-values."""
    shown = {
        (entry.cell.environment, entry.cell.algorithm): entry
        for suite in suites
        if suite.name in LINEAR
        for entry in suite.shown
    }
    found: dict[str, dict[str, str]] = {}
    for (environment, name), entry in shown.items():
        own = shown.get((environment, name.removesuffix(PUBLISHED)))
        if name.endswith(PUBLISHED) and own:
            scores = [format_number(float(iqm(each.scores))) for each in (own, entry)]
            text = f"{' → '.join(scores)} ({p_is(p_different(own.scores, entry.scores))})"
            found.setdefault(environment, {})[own.cell.algorithm] = text
    if not found:
        return ""
    names = sorted({name for own in found.values() for name in own})
    lines = [
        [
            page_link(environment, f"{ROOT}environments/"),
            *(own.get(name, NONE) for name in names),
        ]
        for environment, own in found.items()
    ]
    headings = ["Environment", *map(markdown_code, names)]
    return f"{{.results}}\n{markdown_table(headings, lines, numbers=headings[1:])}"


def beside_agents(groups: Mapping[str, Sequence[Result]]) -> str:
    """Each agent beside the best algorithm of its environment: score, tail and cost."""
    lines = []
    for rows in groups.values():
        agents, others = (
            [each for each in rows if (each.entry.spec["policy"] is None) == is_agent]
            for is_agent in (True, False)
        )
        for each in [*agents, *others[:1]] if agents and others else []:
            lines.append(
                {
                    "Environment": page_link(each.cell.environment, f"{ROOT}environments/"),
                    "Row": linked_algorithm(each, f"{ROOT}algorithms/"),
                    "Score": f"{format_number(each.cell.score)} {interval_text(each)}",
                    "Tail": format_number(each.cell.tail),
                    "Seeds": str(len(each.entry.seeds)),
                    "CPU time": format_duration(each.cell.mean_cost("cpu_time_s")),
                }
            )
    return f"{{.results}}\n{table(list(lines[0]), lines)}" if lines else ""


def best_table(
    groups: Mapping[str, Sequence[Result]], folder: str = "../", with_suites: bool = False
) -> str:
    """The best algorithm of every environment, and those that are not significantly worse."""
    lines = []
    for environment, rows in groups.items():
        if not rows:
            continue
        best = rows[0]
        equal = [each for each in rows if each.cell.score == best.cell.score]
        tied = [each for each in rows[len(equal) :] if each.standing == "tied"]
        suite = f"[{best.suite}]({folder}suites/{best.suite}.md)" if best.suite else NONE
        lines.append(
            {
                "Environment": page_link(environment, f"{folder}environments/"),
                "Score": f"{format_number(best.cell.score)} {interval_text(best)}",
                "Best": linked_names(equal, folder),
                "Suite": suite,
                BEST: format_share(best.row.chance),
                "=": linked_names(tied, folder) or NONE,
                "Seeds": seeds_text(best),
            }
        )
    headings = [each for each in lines[0] if each != "Suite" or with_suites]
    return f"{{.results .best}}\n{table(headings, lines)}"


def linked_names(rows: Sequence[Result], folder: str) -> str:
    """The names of the first rows as links, and how many more there are."""
    names = [linked_algorithm(each, f"{folder}algorithms/") for each in rows]
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


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
        [page_link(name, "../algorithms/"), *(found[name].get(each, NONE) for each in columns)]
        for name in order
    ]
    return f"{{.results}}\n{markdown_table(['Algorithm', *columns], lines, numbers=columns)}"


def across_table(suite: Suite) -> str:
    """Statistics of the algorithms that have run in each environment of a suite."""
    scores = normalized_scores([suite], suite.environments)
    lines = [
        [
            *overall_cells(item, "../"),
            format_share(item.mean),
            format_share(item.median),
            format_share(item.optimality_gap),
        ]
        for item in overall(scores)
    ]
    if not lines:
        return ""
    headings = [*OVERALL_HEADINGS, "Mean", "Median", "Optimality gap"]
    names = ", ".join(map(markdown_code, dict.fromkeys(e for own in scores.values() for e in own)))
    intro = (
        f"Normalized scores over {names}, of the algorithms with results in all of them "
        "(0: random policy, 1: published reference):"
    )
    return f"{intro}\n\n{markdown_table(headings, lines, numbers=headings[1:])}"


def overall_table(suites: Sequence[Suite], environments: Sequence[str]) -> str:
    """Normalized scores over some environments, and in each, of the algorithms in all of them."""
    scores = normalized_scores(suites, environments)
    lines = []
    for item in overall(scores):
        own = scores[item.name]
        shares = [format_share(float(iqm(own[name]))) for name in environments]
        seeds = sorted({len(own[name]) for name in environments})
        text = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        lines.append([*overall_cells(item, ROOT), *shares, text])
    if not lines:
        return ""
    headings = [
        *OVERALL_HEADINGS,
        *(page_link(name, f"{ROOT}environments/") for name in environments),
        "Seeds",
    ]
    return f"{{.results}}\n{markdown_table(headings, lines, numbers=headings[1:])}"


def overall_cells(item: Overall, folder: str) -> list[str]:
    """The name of an algorithm, and the IQM of its normalized scores with its interval."""
    interval = f"[{format_share(item.low)}, {format_share(item.high)}]"
    return [page_link(item.name, f"{folder}algorithms/"), format_share(item.iqm), interval]


def normalized_scores(
    suites: Sequence[Suite], environments: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Normalized scores by algorithm and environment, of the shown row of each cell."""
    scores: dict[str, dict[str, list[float]]] = {}
    for suite in suites:
        for environment in environments:
            for each in suite_results(suite, environment):
                if each.entry in suite.shown and each.cell.has_scale:
                    own = [*map(each.cell.normalized, each.entry.scores)]
                    scores.setdefault(each.entry.cell.algorithm, {})[environment] = own
    return scores
