"""What the command line prints: tables in the width of the terminal, and lines of plain text."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esbench.analysis.gate import Rules, seeds_to_fail
from esbench.arrays import Vector
from esbench.reporting.catalogue import NOT_SET, Entry, example, settings_of
from esbench.units import NONE, counted, format_duration, format_number, format_steps

if TYPE_CHECKING:  # they take long to import, and few commands need them
    from esbench.bench.plan import Cost, Standing
    from esbench.bench.throughput import Throughput
    from esbench.gate.baselines import Baseline
    from esbench.gate.check import Report
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
    "sample": "members' parameters, from their noise",
    "reset": "first states of episodes",
    "observe": "observations normalised, and counted for the statistics",
    "act": "the policy's forward passes",
    "simulate": "the environments' steps, rewards and ends",
    "count": "returns and lengths added up",
    "idle": "workers wait for each other at the end, or for messages",
    "update": "ask, tell and statistics; workers wait",
    "store": "rows and checkpoints; workers wait",
}


@final
class PipeConsole(Console):
    """A console whose reader may leave: rich would exit with 1, which means a failed trial here."""

    def on_broken_pipe(self) -> None:
        """Raise it, for the command line to end quietly."""
        raise BrokenPipeError


def make_console() -> Console:
    """Return the console on standard output, coloured if that is a terminal."""
    return PipeConsole(force_terminal=None if sys.stdout.isatty() else False)


def print_plain(text: str, console: Console | None = None) -> None:
    """Print text as it is, unwrapped."""
    (console or make_console()).print(text, markup=False, highlight=False, soft_wrap=True)


def print_catalogue(kinds: Mapping[str, Iterable[Entry]]) -> None:
    """Print the entries of each kind, with their papers."""
    console = make_console()
    for number, (kind, entries) in enumerate(kinds.items()):
        table = _table("name", "", title=kind if len(kinds) > 1 else None, no_header=True)
        table.columns[0].no_wrap = True
        for entry in entries:
            paper = ("\n", (entry.paper, "dim")) if entry.paper else ()
            table.add_row(Text(entry.name), Text.assemble(entry.text, *paper))
        console.print(*([""] if number else []), table, sep="\n")


def print_settings(kind: str, name: str) -> None:
    """Print the settings of an algorithm, policy or behavior, and how to set one.

    Raises:
        UsageError: this kind has no settings, or the name is unknown or not installed.
    """
    console, rows = make_console(), settings_of(kind, name)
    if not rows:
        print_plain(f"{name} has no settings", console)
        return
    table = _table("setting", "default", "type, range and unit; meaning")
    table.columns[0].no_wrap = True
    # A longer default is a list, which may break between its items and leaves room for the meaning.
    table.columns[1].no_wrap = all(len(row.default) <= LONGEST_DEFAULT for row in rows)
    for row in rows:
        takes = f"{row.type}: {row.allowed}" if row.allowed else row.type
        takes += f" [{row.unit}]" if row.unit else ""
        # As Text, because brackets are markup in a str.
        meaning = Text.assemble((takes, "cyan"), "\n", row.meaning)
        table.add_row(Text(row.name, "bold"), Text(row.default), meaning)
    console.print(table)
    if any(row.default == NOT_SET for row in rows):
        print_plain(f"default {NOT_SET}: not set; its meaning says what happens then\n", console)
    if text := example(kind, name, rows):
        how = f"To set one, on the command line or in a grid's TOML file:\n\n{text}\n"
        print_plain(how, console)


def print_costs(costs: Sequence[Cost], layout: Schedule, root: Path) -> None:
    """Print what a grid will cost, and how its trials share the workers."""
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
    what = "Nothing is left to train."
    if total := sum(cost.seconds for cost in costs):
        what = (
            f"About {format_duration(total)} of training on {counted(layout.workers, 'worker')}: "
            f"{layout.words}. Updates and scoring come on top."
        )
    print_plain(f"{what}\nOutput: {root}", console)


def print_standings(standings: Iterable[Standing], root: Path) -> None:
    """Print how far each trial is, and how many of each status there are."""
    console = make_console()
    table = _table("trial", "status", "generation", "steps", "")
    counts: dict[str, int] = {}
    for item in standings:
        counts[item.status] = counts.get(item.status, 0) + 1
        steps = f"{format_steps(item.env_steps)} of {format_steps(item.budget)}"
        state = Text(item.status, style=STATUS_STYLES.get(item.status, ""))
        name, detail = Text(item.trial.name), Text(item.detail)  # brackets in them are no markup
        table.add_row(name, state, str(item.generation), steps, detail)
    console.print(table)
    print_plain(f"{root}: {', '.join(f'{n} {name}' for name, n in counts.items())}", console)


def print_scores(rows: Any, console: Console | None = None) -> None:
    """Print a table of scores with its footnotes."""
    from esbench.reporting.tables.score_table import footnotes, rich_table

    print_noted(rich_table(rows), footnotes(rows, terminal=True), console)


def print_wide(rows: Any, console: Console | None = None) -> None:
    """Print a table of scores with a row an algorithm, in pieces if the terminal is narrower."""
    from esbench.reporting.tables.wide_table import footnotes, rich_tables, wide_table

    console, table = console or make_console(), wide_table(rows)
    for piece in rich_tables(table, console.width):
        console.print(piece, "")
    for note in footnotes(table):
        print_plain(note, console)


def print_noted(table: Table, notes: Sequence[str], console: Console | None = None) -> None:
    """Print a table with the sentences below it."""
    console = console or make_console()
    console.print(table)
    for note in notes:
        print_plain(note, console)


def print_comparison(sides: Sides) -> None:
    """Print two sides beside each other, and which is better."""
    from esbench.reporting.tables.comparison import footnotes, outcome, rich_table

    console = make_console()
    print_plain(f"A: {sides.first}\nB: {sides.second}\n", console)
    console.print(rich_table(sides))
    for note in footnotes(sides):
        print_plain(note, console)
    console.print(Text(f"{outcome(sides)}.", "bold"), soft_wrap=True)


def print_baseline(baseline: Baseline, path: Path) -> None:
    """Print what was frozen."""
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
    least = seeds_to_fail(Rules(), len(baseline.cells))
    if few := [cell.name for cell in baseline.cells if len(cell.trials) < least]:
        print_plain(
            f"Too few seeds for a drop alone to fail a check with as many, which takes {least}: "
            f"{', '.join(few)}.",
            console,
        )
    print_plain(f"{path}: {counted(len(baseline.cells), 'cell')} frozen", console)


def print_check(report: Report) -> None:
    """Print the cells of a check, what there is to say of them, and the outcome."""
    from esbench.gate import render_check as verdicts

    console = make_console()
    console.print(verdicts.rich_table(report))
    for line in (*verdicts.details(report), *verdicts.notes(report)):
        print_plain(line, console)
    style = {0: "bold green", 1: "bold red"}.get(report.exit_code, "bold yellow")
    console.print(Text(verdicts.headline(report), style), soft_wrap=True)


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something is going on; gives what shows how far it is."""
    with Console(stderr=True).status(Text(f"{what} ...")) as status:
        yield lambda text: status.update(Text(f"{text} ..."))


def print_throughput(result: Throughput, profile: bool) -> None:
    """Print the rounds of a measurement, their medians and, if asked for, the profile."""
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
        "gymnasium: plain environments, random actions. simulator: mj_step or the ALE alone, on "
        "members' actions.\nsimulated: training end to end, the steps of the unperturbed policy "
        "included. training: the population's alone.\n"
        f"First generation after {result.startup_s:.1f} s.",
        console,
    )
    if profile:
        shares = _table("part of a generation", "share of the processes' time", "")
        for part, share in result.profile.items():
            shares.add_row(part, f"{100 * share:.1f} %", PARTS_OF_A_GENERATION[part])
        console.print(shares)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print what was measured of a trial over its run, and what that says."""
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
    """Print the findings of several trials; of those that are well, the first."""
    console = make_console()
    table = _table("level", "trial and findings", no_header=True)
    for item in diagnoses:
        serious = [f.sentence for f in item.findings if f.level != "ok"]
        said = serious or [item.findings[0].sentence]
        level = Text(item.level, style=LEVEL_STYLES[item.level])
        table.add_row(level, Text.assemble((item.name, "bold"), *(f"\n{line}" for line in said)))
    console.print(table)
    counts = Counter(item.level for item in diagnoses)
    listed = ", ".join(f"{count} {level}" for level, count in counts.items())
    print_plain(f"{counted(len(diagnoses), 'trial')}: {listed}", console)


def summary(returns: Vector) -> str:
    """Return mean, deviation and extremes of some episodes' returns in words."""
    mean, std = float(np.mean(returns)), float(np.std(returns))
    low, high = float(np.min(returns)), float(np.max(returns))
    digits = 2 if not mean or abs(mean) >= 1 else 2 - math.floor(math.log10(abs(mean)))
    return (
        f"mean {mean:.{digits}f}, std {std:.{digits}f}, min {low:.{digits}f}, "
        f"max {high:.{digits}f} over {returns.size} episodes"
    )


def rendered_line(rendered: Rendered) -> str:
    """Return which episode is in a file, in words."""
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
