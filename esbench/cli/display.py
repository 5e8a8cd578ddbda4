"""Prints the results of the commands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from esbench.analysis.gate import GateRules, seeds_to_fail
from esbench.arrays import Vector
from esbench.cli.console import make_console, print_plain, print_sheet
from esbench.reporting.catalogue import NOT_SET, CatalogueEntry, example, settings_of
from esbench.units import NONE, counted, format_duration, format_number, format_steps

if TYPE_CHECKING:  # slow to import, and used by few commands
    from esbench.bench.plan import Cost, Standing
    from esbench.bench.throughput import Throughput
    from esbench.gate.baselines import Baseline
    from esbench.reporting.diagnosis import Diagnosis
    from esbench.reporting.tables.comparison import Sides
    from esbench.training.schedule import Schedule
    from esbench.video.render_trial import Rendered

LONGEST_DEFAULT: Final = 24
NUMERIC: Final = {
    *("trials", "done", "generation", "steps left", "steps/s", "time left"),
    *("seeds", "mean", "random", "reference"),
    *("start", "middle", "end"),
}
LEVEL_STYLES: Final = {"ok": "green", "note": "yellow", "warning": "red"}
STATUS_STYLES: Final = {"done": "green", "running": "cyan", "failed": "red", "partial": "yellow"}
PARTS_OF_A_GENERATION: Final = {
    "sample": "compute the members' parameters from their noise",
    "reset": "reset episodes",
    "observe": "normalize observations and count them for the statistics",
    "act": "forward passes of the policy",
    "simulate": "environment steps, rewards and episode ends",
    "count": "sum returns and lengths",
    "idle": "workers wait for each other or for messages",
    "update": "ask, tell and statistics; workers wait",
    "store": "rows and checkpoints; workers wait",
}


def print_catalogue(kinds: Mapping[str, Iterable[CatalogueEntry]]) -> None:
    """Print the entries of each kind with their papers."""
    console = make_console()
    for number, (kind, entries) in enumerate(kinds.items()):
        table = _table("name", "", title=kind if len(kinds) > 1 else None, no_header=True)
        table.columns[0].no_wrap = True
        for entry in entries:
            paper = ("\n", (entry.paper, "dim")) if entry.paper else ()
            table.add_row(Text(entry.name), Text.assemble(entry.text, *paper))
        console.print(*([""] if number else []), table, sep="\n")


def print_settings(kind: str, name: str) -> None:
    """Print the settings of an algorithm, policy or behavior, and how to set them.

    Raises:
        UsageError: this kind has no settings, or the name is unknown or not installed.
    """
    console, rows = make_console(), settings_of(kind, name)
    if not rows:
        print_plain(f"{name} has no settings", console)
        return
    table = _table("setting", "default", "type, range and unit; meaning")
    table.columns[0].no_wrap = True
    # A longer default is a list, which can break between its items.
    table.columns[1].no_wrap = all(len(row.default) <= LONGEST_DEFAULT for row in rows)
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        # Text, because brackets are markup in a str.
        meaning = Text.assemble((row.type + unit, "cyan"), "\n", row.meaning)
        table.add_row(Text(row.name, "bold"), Text(row.default), meaning)
    console.print(table)
    if any(row.default == NOT_SET for row in rows):
        print_plain(f"default {NOT_SET}: not set; the meaning explains the effect\n", console)
    if text := example(kind, name, rows):
        print_plain(f"Set it on the command line or in a grid file:\n\n{text}\n", console)


def print_costs(costs: Sequence[Cost], layout: Schedule, root: Path) -> None:
    """Print the cost of a grid, and how its trials share the workers."""
    console = make_console()
    table = _table("environment", "trials", "done", "steps left", "steps/s", "time left")
    for cost in costs:
        table.add_row(
            cost.environment,
            str(cost.trials),
            str(cost.done),
            format_steps(cost.env_steps),
            format_steps(cost.steps_per_second) if cost.steps_per_second else "-",
            format_duration(cost.seconds) if cost.env_steps else "-",
        )
    console.print(table)
    text = "Nothing is left to train."
    if total := sum(cost.seconds for cost in costs):
        text = (
            f"About {format_duration(total)} of training on {counted(layout.workers, 'worker')}: "
            f"{layout.words}. Updates and scoring take extra time."
        )
    print_plain(f"{text}\nOutput: {root}", console)


def print_standings(standings: Iterable[Standing], root: Path) -> None:
    """Print the progress of each trial, and the number of trials with each status."""
    console = make_console()
    table = _table("trial", "status", "generation", "steps", "")
    counts: Counter[str] = Counter()
    for item in standings:
        counts[item.status] += 1
        steps = f"{format_steps(item.env_steps)} of {format_steps(item.budget)}"
        state = Text(item.status, style=STATUS_STYLES.get(item.status, ""))
        name, detail = Text(item.trial.name), Text(item.detail)  # brackets are not markup
        table.add_row(name, state, str(item.generation), steps, detail)
    console.print(table)
    print_plain(f"{root}: {', '.join(f'{n} {name}' for name, n in counts.items())}", console)


def print_comparison(sides: Sides) -> None:
    """Print two sides next to each other, and which one is better."""
    from esbench.reporting.tables.comparison import outcome, sheet

    console = make_console()
    print_plain(f"A: {sides.first}\nB: {sides.second}\n", console)
    print_sheet(sheet(sides), console)
    console.print(Text(f"{outcome(sides)}.", "bold"), soft_wrap=True)


def print_baseline(baseline: Baseline, path: Path) -> None:
    """Print the contents of a baseline."""
    console = make_console()
    table = _table("cell", "seeds", "mean", "random", "reference")
    for cell in baseline.cells:
        finite = [trial.score for trial in cell.trials if trial.score is not None]
        numbers = (float(np.mean(finite)), cell.random_score, cell.reference_score)
        table.add_row(Text(cell.name), str(len(cell.trials)), *map(format_number, numbers))
    console.print(table)
    sources = dict.fromkeys((cell.environment, cell.reference_source) for cell in baseline.cells)
    for environment, source in sources:
        print_plain(f"Reference of {environment}: {source}.", console)
    least = seeds_to_fail(GateRules(), len(baseline.cells))
    if few := [cell.name for cell in baseline.cells if len(cell.trials) < least]:
        print_plain(
            f"With fewer than {least} seeds a check with as many seeds cannot detect a drop: "
            f"{', '.join(few)}.",
            console,
        )
    print_plain(f"{path}: {counted(len(baseline.cells), 'cell')} frozen", console)


def print_throughput(result: Throughput, profile: bool) -> None:
    """Print the rounds of a measurement, their medians and optionally the profile."""
    console = make_console()
    speeds = ("bare", "simulator", "simulated", "training")
    table = _table("round", "gymnasium", "simulator", *speeds[2:], "/ gymnasium", "/ simulator")
    for number, item in enumerate(result.rounds, start=1):
        alone = item.simulator and item.simulated / item.simulator
        values = [_rate(getattr(item, name)) for name in speeds]
        ratios = [_ratio(item.simulated / item.bare), _ratio(alone)]
        table.add_row(str(number), *values, *ratios)
    values = [_rate(result.median(name)) for name in speeds]
    ratios = [_ratio(result.ratio(name)) for name in speeds[:2]]
    table.add_row("median", *values, *ratios, style="bold")
    print_plain(
        f"{result.environment}, population {result.population_size}, {result.workers} processes, "
        f"backend {result.backend}; after {format_steps(result.env_steps)} steps of training, "
        f"episodes of {result.episode_length:.0f} steps; env steps/s",
        console,
    )
    console.print(table)
    print_plain(
        "gymnasium: plain environments with random actions. simulator: mj_step or the ALE alone, "
        "with the members' actions.\nsimulated: training end to end, including the steps of the "
        "unperturbed policy. training: only the steps of the population.\n"
        f"First generation after {result.startup_s:.1f} s.",
        console,
    )
    if profile:
        shares = _table("part of a generation", "share of the processes' time", "")
        for part, share in result.profile.items():
            shares.add_row(part, f"{100 * share:.1f} %", PARTS_OF_A_GENERATION[part])
        console.print(shares)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print the diagnostics of a trial over its run, and the findings."""
    console = make_console()
    print_plain(
        f"{diagnosis.name}: {diagnosis.status}, {counted(diagnosis.generations, 'generation')}, "
        f"{format_steps(diagnosis.env_steps)} steps\n",
        console,
    )
    table = _table("mean over a third of the run", "start", "middle", "end")
    for name, values in diagnosis.measures.items():
        table.add_row(name, *(_digits(value) for value in values))
    console.print(table)
    rows = _table("level", "finding", no_header=True)
    for finding in diagnosis.findings:
        advice = ("\n", (finding.advice, "bold")) if finding.advice else ()
        level = Text(finding.level, style=LEVEL_STYLES[finding.level])
        rows.add_row(level, Text.assemble(finding.sentence, *advice))
    console.print(rows)


def print_health(diagnoses: Sequence[Diagnosis]) -> None:
    """Print the findings of several trials; for a healthy trial, the first finding."""
    console = make_console()
    table = _table("level", "trial and findings", no_header=True)
    for item in diagnoses:
        findings = [f for f in item.findings if f.level != "ok"] or item.findings[:1]
        lines = (f"\n{finding.sentence}" for finding in findings)
        level = Text(item.level, style=LEVEL_STYLES[item.level])
        table.add_row(level, Text.assemble((item.name, "bold"), *lines))
    console.print(table)
    counts = Counter(item.level for item in diagnoses)
    listed = ", ".join(f"{count} {level}" for level, count in counts.items())
    print_plain(f"{counted(len(diagnoses), 'trial')}: {listed}", console)


def returns_text(returns: Vector) -> str:
    """Mean, standard deviation and range of the returns of episodes as text."""
    mean, std = float(np.mean(returns)), float(np.std(returns))
    low, high = float(np.min(returns)), float(np.max(returns))
    digits = 2 if not mean or abs(mean) >= 1 else 2 - math.floor(math.log10(abs(mean)))
    return (
        f"mean {mean:.{digits}f}, std {std:.{digits}f}, min {low:.{digits}f}, "
        f"max {high:.{digits}f} over {returns.size} episodes"
    )


def rendered_text(rendered: Rendered) -> str:
    """The rendered episode and its file as text."""
    cut = "" if rendered.shown == rendered.steps else f", the first {rendered.shown} shown"
    return (
        f"{rendered.path}: {rendered.environment}, generation {rendered.generation}, "
        f"episode {rendered.episode} (seed {rendered.seed}), return {rendered.total!r}, "
        f"{counted(rendered.steps, 'step')}{cut}"
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _digits(value: float) -> str:
    if math.isnan(value):
        return NONE
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(*columns: str, title: str | None = None, no_header: bool = False) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=not no_header,
    )
    for name in columns:
        table.add_column(name, justify="right" if name in NUMERIC else "left")
    return table
