"""The terminal view of a check."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from esbench.analysis.gate import Verdict
from esbench.cli.console import make_console, print_plain
from esbench.gate.check import CheckReport
from esbench.gate.match_baseline import DigestResult
from esbench.gate.render_check import change_text, details, headline, mean_text, notes

STYLES: Final = {
    Verdict.NO_WORSE: "green",
    Verdict.IMPROVEMENT: "bold green",
    Verdict.REGRESSION: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_MEASURED: "magenta",
}


def print_check(report: CheckReport) -> None:
    """Print the cells of a check, the details and the outcome."""
    console = make_console()
    console.print(check_table(report))
    for line in (*details(report), *notes(report)):
        print_plain(line, console)
    style = {0: "bold green", 1: "bold red"}.get(report.exit_code, "bold yellow")
    console.print(Text(headline(report), style), soft_wrap=True)


def check_table(report: CheckReport) -> Table:
    """The cells as a table for a terminal of at least 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("cell", overflow="fold")
    for name in ("baseline", "now", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("digests", no_wrap=True)
    for cell in report.cells:
        changed = cell.match.digests is DigestResult.CHANGED
        table.add_row(
            Text(cell.frozen.name),
            mean_text(cell.baseline_scores),
            mean_text(cell.scores),
            change_text(cell),
            Text(cell.verdict.value, STYLES[cell.verdict]),
            Text(
                cell.match.digests.value,
                "yellow" if changed else "dim",
            ),
        )
    return table
