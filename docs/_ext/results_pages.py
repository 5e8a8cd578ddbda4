"""Writes the pages with results from the files of the leaderboard, before Sphinx reads the pages.

One page per suite, environment and algorithm, and parts that other pages include. Neither the pages
nor their figures are committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from internals import (
    DISTINCT_LABELS,
    Entry,
    Film,
    Output,
    Suite,
    SuiteCell,
    UsageError,
    counted,
    environment_names,
    environment_versions,
    films_of,
    load_environment,
    markdown,
    markdown_code,
    one_line,
    read_films,
    read_leaderboard,
    read_suite,
    safe_name,
    suite_drawings,
    suite_names,
)
from markdown_text import escaped, index_page, markdown_table, page, page_link, sentence
from results_parts import across_table, best_table, parts, score_matrix
from results_tables import (
    NOT_RUN,
    Result,
    algorithm_table,
    combined,
    details,
    environment_table,
    results,
    suite_results,
    task_of,
)

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RESULTS = Path(__file__).resolve().parent.parent / "results"
LEADERBOARD = RESULTS.parent.parent / "results" / "leaderboard"
EQUATIONS = RESULTS.parent / "reference" / "equations"
FOLDERS = ("suites", "environments", "algorithms", "parts", "figures")
FIGURES = {
    "curves": "Learning curves",
    "profile": "Performance profile",
    "ranks": "Rank of the unperturbed policy",
    "tails": "Tail against median",
    "best-seen": "Best seen in training against final score",
}
MEANING = (
    "**Bold**: the best score. =: not significantly worse, by a test that is corrected for the "
    "number of rows. p: of the test against the best, not corrected. The columns are explained in "
    "[](../index.md)."
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Generate when the builder is ready; pages are read afterwards."""
    app.connect("builder-inited", lambda _: generate(), priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate(leaderboard: Path = LEADERBOARD, out: Path = RESULTS) -> None:
    """Write every page and figure; one that has not changed is left alone, an old one is removed.

    Raises:
        UsageError: a file of the leaderboard is wrong.
    """
    entries = read_leaderboard(leaderboard)
    suites = [read_suite(name, entries) for name in suite_names()]
    groups = grouped(suites, entries)
    drawn = {suite.name: suite_drawings(suite) if suite.shown else {} for suite in suites}
    files = {
        f"figures/{suite}-{name}.png": drawing.files(Output(("png",)))["png"]
        for suite, drawings in drawn.items()
        for name, drawing in drawings.items()
    }
    pages = distinct_pages(
        [
            *suite_pages(suites, drawn),
            *environment_pages(groups, read_films(leaderboard)),
            *algorithm_pages(groups),
        ]
    )
    pages |= parts(suites, groups, drawn)
    files |= {f"{name}.md": text.encode() for name, text in pages.items()}
    for folder in FOLDERS:
        (out / folder).mkdir(parents=True, exist_ok=True)
        for old in (out / folder).iterdir():
            if f"{folder}/{old.name}" not in files:
                old.unlink()
    for name, content in files.items():
        path = out / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def distinct_pages(pages: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The pages by name; UsageError if two labels of the leaderboard have the same page."""
    found: dict[str, str] = {}
    for name, text in pages:
        if name.lower() in map(str.lower, found):  # some file systems ignore the case
            raise UsageError(
                f"two labels of the leaderboard have the page {name}; {DISTINCT_LABELS}"
            )
        found[name] = text
    return found


def grouped(suites: Sequence[Suite], entries: Sequence[Entry]) -> dict[str, list[list[Result]]]:
    """The groups of rows of each environment: a suite's, then those of tasks of no suite."""
    groups: dict[str, list[list[Result]]] = {}
    known = set()
    for suite in suites:
        for environment in suite.environments:
            if found := suite_results(suite, environment):
                groups.setdefault(environment, []).append(found)
                known |= {each.entry.file_name for each in found}
    others: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.file_name not in known:
            others.setdefault((entry.cell.environment, task_of(entry)), []).append(entry)
    for (environment, _), own in others.items():
        groups.setdefault(environment, []).append(results(own, {}, {}))
    return dict(sorted(groups.items()))


# Suites


def suite_pages(
    suites: Sequence[Suite], drawn: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str]]:
    """A page for every suite, and their index."""
    lines = []
    for suite in suites:
        yield f"suites/{suite.name}", suite_page(suite, drawn[suite.name])
        name = f"[`{suite.name}`]({suite.name}.md)"
        lines.append([name, escaped(sentence(suite.description)), progress(suite)])
    intro = (
        "A suite is a named grid: `esbench run SUITE` trains all of it, `esbench plan SUITE` says "
        "what that costs.\n"
    )
    table = markdown_table(["Suite", "What", "Done"], lines)
    yield "suites/index", index_page("By suite", intro, table, [suite.name for suite in suites])


def progress(suite: Suite) -> str:
    """How many cells and seeds of a suite have results."""
    planned = [cell for cell in suite.cells if cell.planned]
    cells = sum(cell.shown is not None for cell in planned)
    seeds = sum(len(cell.planned) for cell in planned)
    done = seeds - sum(len(cell.missing) for cell in planned)
    return f"{cells} of {counted(len(planned), 'cell')}, {done:,} of {seeds:,} seeds"


def suite_page(suite: Suite, drawn: Collection[str]) -> str:
    """The page of one suite, with the figures that are drawn."""
    tables = {name: suite_results(suite, name) for name in suite.environments}
    done = any(tables.values())
    complete = not any(cell.missing for cell in suite.cells)
    state = "Complete" if complete else "**Incomplete**" if done else f"**{NOT_RUN}**"
    text = [
        f"# {suite.name}",
        f"{escaped(sentence(suite.description))} {state}: {progress(suite)}.",
        f"```console\n$ esbench plan {suite.name}\n$ esbench run {suite.name}\n```",
        settings_text(suite),
    ]
    if done:
        text += ["## Best algorithms", best_table(tables), "## Scores", score_matrix(suite)]
        text += [MEANING, across_table(suite)]
        text += [
            f"## {title}\n\n```{{image}} ../figures/{suite.name}-{name}.png\n"
            f":alt: {title}, {suite.name}\n```"
            for name, title in FIGURES.items()
            if name in drawn
        ]
    for environment, rows in tables.items():
        absent = [c for c in suite.cells if c.environment == environment and not c.shown]
        text.append(f"## {environment}")
        text += [environment_table(rows, absent), MEANING, details(rows)] if rows else []
        text += [] if rows else [f"Not run yet: {planned_text(absent)}."]
    return page(text)


def planned_text(cells: Sequence[SuiteCell]) -> str:
    """The algorithms of some cells with the number of their seeds."""
    groups: dict[int, list[str]] = {}
    for cell in cells:
        groups.setdefault(len(cell.planned), []).append(f"`{cell.algorithm}`")
    return "; ".join(f"{', '.join(own)} ({counted(n, 'seed')} each)" for n, own in groups.items())


def settings_text(suite: Suite) -> str:
    """How many rows are tuned, and how many have the settings of a file or the defaults."""
    origins = [str(origin) for cell in suite.cells for _, origin in cell.entries]
    if not origins:
        return ""
    counts = ", ".join(f"{origins.count(each)} {each}" for each in dict.fromkeys(sorted(origins)))
    return (
        f"Settings of the {counted(len(origins), 'row')}: {counts}. *suite*: some are in the "
        "suite's grid, as tuned ones are. *file*: some are those of the environment's file in "
        "`envs/`. *defaults*: those of the algorithm. *other*: none of these."
    )


# Environments and algorithms


def environment_pages(
    groups: dict[str, list[list[Result]]], films: Sequence[Film]
) -> Iterator[tuple[str, str]]:
    """A page for every environment with results, and their index."""
    lines = []
    for environment, own in groups.items():
        every = combined(own)
        text = [f"# {markdown(environment)}", linked_environment_file(environment)]
        text += [versions_text(environment), films_text(every, films)]
        if len(own) > 1:
            text += ["## All rows", environment_table(every, with_suites=True), MEANING]
        for rows in own:
            suite = rows[0].suite
            where = f" of the suite [{suite}](../suites/{suite}.md)" if suite else ""
            searches = [row.entry for row in rows if row.entry.spec["policy"] is not None]
            task = task_of((searches or [rows[0].entry])[0])
            text += [f"## {markdown(f'{suite}: {task}' if suite else task)}"]
            text += [f"{counted(len(rows), 'row')}{where}."]
            text += [environment_table(rows), MEANING, details(rows)]
        yield f"environments/{safe_name(environment)}", page(text)
        equal = [each for each in every if each.cell.score == every[0].cell.score]
        best = "; ".join(
            f"{markdown_code(each.cell.algorithm)} {markdown(f'({task_of(each.entry)})')}"
            for each in equal
        )
        lines.append([page_link(environment, ""), best])
    table = markdown_table(["Environment", "Best score"], lines)
    yield (
        "environments/index",
        index_page(
            "By environment",
            "Each page has all rows of one environment.\n",
            table,
            list(groups),
        ),
    )


def versions_text(environment: str) -> str:
    """Whether scores of other versions of an environment are comparable; nothing if unknown."""
    words = {"yes": "comparable", "roughly": "roughly comparable", "no": "not comparable"}
    versions = environment_versions(environment).items()
    if not versions:
        return ""
    found = "; ".join(f"{name} {words[other.comparable]}" for name, other in versions)
    link = f"../../reference/environments/{safe_name(environment)}.md#other-versions"
    return f"Scores of other versions: {found} ([differences]({link}))."


def films_text(rows: Sequence[Result], films: Sequence[Film]) -> str:
    """The films of the rows of an environment, or why there is none."""
    shown = [(row, film) for row in rows for film in films_of(row.entry, films)]
    if not shown:
        has_policies = any(row.entry.policies for row in rows)
        return "No film: " + (
            "`python plots/films.py` has not been run since its policies were published."
            if has_policies
            else "no policies of this environment are published yet."
        )
    figures = [
        f'<figure><img src="../../_static/{quote(film.file_name)}" loading="lazy" '
        f'alt="{plain(row.cell.title)}"><figcaption>{plain(row.cell.algorithm)}: '
        f"{plain(film.caption)}<br><code>{plain(film.command)}</code></figcaption></figure>"
        for row, film in shown
    ]
    return f'```{{raw}} html\n<div class="films">{"".join(figures)}</div>\n```'


def plain(text: str) -> str:
    """Text for HTML in a fenced block."""
    return escape(one_line(text)).replace("`", "&#96;")


def algorithm_pages(groups: dict[str, list[list[Result]]]) -> Iterator[tuple[str, str]]:
    """A page for every algorithm with results, and their index."""
    found: dict[str, list[Result]] = {}
    for each in (row for own in groups.values() for rows in own for row in rows):
        found.setdefault(each.entry.cell.algorithm, []).append(each)
    lines = []
    for name, rows in sorted(found.items()):
        own = rows[0].entry.algorithm
        text = [f"# {markdown(name)}", linked_reference(own), linked_labels(own, found)]
        text += [algorithm_table(rows), MEANING]
        yield f"algorithms/{safe_name(name)}", page([*text, details(rows, named=True)])
        best = sum(row.standing == "best" for row in rows)
        tied = sum(row.standing == "tied" for row in rows)
        lines.append([page_link(name, ""), str(len(rows)), str(best), str(tied)])
    headings = ["Algorithm", "Rows", "Best", "Not significantly worse"]
    table = markdown_table(headings, lines, numbers=headings[1:])
    intro = "Each page has all rows of one label of an algorithm.\n"
    yield "algorithms/index", index_page("By algorithm", intro, table, sorted(found))


def linked_labels(algorithm: str, found: Mapping[str, Sequence[Result]]) -> str:
    """Links to the pages of all labels of an algorithm; nothing if there is only one."""
    labels = [
        label for label, rows in sorted(found.items()) if rows[0].entry.algorithm == algorithm
    ]
    if len(labels) < 2:
        return ""
    links = ", ".join(page_link(label, "") for label in labels)
    return f"Labels of {markdown_code(algorithm)}, by settings or training: {links}."


def linked_reference(algorithm: str) -> str:
    """A link to the page of an algorithm's settings, if there is one."""
    known = algorithm in {path.stem for path in EQUATIONS.glob("*.md")}
    link = page_link(algorithm, "../../reference/algorithms/")
    return f"Equations and settings: {link}." if known else ""


def linked_environment_file(environment: str) -> str:
    """What an environment is, with a link to its page; nothing if it has none."""
    if environment not in environment_names():
        return ""
    link = page_link(environment, "../../reference/environments/")
    described = escaped(sentence(load_environment(environment).description))
    return f"{described} Settings and published scores: {link}."
