"""Pairs of rows with their p-values, rows without some seeds, and what to expect."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from internals import (
    Entry,
    Suite,
    format_duration,
    format_number,
    format_p,
    format_steps,
    iqm,
    markdown_code,
    p_different,
)
from markdown_text import markdown_table
from results_tables import Result, suite_results

# What is compared, and the names of the files of both rows.
PAIRS = (
    ("`openai_es`: network 64-64, linear", "HalfCheetah-v5-openai_es-42867917",
     "HalfCheetah-v5-openai_es-5f60b056"),
    ("network 64-64: `openai_es`, `snes`", "HalfCheetah-v5-openai_es-42867917",
     "HalfCheetah-v5-snes-de45aa60"),
    ("`ppo`, `openai_es_short`", "HalfCheetah-v5-ppo-2a44c961",
     "HalfCheetah-v5-openai_es_short-2b6df4c9"),
    ("`openai_es`: network 64-64, linear", "Hopper-v5-openai_es-6bb25f15",
     "Hopper-v5-openai_es-ca36cc48"),
    ("`openai_es`: network 64-64, linear with the same settings",
     "Hopper-v5-openai_es-6bb25f15", "Hopper-v5-openai_es-c7e3a423"),
    ("`openai_es`, linear: settings of the network, settings of the suite",
     "Hopper-v5-openai_es-c7e3a423", "Hopper-v5-openai_es-ca36cc48"),
    ("network 64-64: `openai_es`, `snes`", "Hopper-v5-openai_es-6bb25f15",
     "Hopper-v5-snes-8ee18c86"),
    ("`ppo`, `csa_es`", "Walker2d-v5-ppo-e77f7cf6", "Walker2d-v5-csa_es-b76f0e4c"),
    ("`csa_es`, `cma_es_wong`", "Walker2d-v5-csa_es-b76f0e4c",
     "Walker2d-v5-cma_es_wong-baa10a46"),
    ("`ppo`, `csa_es`", "Swimmer-v5-ppo-0a198e5e", "Swimmer-v5-csa_es-649f6aef"),
    ("`ppo`, `openai_es`", "InvertedDoublePendulum-v5-ppo-e08e601f",
     "InvertedDoublePendulum-v5-openai_es-4a4e6e45"),
    ("`snes`: 40 members, default", "InvertedDoublePendulum-v5-snes-e74ea67d",
     "InvertedDoublePendulum-v5-snes-7bb9f73d"),
)  # fmt: skip

# Rows whose settings were chosen on some of their seeds.
CHOSEN_ON = {
    "LunarLander-v3-openai_es-4efbd33a": (0, 1),
    "LunarLander-v3-csa_es-970b492f": (0, 1),
    "HalfCheetah-v5-openai_es-42867917": (0, 1, 3),
    "Hopper-v5-openai_es-6bb25f15": (0,),
}

EXPECTED = ("csa_es", "openai_es")  # algorithms with columns of their own


def compared(entries: Sequence[Entry]) -> str:
    """The scores of each pair of these entries, and the p-value of a test of their means."""
    found = by_name(entries)
    lines = []
    for text, *names in PAIRS:
        if not all(name in found for name in names):
            continue
        first, second = (found[name] for name in names)
        scores = (format_number(float(iqm(each.scores))) for each in (first, second))
        p = format_p(p_different(first.scores, second.scores))
        lines.append([first.cell.environment, text, *scores, p])
    headings = ["Environment", "First, second", "First", "Second", "p"]
    return f"{{.results}}\n{markdown_table(headings, lines, numbers=headings[2:])}"


def without_chosen(entries: Sequence[Entry]) -> str:
    """The scores of rows with and without the seeds on which their settings were chosen."""
    found = by_name(entries)
    lines = []
    for entry, seeds in ((found[name], own) for name, own in CHOSEN_ON.items() if name in found):
        others = [s for seed, s in zip(entry.seeds, entry.scores, strict=True) if seed not in seeds]
        lines.append(
            [
                f"{entry.cell.environment}, {markdown_code(entry.cell.algorithm)}",
                ", ".join(map(str, seeds)),
                *(format_number(float(iqm(scores))) for scores in (entry.scores, others)),
            ]
        )
    headings = ["Row", "Seeds", "All seeds", "Without them"]
    return markdown_table(headings, lines, numbers=headings[2:])


def by_name(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Entries by the names of their files, without the suffix."""
    return {entry.file_name.removesuffix(".json"): entry for entry in entries}


def expected(
    suites: Sequence[Suite], environments: Collection[str], best: Mapping[str, Sequence[Result]]
) -> str:
    """The scores of two algorithms in each environment, beside those of the best rows."""
    lines = []
    for name in environments:
        own = {
            each.entry.cell.algorithm: each
            for suite in suites
            for each in suite_results(suite, name)
            if each.entry in suite.shown
        }
        if not all(algorithm in own for algorithm in EXPECTED):
            continue
        shown = own[EXPECTED[0]]
        lines.append(
            [
                name,
                format_steps(shown.entry.spec["budget"]["env_steps"]),
                format_number(shown.cell.random_score),
                *(format_number(own[algorithm].cell.score) for algorithm in EXPECTED),
                best_words(best[name], shown.suite),
                format_duration(shown.cell.mean_cost("cpu_time_s")),
            ]
        )
    names = list(map(markdown_code, EXPECTED))
    numbers = ["Steps", "Random actions", *names, f"CPU time of {names[0]} per seed"]
    headings = ["Environment", *numbers[:-1], "Best rows", numbers[-1]]
    return markdown_table(headings, lines, numbers=numbers)


def best_words(rows: Sequence[Result], suite: str) -> str:
    """The best row, and the best search if that is an agent; suites other than this are named."""
    best = [each for each in rows if each.cell.score == rows[0].cell.score]
    if len(best) > 1:
        return f"{format_number(best[0].cell.score)} ({len(best)} rows)"
    if best[0].cell.is_agent:
        best += [each for each in rows if not each.cell.is_agent][:1]
    return ", ".join(
        f"{format_number(each.cell.score)} {markdown_code(each.entry.cell.algorithm)}"
        + (f" ({each.suite})" if each.suite not in {"", suite} else "")
        for each in best
    )
