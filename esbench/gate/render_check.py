"""A check in words: for the terminal, a pull request, a CI server (JUnit XML) and a program."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from esbench.analysis.gate import Judgement, Verdict
from esbench.analysis.statistics import Floats
from esbench.gate.check import (
    EXIT_INCONCLUSIVE,
    EXIT_NOT_MEASURED,
    EXIT_REGRESSION,
    CellReport,
    Report,
)
from esbench.gate.match_baseline import Trace
from esbench.store.seed_groups import cell_name
from esbench.units import NONE, counted, format_number

if TYPE_CHECKING:
    from rich.table import Table

STYLES: Final = {
    Verdict.NO_WORSE: "green",
    Verdict.IMPROVEMENT: "bold green",
    Verdict.REGRESSION: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_MEASURED: "magenta",
}
MARKS: Final = {
    Verdict.NO_WORSE: "✅",
    Verdict.IMPROVEMENT: "🟢",
    Verdict.REGRESSION: "❌",
    Verdict.INCONCLUSIVE: "❔",
    Verdict.NOT_MEASURED: "⚪",
}


def headline(report: Report) -> str:
    """Return the outcome in one sentence."""
    counts = ", ".join(
        f"{number} {verdict.value}" for verdict in Verdict if (number := report.count(verdict))
    )
    match report.exit_code:
        case code if code == EXIT_REGRESSION and not report.count(Verdict.REGRESSION):
            outcome = (
                f"FAILED: {counted(report.changed, 'cell')} changed, and --exact was asked for"
            )
        case code if code == EXIT_REGRESSION:
            outcome = "FAILED: scores dropped"
        case code if code == EXIT_NOT_MEASURED:
            outcome = "NOT MEASURED: no verdict on some cells"
        case code if code == EXIT_INCONCLUSIVE:
            outcome = "INCONCLUSIVE: no regression found, but too few seeds to exclude one"
        case _:
            outcome = "PASSED: no regression"
    return f"{outcome} ({counts})"


def sentence(cell: CellReport) -> str:
    """Return what is known of a cell's scores in words."""
    if cell.verdict is Verdict.NOT_MEASURED:
        return cell.reason
    if cell.verdict is Verdict.NO_WORSE and cell.trace is Trace.IDENTICAL:
        words = f"bit for bit the same, {cell.trace_detail}"
    else:
        words = judgement_text(cell.stages[-1])
    if len(cell.stages) > 1:
        words = f"fresh seeds: {words}"
    return f"{words}; {cell.reason}" if cell.reason else words


def judgement_text(judgement: Judgement) -> str:
    """Return what a stage says of a cell in words."""
    direction = "lower" if judgement.change < 0 else "higher"
    change = f"{abs(judgement.change):.1%} of the range {direction}"
    match judgement.verdict:
        case Verdict.REGRESSION:
            return f"{change}, p = {judgement.p_drop:.2g}"
        case Verdict.IMPROVEMENT:
            return f"{change}, p = {judgement.p_gain:.2g}"
        case Verdict.NO_WORSE:
            return f"{change}; a drop of the margin is excluded, p = {judgement.p_margin:.2g}"
        case _:
            return f"{change}, p = {judgement.p_drop:.2g}; {_needed(judgement)}"


def notes(report: Report) -> list[str]:
    """Return the sentences below the table: the rule, the digests, and what was left out."""
    rules = report.rules
    stages = " in two stages" if rules.stages == 2 else ""
    rule = (
        f"A cell fails on a drop of at least {100 * rules.margin:g} % of the range from random "
        f"actions to the reference, with a one-sided permutation p (Holm-corrected) of at most "
        f"{rules.level:g}{stages}; false alarms: at most {100 * rules.alpha:g} % of checks."
    )
    lines = [rule]
    if report.changed:
        lines.append(
            "changed: the digests are not the baseline's on the same versions and processor, so "
            "what is computed has changed; --exact fails on that alone."
        )
    if report.new:
        lines.append(f"Not in the baseline, not judged: {', '.join(report.new)}.")
    return lines


def rich_table(report: Report) -> Table:
    """Return the cells as a table for a terminal of 80 columns or more."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("cell", overflow="fold")
    for name in ("baseline", "now", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("digests", no_wrap=True)
    for cell in report.cells:
        table.add_row(
            Text(cell.frozen.name),
            _mean(cell.baseline_scores),
            _mean(cell.scores),
            _change(cell),
            Text(cell.verdict.value, STYLES[cell.verdict]),
            Text(cell.trace.value, "yellow" if cell.trace is Trace.CHANGED else "dim"),
        )
    return table


def details(report: Report) -> list[str]:
    """Return a line for each cell that needs one."""
    lines = []
    for cell in report.cells:
        if not (cell.verdict is Verdict.NO_WORSE and cell.trace is Trace.IDENTICAL):
            lines.append(f"{cell.frozen.name}: {cell.verdict.value}: {sentence(cell)}")
        if cell.trace is Trace.CHANGED:
            lines.append(f"{cell.frozen.name}: changed: {cell.trace_detail}")
        elif cell.trace is Trace.NOT_COMPARABLE and cell.stages:
            lines.append(f"{cell.frozen.name}: digests not comparable: {cell.trace_detail}")
    return lines


def as_markdown(report: Report) -> str:
    """Return the check as Markdown, for a pull request."""
    lines = [
        f"### esbench check: {headline(report)}",
        "",
        "| | Environment | Algorithm | Baseline (seeds) | Now | Change | Verdict | Digests |",
        "| :-- | :-- | :-- | --: | --: | --: | :-- | :-- |",
    ]
    for cell in report.cells:
        frozen = cell.frozen
        texts = [
            MARKS[cell.verdict],
            frozen.environment,
            cell_name(frozen.algorithm, frozen.policy),
            f"{_mean(cell.baseline_scores)} ({cell.baseline_scores.size})",
            f"{_mean(cell.scores)} ({cell.scores.size})",
            _change(cell),
            f"**{cell.verdict.value}**: {sentence(cell)}",
            f"{cell.trace.value}: {cell.trace_detail}",
        ]
        lines.append("| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(report))]) + "\n"


def as_junit(report: Report) -> str:
    """Return the check as JUnit XML: a test case a cell.

    A regression is a failure, what was not measured an error, what is inconclusive skipped.
    """
    kinds = {
        Verdict.REGRESSION: "failure",
        Verdict.NOT_MEASURED: "error",
        Verdict.INCONCLUSIVE: "skipped",
    }
    cases = []
    for cell in report.cells:
        frozen = cell.frozen
        case = ElementTree.Element(
            "testcase",
            classname=f"esbench.check.{frozen.environment.replace('.', '_')}",
            name=cell_name(frozen.algorithm, frozen.policy),
        )
        kind, message = kinds.get(cell.verdict), sentence(cell)
        if kind is None and report.exact and cell.trace is Trace.CHANGED:
            kind, message = "failure", f"changed: {cell.trace_detail}"
        if kind is not None:
            ElementTree.SubElement(case, kind, message=message, type=cell.verdict.value)
        lines = f"{cell.verdict.value}: {sentence(cell)}\ndigests: {cell.trace.value}: "
        ElementTree.SubElement(case, "system-out").text = lines + cell.trace_detail
        cases.append(case)
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in kinds.values()}
    suite = ElementTree.Element(
        "testsuite",
        name="esbench check",
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_json(report: Report) -> str:
    """Return everything that is known, in full precision; NaN and infinity are null."""
    content = {
        "exit_code": report.exit_code,
        "headline": headline(report),
        "alpha": report.rules.alpha,
        "margin": report.rules.margin,
        "stages": report.rules.stages,
        "exact": report.exact,
        "cells": [_json_cell(cell) for cell in report.cells],
        "not_in_the_baseline": list(report.new),
        "notes": notes(report),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _json_cell(cell: CellReport) -> dict[str, Any]:
    frozen = cell.frozen
    return {
        "environment": frozen.environment,
        "algorithm": frozen.algorithm,
        "policy": frozen.policy,
        "verdict": cell.verdict.value,
        "sentence": sentence(cell),
        "digests": cell.trace.value,
        "digests_detail": cell.trace_detail,
        "random_score": frozen.random_score,
        "reference_score": frozen.reference_score,
        "baseline_scores": cell.baseline_scores.tolist(),
        "seeds": list(cell.seeds),
        "scores": cell.scores.tolist(),
        "stages": [_json_stage(stage) for stage in cell.stages],
    }


def _json_stage(stage: Judgement) -> dict[str, Any]:
    values = {**vars(stage), "verdict": stage.verdict.value}
    bad = (key for key, value in values.items() if isinstance(value, float))
    return values | {key: None for key in bad if not math.isfinite(values[key])}


def _needed(judgement: Judgement) -> str:
    if math.isnan(judgement.seeds_needed):
        return "too near the margin to call"
    if math.isinf(judgement.seeds_needed):
        return "its scores differ so much that a thousand seeds would not tell"
    return f"about {judgement.seeds_needed:.0f} seeds on both sides would tell"


def _mean(scores: Floats) -> str:
    return format_number(float(scores.mean())) if scores.size else NONE


def _change(cell: CellReport) -> str:
    return f"{cell.stages[-1].change:+.1%}" if cell.stages else NONE
