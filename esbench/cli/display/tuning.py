"""Prints the studies of a tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from esbench.cli.console import show
from esbench.cli.display.tables import plain_table
from esbench.core.units import NONE, counted, format_number, format_steps
from esbench.grids.trial_spec import value_text

if TYPE_CHECKING:  # slow to import
    from esbench.tuning.summary import Summary


def print_tuning(summary: Summary) -> None:
    """Print the settings of a study: their defaults, the best values and their importance."""
    study, best = summary.study, summary.best
    found = summary.values(best) if best else {}
    table = plain_table("setting", "default", "best", "importance", "searched")
    table.columns[0].no_wrap = True
    for name in summary.searched:
        share = summary.importances.get(name)
        cells = (_setting_text(values.get(name)) for values in (study.defaults, found))
        importance = "-" if share is None else f"{100 * share:.0f} %"
        table.add_row(Text(name), *cells, importance, study.space[name].text)
    scores = "all configurations failed"
    if best is not None:
        values = map(format_number, (summary.best_score, summary.default_score))
        name = f"configuration {best.number}" if best.number else "the default settings are best"
        scores = "{}: score {}, default {}".format(name, *values)
    refused = [
        Text(f"{counted(count, 'configuration')} refused: {problem}")
        for problem, count in summary.problems.items()
    ]
    show(Text(f"{study.name}: {scores}", "bold"), table, *refused)


def print_tuning_costs(summaries: Sequence[Summary]) -> None:
    """Print the scores and the cost of each study."""
    table = plain_table("study", "tried", "pruned", "failed", "steps", "default score", "best")
    for summary in summaries:
        counts = (len(summary.configurations), summary.pruned, summary.failed)
        values = map(format_number, (summary.default_score, summary.best_score))
        steps = format_steps(summary.env_steps)
        table.add_row(summary.study.name, *map(str, counts), steps, *values)
    show(table)


def _setting_text(value: object) -> str:
    if value is None:
        return NONE
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)
