"""The tables of the pages with results: rows of a leaderboard as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from internals import (
    BEST,
    COLUMNS,
    INTERVAL,
    NONE,
    Cell,
    Entry,
    LeaderboardRow,
    Standing,
    Suite,
    SuiteCell,
    format_duration,
    format_number,
    format_p,
    format_steps,
    leaderboard_rows,
    markdown,
    markdown_code,
    one_episode_notes,
    p_different,
    policy_words,
    standings,
)
from markdown_text import markdown_table, page_link

NUMBERS = (
    "Score", INTERVAL, BEST, "p", "Tail", "Best seen", "Normalized", "Seeds", "Steps",
    "Generations", "CPU time", "Place", "CPU time of all", "Wall-clock time of one",
)  # fmt: skip
NOT_RUN = "*not run yet*"


@dataclass(frozen=True)
class Result:
    """A row of a page, and how it compares with its group.

    Attributes:
        standing: as in ``standings``, against the best of the group.
        p_value: of a two-sided permutation test of the means against the best; not corrected.
        place: such as "2 of 9".
        planned: the number of seeds of the suite, 0 outside of one.
    """

    row: LeaderboardRow
    standing: Standing
    p_value: float
    place: str
    settings: str
    planned: int
    suite: str

    @property
    def entry(self) -> Entry:
        """The content of its file."""
        return self.row.entry

    @property
    def cell(self) -> Cell:
        """Its scores."""
        return self.row.cell


def results(
    entries: Sequence[Entry], settings: dict[str, str], planned: dict[str, int], suite: str = ""
) -> list[Result]:
    """The rows of one task in one environment, the best score first.

    ``settings`` and ``planned`` are by the names of the entries' files.
    """
    rows = leaderboard_rows(entries)
    marks = standings([row.cell.scores for row in rows])
    return [
        Result(
            row=row,
            standing=marks[number - 1] if number > 1 else "best",
            p_value=p_different(rows[0].cell.scores, row.cell.scores),
            place=f"{number} of {len(rows)}",
            settings=settings.get(row.entry.file_name, NONE),
            planned=planned.get(row.entry.file_name, 0),
            suite=suite,
        )
        for number, row in enumerate(rows, start=1)
    ]


def suite_results(suite: Suite, environment: str) -> list[Result]:
    """The rows of one environment of a suite."""
    cells = [cell for cell in suite.cells if cell.environment == environment]
    found = [(cell, *pair) for cell in cells for pair in cell.entries]
    settings = {entry.file_name: str(origin) for _, entry, origin in found}
    planned = {entry.file_name: len(cell.planned) for cell, entry, _ in found}
    return results([entry for _, entry, _ in found], settings, planned, suite.name)


def task_of(entry: Entry) -> str:
    """The policy and the budget of an entry in words."""
    spec: dict[str, Any] = entry.spec
    policy = "own policy" if spec["policy"] is None else policy_words(entry)
    return f"{policy}, {format_steps(spec['budget']['env_steps'])} steps"


def linked_algorithm(result: Result, folder: str) -> str:
    """The name of a row's algorithm as a link to its page of results."""
    return page_link(result.entry.cell.algorithm, folder, result.cell.algorithm)


def suite_link(result: Result) -> str:
    """The suite of a row as a link to its page."""
    return f"[{result.suite}](../suites/{result.suite}.md)" if result.suite else NONE


def score_text(result: Result) -> str:
    """The score: bold if it is the best, with = if it is not significantly worse."""
    score = format_number(result.cell.score)
    return {"best": f"**{score}**", "tied": f"{score} ="}.get(result.standing, score)


def written(result: Result) -> dict[str, str]:
    """The texts of a row by the headings of the leaderboard."""
    return {each.heading: each.text(each.of(result.row)) for each in COLUMNS if each.heading}


def interval_text(result: Result) -> str:
    """The 95 % interval."""
    return written(result)[INTERVAL]


def seeds_text(result: Result) -> str:
    """The number of seeds, and of those planned if these are more."""
    done = len(result.entry.seeds)
    return f"{done}/{result.planned}" if done < result.planned else str(done)


def number_cells(result: Result) -> dict[str, str]:
    """The numbers of a row by heading."""
    texts = written(result)
    return {
        "Score": score_text(result),
        INTERVAL: interval_text(result),
        BEST: texts[BEST],
        "p": NONE if result.standing == "best" else format_p(result.p_value),
        **{name: texts[name] for name in ("Tail", "Best seen", "Normalized")},
        "Seeds": seeds_text(result),
        **{name: texts[name] for name in ("Steps", "Generations", "CPU time")},
        "Settings": result.settings,
    }


def combined(groups: Sequence[Sequence[Result]]) -> list[Result]:
    """The rows of several groups of one environment as one, the best score first."""
    found = {each.entry.file_name: each for own in groups for each in own}
    rows = results(
        [each.entry for each in found.values()],
        {file: each.settings for file, each in found.items()},
        {file: each.planned for file, each in found.items()},
    )
    return [replace(each, suite=found[each.entry.file_name].suite) for each in rows]


def environment_table(
    rows: Sequence[Result], missing: Iterable[SuiteCell] = (), with_suites: bool = False
) -> str:
    """The rows of one environment, then the algorithms that have not run."""
    lines = [
        {
            "Algorithm": linked_algorithm(each, "../algorithms/"),
            **dict.fromkeys(("Score", INTERVAL), ""),
            "Suite": suite_link(each),
            "Task": markdown(task_of(each.entry)),
        }
        | number_cells(each)
        for each in rows
    ]
    headings = [n for n in lines[0] if with_suites or n not in {"Suite", "Task"}]
    for cell in missing:
        absent = {"Algorithm": f"`{cell.algorithm}`", "Score": NOT_RUN}
        absent["Seeds"] = f"0/{len(cell.planned)}"
        lines.append(dict.fromkeys(headings, "") | absent)
    return "\n\n".join([f"{{.results}}\n{table(headings, lines)}", *one_episode_texts(rows)])


def algorithm_table(rows: Sequence[Result]) -> str:
    """The rows of one algorithm."""
    lines = [
        {
            "Environment": page_link(each.cell.environment, "../environments/"),
            **dict.fromkeys(("Score", INTERVAL), ""),
            "Task": markdown(task_of(each.entry)),
            "Suite": suite_link(each),
            "Place": each.place,
        }
        | number_cells(each)
        for each in rows
    ]
    return "\n\n".join([f"{{.results}}\n{table(list(lines[0]), lines)}", *one_episode_texts(rows)])


def one_episode_texts(rows: Sequence[Result]) -> list[str]:
    """The footnote about rows whose held-out episodes are all the same one, if any."""
    return list(map(markdown, one_episode_notes([each.row for each in rows])))


def table(headings: Sequence[str], lines: Sequence[dict[str, str]]) -> str:
    """A Markdown table of rows by heading."""
    cells = [[line[heading] for heading in headings] for line in lines]
    return markdown_table(headings, cells, numbers=NUMBERS)


def details(rows: Sequence[Result], named: bool = False) -> str:
    """How each row was made, in a block that opens on a click.

    ``named``: the rows are of several environments.
    """
    commands: dict[str, int] = {}
    origins: dict[str, int] = {}
    lines = [
        {
            "Row": " on ".join(
                map(markdown_code, (each.cell.algorithm, *[each.cell.environment] * named))
            ),
            "Command": numbers_of(each.entry.commands, commands),
            "Made with": numbers_of(origin_texts(each.entry), origins),
            "Trained seeds": ", ".join(map(str, each.entry.seeds)),
            "CPU time of all": format_duration(
                each.cell.mean_cost("cpu_time_s") * len(each.entry.runs)
            ),
            "Wall-clock time of one": format_duration(each.cell.mean_cost("wall_time_s")),
            "File": markdown_code(each.entry.file_name),
        }
        for each in rows
    ]
    parts = [
        ":::{dropdown} Commands, commit, versions, hardware and cost",
        f"{{.results}}\n{table(list(lines[0]), lines)}",
        "Commands:",
        "\n".join(f"{number}. {markdown_code(text)}" for text, number in commands.items()),
        "Made with:",
        "\n".join(f"{number}. {markdown(text)}" for text, number in origins.items()),
        "`esbench verify --sample K` trains K random trials of the leaderboard again.",
    ]
    return "\n\n".join(parts) + "\n:::"


def numbers_of(texts: Iterable[str], known: dict[str, int]) -> str:
    """The numbers of some texts in a list of all, which grows by new ones."""
    found = dict.fromkeys(known.setdefault(text, len(known) + 1) for text in texts)
    return ", ".join(map(str, found)) or NONE


def origin_texts(entry: Entry) -> list[str]:
    """Commit, hardware and versions of the trials of an entry."""
    texts = []
    for origin in entry.origins:
        hardware = origin.hardware
        cores = f", {hardware['cores']} cores" if hardware.get("cores") else ""
        versions = ", ".join(f"{name} {text}" for name, text in origin.versions.items() if text)
        cpu = hardware.get("cpu", NONE)
        texts.append(f"commit {origin.git_commit or NONE}; {cpu}{cores}; {versions}")
    return texts
