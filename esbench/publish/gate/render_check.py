"""Render a check: sentences, Markdown, JUnit XML, JSON and a badge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from esbench.core.arrays import Floats
from esbench.core.escape import printable
from esbench.core.git import commit_of
from esbench.core.json_text import Json, as_text
from esbench.core.units import NONE, counted, format_number, format_percent, p_is
from esbench.publish.gate.check import (
    EXIT_INCONCLUSIVE,
    EXIT_NOT_MEASURED,
    EXIT_REGRESSION,
    EXIT_SAME,
    CheckReport,
)
from esbench.publish.gate.match_baseline import CellReport, DigestResult
from esbench.publish.history import CHECK_FORMAT
from esbench.publish.tables import render_table
from esbench.publish.tables.render_table import Sheet
from esbench.results.cell import Cell
from esbench.results.statistics.estimates import EpisodeStatistic
from esbench.results.statistics.judgment import Judgment, Verdict
from esbench.store.origin import Origin, differences_within, place_in
from esbench.store.provenance import now

MARKS: Final = {
    Verdict.NO_WORSE: "✅",
    Verdict.IMPROVEMENT: "🟢",
    Verdict.REGRESSION: "❌",
    Verdict.INCONCLUSIVE: "❔",
    Verdict.NOT_MEASURED: "⚪",
}

NOUNS: Final = (Verdict.REGRESSION, Verdict.IMPROVEMENT)

JUDGED_BY: Final[dict[EpisodeStatistic, str]] = {
    "tail": "The score of a seed is its tail: the mean of the worst 10 % of its held-out episodes.",
    "area": "The score of a seed is the area under its learning curve up to the budget, "
    "divided by the budget: the mean return of the unperturbed policy during training.",
}

OUTCOMES: Final = {
    EXIT_SAME: "PASSED: no regression",
    EXIT_REGRESSION: "FAILED: scores dropped",
    EXIT_NOT_MEASURED: "NOT MEASURED: no verdict on some cells",
    EXIT_INCONCLUSIVE: "INCONCLUSIVE: no regression found, but too few seeds to exclude one",
}


def headline(report: CheckReport) -> str:
    """The outcome in one sentence."""
    found = {verdict: number for verdict in Verdict if (number := report.count(verdict))}
    counts = ", ".join(
        counted(number, verdict.value) if verdict in NOUNS else f"{number} {verdict.value}"
        for verdict, number in found.items()
    )
    outcome = OUTCOMES[report.exit_code]
    if report.exit_code == EXIT_SAME and report.count(Verdict.INCONCLUSIVE):
        outcome = "PASSED: no regression found, but too few seeds to exclude one was allowed"
    if report.exit_code == EXIT_REGRESSION and not report.count(Verdict.REGRESSION):
        outcome = f"FAILED: {counted(report.changed, 'cell')} changed, and --exact was given"
    return f"{outcome} ({counts})"


def sentence(cell: CellReport) -> str:
    """The verdict on a cell in one sentence."""
    if cell.verdict is Verdict.NOT_MEASURED:
        return cell.reason
    if cell.verdict is Verdict.NO_WORSE and cell.digests is DigestResult.IDENTICAL:
        words = f"identical bits, {cell.digests_detail}"
    elif cell.verdict is Verdict.NO_WORSE and cell.has_same_scores:
        words = "the same score of every seed"
        if cell.digests is DigestResult.CHANGED:
            words += ", from other bits"
    else:
        words = judgment_text(cell.looks[-1])
    return f"{words}; {cell.reason}" if cell.reason else words


def judgment_text(judgment: Judgment) -> str:
    """The judgment of one look in words."""
    change, iqm_change = _in_words(judgment.change), _in_words(judgment.iqm_change)
    match judgment.verdict:
        case Verdict.REGRESSION | Verdict.IMPROVEMENT as verdict:
            dropped = verdict is Verdict.REGRESSION
            decisive = (min if dropped else max)(judgment.change, judgment.iqm_change)
            if decisive != judgment.change:
                change = f"interquartile mean {iqm_change} (mean {change})"
            return f"{change}, {p_is(judgment.p_drop if dropped else judgment.p_gain)}"
        case Verdict.NO_WORSE:
            drop = f"a drop of {format_percent(judgment.margin)}, the margin, is excluded"
            return f"{change}; {drop}, {p_is(judgment.p_margin)}"
    if fewest := judgment.seeds_to_fail:
        needed = f"with so few seeds no drop can fail; it takes {fewest} per side"
    elif math.isnan(judgment.seeds_needed):
        needed = "too near the margin to decide"
    elif math.isinf(judgment.seeds_needed):
        needed = "its scores vary so much that a thousand seeds per side would not decide"
    else:
        seeds = f"about {judgment.seeds_needed:.0f} seeds per side"
        needed = f"if nothing has changed, {seeds} are enough to exclude a drop"
    return f"{change}, {p_is(judgment.p_drop)}; {needed}"


def _in_words(change: float) -> str:
    return f"{abs(change):.1%} of the range {'lower' if change < 0 else 'higher'}"


def judged_notes(found: Iterable[Cell]) -> list[str]:
    """What the score of a seed is where it is no mean of held-out episodes.

    Cells are named where it is that of some only.
    """
    cells, lines = list(found), []
    for statistic, text in JUDGED_BY.items():
        own = [cell.title for cell in cells if cell.statistic == statistic]
        if own:
            lines.append(text if len(own) == len(cells) else f"{', '.join(own)}: {text}")
    return lines


def notes(report: CheckReport) -> list[str]:
    """The sentences below the table: the rule, changed digests, and cells without a baseline."""
    rules = report.rules
    margins = sorted({rules.margin or cell.frozen.margin for cell in report.cells})
    ends = " to ".join(dict.fromkeys(map(format_percent, (margins[0], margins[-1]))))
    rule = (
        f"A cell fails on a drop of at least its margin ({ends} of the range from random actions "
        f"to the reference), with a one-sided permutation p (Holm-corrected) of at most "
        f"{rules.level:g}; test statistics over seeds: {', '.join(rules.statistics)}; false "
        f"alarms: at most {100 * rules.alpha:g} % of checks."
    )
    lines = [rule]
    lines += judged_notes(cell.frozen for cell in report.cells)
    if report.looks:
        sizes = ", ".join(map(str, report.looks))
        lines.append(
            f"Cells are judged at {sizes} seeds, until the verdict is conclusive. Each time, the "
            "limits of p are only a part of those above; the parts add up to the whole."
        )
    if report.changed:
        lines.append(
            "changed: the digests differ from the baseline's on the same versions and processor, "
            "so the computation has changed. Only --exact fails on this."
        )
    unknown = sum(cell.digests is DigestResult.NOT_COMPARABLE for cell in report.cells)
    if report.exact and unknown:
        lines.append(
            f"--exact could not compare the digests of {unknown} of {len(report.cells)} cells."
        )
    if report.new:
        lines.append(f"Not in the baseline, so not judged: {', '.join(report.new)}.")
    return lines


def details(report: CheckReport) -> list[str]:
    """One line per cell that is not identical or has a caution."""
    lines = []
    for cell in report.cells:
        name = cell.frozen.title
        same = cell.verdict is Verdict.NO_WORSE and cell.digests is DigestResult.IDENTICAL
        if cell.reason or not same:
            lines.append(f"{name}: {cell.verdict.value}: {sentence(cell)}")
        if cell.digests is DigestResult.CHANGED:
            lines.append(f"{name}: changed: {cell.digests_detail}")
        elif cell.digests is DigestResult.NOT_COMPARABLE and cell.looks:
            lines.append(f"{name}: digests not comparable: {cell.digests_detail}")
    return lines


def as_markdown(report: CheckReport) -> str:
    """The check as Markdown, for a pull request."""
    header = ["", "Environment", "Algorithm", "Baseline (seeds)", "Now", "Change", "Verdict"]
    rows = [
        [
            MARKS[cell.verdict],
            cell.frozen.environment,
            cell.frozen.name,
            f"{mean_text(cell.baseline_scores)} ({cell.baseline_scores.size})",
            f"{mean_text(cell.scores)} ({cell.scores.size})",
            change_text(cell),
            f"{cell.verdict.value}: {sentence(cell)}",
            f"{cell.digests.value}: {cell.digests_detail}",
        ]
        for cell in report.cells
    ]
    sheet = Sheet([*header, "Digests"], rows, notes(report))
    return f"### esbench check: {headline(report)}\n\n{render_table.as_markdown(sheet)}"


def as_junit(report: CheckReport) -> str:
    """The check as JUnit XML, one test case per cell.

    A regression is a failure, an unmeasured cell an error, and an inconclusive cell is skipped.
    """
    kinds = {
        Verdict.REGRESSION: "failure",
        Verdict.NOT_MEASURED: "error",
        Verdict.INCONCLUSIVE: "skipped",
    }
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="esbench check")
    for cell in report.cells:
        environment, name = printable(cell.frozen.environment), printable(cell.frozen.name)
        classname = f"esbench.check.{environment.replace('.', '_')}"
        case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
        kind, message = kinds.get(cell.verdict), sentence(cell)
        if kind is None and report.exact and cell.digests is DigestResult.CHANGED:
            kind, message = "failure", f"changed: {cell.digests_detail}"
        if kind is not None:
            values = {"message": printable(message), "type": cell.verdict.value}
            ElementTree.SubElement(case, kind, values)
        lines = f"{cell.verdict.value}: {sentence(cell)}\ndigests: {cell.digests.value}: "
        detail = printable(lines + cell.digests_detail)
        ElementTree.SubElement(case, "system-out").text = detail
    suite.set("tests", str(len(report.cells)))
    for key, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"*/{kind}"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_json(report: CheckReport) -> str:
    """The check as JSON in full precision; NaN and infinity are null.

    It names the commit of the checkout in which it is made.
    """
    commit, date = commit_of(Path())
    return as_text(
        {
            "format": CHECK_FORMAT,
            "commit": commit,
            "commit_date": date,
            "created": now(),
            "exit_code": report.exit_code,
            "headline": headline(report),
            **vars(report.rules),
            "exact": report.exact,
            "cells": [_json_cell(cell) for cell in report.cells],
            "seeds_of_looks": list(report.looks),
            "not_in_the_baseline": list(report.new),
            "notes": notes(report),
        }
    )


def _json_cell(cell: CellReport) -> Json:
    """A cell with everything that ``esbench history`` compares.

    Lists are in the order of the seeds. A speed is in training steps per second of CPU time. A
    trial that was resumed under other versions has no digest to compare.
    """
    frozen, runs = cell.frozen, cell.runs
    origins: list[Origin] = []
    for run in runs:
        place_in(origins, run.origin)
    return {
        "environment": frozen.environment,
        "algorithm": frozen.algorithm,
        "policy": frozen.policy,
        "episode_statistic": frozen.statistic,
        "verdict": cell.verdict,
        "sentence": sentence(cell),
        "digests": cell.digests,
        "digests_detail": cell.digests_detail,
        "random_score": frozen.random_score,
        "reference_score": frozen.reference_score,
        "margin": frozen.margin,
        "baseline_scores": cell.baseline_scores.tolist(),
        "seeds": [run.seed for run in runs],
        "scores": cell.scores.tolist(),
        "speeds": [run.env_steps / run.cpu_time_s if run.cpu_time_s > 0 else None for run in runs],
        "last_digests": [
            run.folder.result().get("digest")
            if run.stored and not differences_within(run.description)
            else None
            for run in runs
        ],
        "origins": [origin.model_dump(mode="json") for origin in origins],
        "looks": [vars(look) for look in cell.looks],
    }


def as_badge(report: CheckReport) -> str:
    """The check as JSON for a badge of shields.io, in the form of its endpoints."""
    number, words, color = {
        EXIT_SAME: (0, "", "brightgreen"),
        EXIT_REGRESSION: (report.count(Verdict.REGRESSION), "dropped", "red"),
        EXIT_NOT_MEASURED: (report.count(Verdict.NOT_MEASURED), "not measured", "lightgrey"),
        EXIT_INCONCLUSIVE: (report.count(Verdict.INCONCLUSIVE), "inconclusive", "yellow"),
    }[report.exit_code]
    if words == "dropped" and not number:  # --exact
        number, words = report.changed, "changed"
    if not words and (undecided := report.count(Verdict.INCONCLUSIVE)):  # and allowed to be
        number, words, color = undecided, "inconclusive", "yellow"
    message = f"{number} of {counted(len(report.cells), 'cell')} {words}"
    return as_text(
        {
            "schemaVersion": 1,
            "label": "scores",
            "message": message if words else "no regression",
            "color": color,
            "isError": report.exit_code == EXIT_REGRESSION,
        }
    )


RENDERINGS: Final[dict[str, Callable[[CheckReport], str]]] = {
    "markdown": as_markdown,
    "junit": as_junit,
    "json": as_json,
    "badge": as_badge,
}


def mean_text(scores: Floats) -> str:
    """The mean of scores; a dash if there is none."""
    return format_number(float(scores.mean())) if scores.size else NONE


def change_text(cell: CellReport) -> str:
    """The change of a cell's mean, as a share of its range; a dash if not measured."""
    return f"{cell.looks[-1].change:+.1%}" if cell.looks else NONE
