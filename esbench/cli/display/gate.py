"""Prints baselines, checks and their history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from esbench.cli.console import print_sheet, show
from esbench.cli.display.tables import plain_table
from esbench.core.units import counted, format_number
from esbench.results.statistics.judgment import MARGIN, GateRules, Verdict, seeds_to_fail

if TYPE_CHECKING:  # slow to import
    from esbench.publish.gate.baselines import Baseline, FrozenCell
    from esbench.publish.gate.check import CheckReport
    from esbench.publish.gate.suggest import Suggestion
    from esbench.publish.history import CellHistory

VERDICT_STYLES: Final = {
    Verdict.NO_WORSE: "green",
    Verdict.IMPROVEMENT: "bold green",
    Verdict.REGRESSION: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_MEASURED: "magenta",
}


def print_baseline(baseline: Baseline, path: Path) -> None:
    """Print the contents of a baseline."""
    from esbench.publish.gate.render_check import judged_notes

    table = plain_table("cell", "seeds", "mean", "random", "reference")
    for cell in baseline.cells:
        numbers = (float(np.mean(cell.scores)), cell.random_score, cell.reference_score)
        table.add_row(Text(cell.name), str(len(cell.trials)), *map(format_number, numbers))
    show(table)
    for note in judged_notes(baseline.cells):
        show(note)
    for cell in baseline.cells:
        if cell.diverged:
            show(f"{cell.name}: {counted(cell.diverged, 'run')} diverged, counted as the worst.")
    sources = dict.fromkeys((cell.environment, cell.reference_source) for cell in baseline.cells)
    for environment, source in sources:
        show(f"Reference of {environment}: {source}.")
    least = seeds_to_fail(GateRules(), len(baseline.cells))
    if few := [cell.name for cell in baseline.cells if len(cell.trials) < least]:
        show(
            f"With fewer than {least} seeds a check with as many seeds cannot detect a drop: "
            f"{', '.join(few)}."
        )
    if equal := [cell.name for cell in baseline.cells if _all_equal(cell)]:
        show(
            "All seeds have the same score, so slower learning that still reaches it is not "
            f"noticed; expected a smaller budget or --statistic area: {', '.join(equal)}."
        )
    if weak := [cell.name for cell in baseline.cells if _is_weak(cell)]:
        show(
            "The mean is not above that of random actions, so a check does not notice that the "
            f"algorithm no longer learns; expected a larger budget: {', '.join(weak)}."
        )
    show(f"{path}: {counted(len(baseline.cells), 'cell')} frozen")


def _is_weak(cell: FrozenCell) -> bool:
    return cell.episode_statistic == "mean" and float(np.mean(cell.scores)) <= cell.random_score


def _all_equal(cell: FrozenCell) -> bool:
    equal = len({trial.score for trial in cell.trials}) == 1
    return len(cell.trials) > 1 and equal and cell.episode_statistic != "area"


def print_suggestions(suggestions: Sequence[Suggestion], power: float) -> None:
    """Print how often unchanged checks would be decided, and the margin for the wanted power."""
    default, wanted = f"no worse at {MARGIN:.0%}", f"margin for {power:.0%}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("cell", "seeds", default, wanted):
        table.add_column(name, justify="left" if name == "cell" else "right")
    for found in suggestions:
        margin = "above 50%" if found.margin is None else f"{found.margin:.1%}"
        table.add_row(Text(found.cell), str(found.seeds), f"{found.no_worse:.0%}", margin)
    show(
        table,
        f"{default}: share of unchanged checks with this verdict, at the default margin. Margins "
        "are shares of the range from random actions to the reference, for 'esbench check "
        "--margin'. Baseline and check have the same number of seeds; their scores are drawn from "
        "those of this folder.",
    )


def print_check(report: CheckReport) -> None:
    """Print the cells of a check, the details and the outcome."""
    from esbench.publish.gate.render_check import details, headline, notes

    style = {0: "bold green", 1: "bold red"}.get(report.exit_code, "bold yellow")
    show(check_table(report), *details(report), *notes(report), Text(headline(report), style))


def check_table(report: CheckReport) -> Table:
    """The cells of a check as a table for a terminal of at least 80 columns."""
    from esbench.publish.gate.match_baseline import DigestResult
    from esbench.publish.gate.render_check import change_text, mean_text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("cell", overflow="fold")
    for name in ("baseline", "now", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("digests", no_wrap=True)
    for cell in report.cells:
        digests = cell.match.digests
        table.add_row(
            Text(cell.match.frozen.name),
            mean_text(cell.baseline_scores),
            mean_text(cell.scores),
            change_text(cell),
            Text(cell.verdict.value, VERDICT_STYLES[cell.verdict]),
            Text(digests.value, "yellow" if digests is DigestResult.CHANGED else "dim"),
        )
    return table


def print_history(found: Sequence[CellHistory], figures: Sequence[Path]) -> None:
    """Print the past checks of each cell, and the paths of their figures."""
    from esbench.publish.history import NOTES, sheet

    for cell in found:
        show(Text(cell.title, "bold"))
        print_sheet(sheet(cell, terminal=True))
        show("")
    show(*NOTES, *map(str, figures))
