"""Prints the findings about trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from esbench.cli.console import show
from esbench.cli.display.tables import plain_table
from esbench.core.units import counted, format_steps, three_digits

if TYPE_CHECKING:  # slow to import
    from esbench.publish.diagnosis import Diagnosis

LEVEL_STYLES: Final = {"ok": "green", "note": "yellow", "warning": "red"}


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print the diagnostics of a trial over its run, and the findings."""
    show(
        f"{diagnosis.name}: {diagnosis.status}, {counted(diagnosis.generations, 'generation')}, "
        f"{format_steps(diagnosis.env_steps)} steps\n"
    )
    table = plain_table("mean over a third of the run", "start", "middle", "end")
    for name, values in diagnosis.measures.items():
        table.add_row(name, *map(three_digits, values))
    rows = plain_table("level", "finding", no_header=True)
    for finding in diagnosis.findings:
        advice = ("\n", (finding.advice, "bold")) if finding.advice else ()
        level = Text(finding.level, style=LEVEL_STYLES[finding.level])
        rows.add_row(level, Text.assemble(finding.sentence, *advice))
    show(table, rows)


def print_health(diagnoses: Sequence[Diagnosis]) -> None:
    """Print the findings of several trials, and each advice once.

    Of a healthy trial, print the first finding.
    """
    advice: Counter[str] = Counter()
    table = plain_table("level", "trial and findings", no_header=True)
    for item in diagnoses:
        findings = [f for f in item.findings if f.level != "ok"] or item.findings[:1]
        lines = (f"\n{finding.sentence}" for finding in findings)
        given = [f.advice for f in findings if f.advice and f.level != "ok"]
        advice.update([*dict.fromkeys(given)])  # once per trial, in a fixed order
        level = Text(item.level, style=LEVEL_STYLES[item.level])
        table.add_row(level, Text.assemble((item.name, "bold"), *lines))
    counts = Counter(item.level for item in diagnoses)
    listed = ", ".join(
        f"{count} ok" if level == "ok" else counted(count, level) for level, count in counts.items()
    )
    show(table, f"{counted(len(diagnoses), 'trial')}: {listed}")
    for text, count in advice.most_common():
        show(Text.assemble(f"For {counted(count, 'trial')}: ", (text, "bold")))
