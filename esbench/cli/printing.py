"""Prints what commands found, as text and tables for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from esbench.app.display import FEW_GENERATIONS, few_generations
from esbench.cli.console import print_sheet, show
from esbench.core.arrays import Floats, Vector
from esbench.core.units import (
    NONE,
    counted,
    format_duration,
    format_number,
    format_percent,
    format_steps,
    three_digits,
)
from esbench.grids.trial_spec import value_text
from esbench.publish.catalog import NOT_SET, CatalogEntry, example, settings_of
from esbench.publish.tables.table_notes import planned_text
from esbench.results.statistics.judgment import MARGIN, GateRules, Verdict, seeds_to_fail

if TYPE_CHECKING:  # slow to import
    from esbench.bench.grid_cost import Cost, TrialStanding
    from esbench.bench.training_speed import Throughput
    from esbench.experiment.engines import Schedule
    from esbench.publish.diagnosis import Diagnosis
    from esbench.publish.gate.check import CheckReport
    from esbench.publish.history import CellHistory
    from esbench.publish.tables.comparison_table import Sides
    from esbench.results.baselines import Baseline
    from esbench.results.cell import Cell
    from esbench.tuning.summary import Summary


NUMERIC: Final = {
    *("trials", "done", "generation", "steps left", "steps/s", "time left"),
    *("seeds", "mean", "random", "reference", "margin"),
    *("start", "middle", "end"),
    *("tried", "pruned", "failed", "best", "importance", "default score"),
}


def plain_table(*columns: str, title: str | None = None, no_header: bool = False) -> Table:
    """A table with these columns, numbers on the right; a title and no box."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=not no_header,
    )
    for name in columns:
        justify: JustifyMethod = "right" if name in NUMERIC else "left"
        table.add_column(name, justify=justify, overflow="fold")
    return table


LONGEST_DEFAULT: Final = 24


def print_catalog(kinds: Mapping[str, Iterable[CatalogEntry]]) -> None:
    """Print the entries of each kind with their papers."""
    for number, (kind, entries) in enumerate(kinds.items()):
        table = plain_table("name", "", title=kind if len(kinds) > 1 else None, no_header=True)
        table.columns[0].no_wrap = True
        names: dict[tuple[str, str], list[str]] = {}
        for entry in entries:  # those that lack the same package have one text
            names.setdefault((entry.text, entry.paper), []).append(entry.name)
        for (text, paper), own in names.items():
            source = ("\n", (paper, "dim")) if paper else ()
            table.add_row("\n".join(own), Text.assemble(text, *source))
        show(*([""] if number else []), table)


def print_settings(kind: str, name: str) -> None:
    """Print the settings of an algorithm, policy or behavior, and how to set them."""
    rows = settings_of(kind, name)
    if not rows:
        show(f"{name} has no settings")
        return
    table = plain_table("setting", "default", "type, range and unit; meaning")
    table.columns[0].no_wrap = True
    # A longer default is a list, which can break between its items.
    table.columns[1].no_wrap = all(len(row.default) <= LONGEST_DEFAULT for row in rows)
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        search = f"\ntuned over: {row.search}" if row.search else ""
        meaning = Text.assemble((row.type + unit, "cyan"), "\n", row.meaning, (search, "green"))
        table.add_row(Text(row.name, "bold"), row.default, meaning)
    show(table)
    if any(row.default == NOT_SET for row in rows):
        show(f"default {NOT_SET}: not set; the meaning explains the effect\n")
    if text := example(kind, name, rows):
        show(f"Set it on the command line or in a grid file:\n\n{text}\n")


DETERMINISTIC: Final = (
    "two seeds with the same random actions give the same episodes. All held-out episodes of a "
    "policy will be one trajectory, which it can memorize. Use random starts or, in an Atari game, "
    "sticky actions."
)
STATUS_STYLES: Final = {"done": "green", "running": "cyan", "failed": "red", "partial": "yellow"}


def print_costs(costs: Sequence[Cost], layout: Schedule, root: Path) -> None:
    """Print the cost of a grid, and how its trials share the workers."""
    table = plain_table("environment", "trials", "done", "steps left", "steps/s", "time left")
    for cost in costs:
        table.add_row(
            cost.environment,
            str(cost.trials),
            str(cost.done),
            format_steps(cost.env_steps),
            format_steps(cost.steps_per_second) if cost.steps_per_second else "-",
            format_duration(cost.seconds) if cost.env_steps else "-",
        )
    text = "Nothing is left to train."
    if total := sum(cost.seconds for cost in costs):
        text = (
            f"About {format_duration(total)} of training on {counted(layout.workers, 'worker')}: "
            f"{layout.words}. Updates and scoring take extra time."
        )
    show(table, f"{text}\nOutput: {root}")
    for cost in costs:
        if cost.deterministic:
            show(Text(f"{cost.environment}: {DETERMINISTIC}", "yellow"))
        if over := planned_text(cost.excess):
            show(Text(f"{cost.environment}: {over}", "yellow"))
        few: dict[int, list[str]] = {}
        for algorithm, generations in cost.generations.items():
            if generations < FEW_GENERATIONS:
                few.setdefault(generations, []).append(algorithm)
        for generations, names in sorted(few.items()):
            text = few_generations(f"{cost.environment} {', '.join(names)}", generations)
            show(Text(text, "yellow"))


def print_standings(standings: Iterable[TrialStanding], root: Path) -> None:
    """Print the progress of each trial, its nodes, and the number of trials with each status."""
    nodes = plain_table("node", "workers", "steps/s", "episodes in flight", "trial")
    losses: list[str] = []
    table = plain_table("trial", "status", "generation", "steps", "")
    counts: Counter[str] = Counter()
    for item in standings:
        counts[item.status] += 1
        steps = f"{format_steps(item.env_steps)} of {format_steps(item.budget)}"
        state = Text(item.status, style=STATUS_STYLES.get(item.status, ""))
        table.add_row(item.trial.name, state, str(item.generation), steps, item.detail)
        for node in item.nodes.get("nodes", []):
            speed = format_steps(node["steps_per_second"])
            flight = str(node["in_flight"])
            nodes.add_row(node["host"], str(node["workers"]), speed, flight, item.trial.name)
        if item.nodes:
            losses.append(
                f"{item.trial.name}: {counted(item.nodes['losses'], 'node')} lost, "
                f"{counted(item.nodes['lost_episodes'], 'episode')} played again"
            )
    if losses:
        show(nodes, *losses)
    show(table, f"{root}: {', '.join(f'{n} {name}' for name, n in counts.items())}")


def returns_text(returns: Vector) -> str:
    """Mean, standard deviation and range of the returns of episodes as text.

    If a return is not finite, the number of such episodes.
    """
    if bad := np.count_nonzero(~np.isfinite(returns)):
        return f"mean {NONE} ({bad} of {counted(returns.size, 'episode')} not finite)"
    mean = float(np.mean(returns))
    digits = 2 if not mean or abs(mean) >= 1 else 2 - math.floor(math.log10(abs(mean)))
    values = {"mean": mean, "std": np.std(returns), "min": np.min(returns), "max": np.max(returns)}
    words = ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
    return f"{words} over {returns.size} episodes"


def print_comparison(sides: Sides, *, tail: bool = False) -> None:
    """Print two sides next to each other, and which one is better."""
    from esbench.publish.tables.comparison_table import outcome, sheet

    show(f"A: {sides.first}\nB: {sides.second}\n")
    print_sheet(sheet(sides, tail=tail))
    show(Text(f"{outcome(sides)}.", "bold"))


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
        table.add_row(name, *cells, importance, study.space[name].text)
    scores = "all configurations failed"
    if best is not None:
        values = map(format_number, (summary.best_score, summary.default_score))
        name = f"configuration {best.number}" if best.number else "the default settings are best"
        scores = "{}: score {}, default {}".format(name, *values)
    refused = [
        f"{counted(count, 'configuration')} refused: {problem}"
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


def print_throughput(result: Throughput, profile: bool) -> None:
    """Print the rounds of a measurement, their medians and optionally the profile."""
    speeds = ("bare", "simulator", "simulated", "training")
    table = plain_table(
        "round", "gymnasium", "simulator", *speeds[2:], "/ gymnasium", "/ simulator"
    )
    for number, item in enumerate(result.rounds, start=1):
        alone = item.simulator and item.simulated / item.simulator
        values = [_or_none(getattr(item, name), ",.0f") for name in speeds]
        ratios = [_or_none(value, ".2f") for value in (item.simulated / item.bare, alone)]
        table.add_row(str(number), *values, *ratios)
    values = [_or_none(result.median(name), ",.0f") for name in speeds]
    ratios = [_or_none(result.ratio(name), ".2f") for name in speeds[:2]]
    table.add_row("median", *values, *ratios, style="bold")
    processes = "1 process" if result.workers == 1 else f"{result.workers} processes"
    show(
        f"{result.environment}, population {result.population_size}, {processes}, "
        f"backend {result.backend}; after {format_steps(result.env_steps)} steps of training, "
        f"episodes of {result.episode_length:.0f} steps; env steps/s",
        table,
        "gymnasium: plain environments with random actions. simulator: mj_step or the ALE alone, "
        "with the members' actions.\nsimulated: training end to end, including the steps of the "
        "unperturbed policy. training: only the steps of the population.\n"
        f"First generation after {result.startup_s:.1f} s.",
    )
    if profile:
        shares = plain_table("part of a generation", "share of the processes' time", "")
        for part, share in result.profile.items():
            shares.add_row(part, f"{100 * share:.1f} %", PARTS_OF_A_GENERATION[part])
        show(shares)


def _or_none(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


VERDICT_STYLES: Final = {
    Verdict.NO_WORSE: "green",
    Verdict.IMPROVEMENT: "bold green",
    Verdict.REGRESSION: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_MEASURED: "magenta",
}


def print_baseline(baseline: Baseline, path: Path, power: float | None) -> None:
    """Print the contents of a baseline, whose margins were chosen for a power or given."""
    from esbench.publish.gate.render_check import judged_notes
    from esbench.results.baselines import NO_DIGESTS

    cells = baseline.to_cells()
    table = plain_table("cell", "seeds", "mean", "random", "reference", "margin")
    for cell in cells:
        numbers = (float(np.mean(cell.scores)), cell.random_score, cell.reference_score)
        margin = f"{format_percent(cell.margin)} = {format_number(_margin_score(cell))}"
        table.add_row(cell.title, str(len(cell.runs)), *map(format_number, numbers), margin)
    show(table)
    show(
        "margin: the smallest drop that matters to a check, as a share of the range from random "
        "actions to the reference, and in score units"
        + (
            f", chosen so that {power:.0%} of checks of unchanged code with as many seeds pass. "
            "With equal digests, all pass."
            if power
            else "."
        )
    )
    for note in judged_notes(cells):
        show(note)
    for cell in cells:
        if cell.diverged:
            show(f"{cell.title}: {counted(cell.diverged, 'run')} diverged, counted as the worst.")
        if mixed := sum(not run.digests[0] for run in cell.runs):
            show(f"{cell.title}: {counted(mixed, 'seed')} without digests: {NO_DIGESTS}.")
    sources = dict.fromkeys((cell.environment, cell.reference_source) for cell in baseline.cells)
    for environment, source in sources:
        show(f"Reference of {environment}: {source}.")
    least = seeds_to_fail(GateRules(), len(cells))
    cautions = {
        "A check hardly notices drops; expected more seeds, or settings and a budget with which "
        "every seed learns": [cell for cell in cells if power and cell.margin > WIDE_MARGIN],
        f"With fewer than {least} seeds a check with as many seeds cannot detect a drop": [
            cell for cell in cells if len(cell.runs) < least
        ],
        "All seeds have the same score, so slower learning that still reaches it is not noticed; "
        "expected a smaller budget or --statistic area": filter(_all_equal, cells),
        "The mean is not above that of random actions, so a check does not notice that the "
        "algorithm no longer learns; expected a larger budget": filter(_is_weak, cells),
    }
    for caution, found in cautions.items():
        if titles := ", ".join(cell.title for cell in found):
            show(f"{caution}: {titles}.")
    for cell in cells:
        spread = float(np.ptp(cell.scores))
        if 0 < spread < _margin_score(cell) / LARGE_MARGIN:
            show(
                f"{cell.title}: a check passes drops of up to {format_number(_margin_score(cell))}"
                f", the margin, although the scores of the seeds differ by {format_number(spread)} "
                f"only; expected a smaller one, such as --margin {spread / _span(cell):.1g}."
            )
    show(f"{path}: {counted(len(cells), 'cell')} frozen")


WIDE_MARGIN: Final = 0.5
LARGE_MARGIN: Final = 2  # times the spread of the seeds


def _span(cell: Cell) -> float:
    return abs(cell.reference_score - cell.random_score)


def _margin_score(cell: Cell) -> float:
    return cell.margin * _span(cell)


def _is_weak(cell: Cell) -> bool:
    return cell.statistic == "mean" and float(np.mean(cell.scores)) <= cell.random_score


def _all_equal(cell: Cell) -> bool:
    known = {run.scored(cell.statistic) for run in cell.runs}
    return len(cell.runs) > 1 and len(known) == 1 and cell.statistic != "area"


def print_suggestions(suggestions: Sequence[tuple[str, int, Floats]], power: float) -> None:
    """Print how often unchanged checks would be decided, and the margin for the wanted power."""
    from esbench.publish.gate.choose_margin import smallest

    default, wanted = f"no worse at {MARGIN:.0%}", f"margin for {power:.0%}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("cell", "seeds", default, wanted):
        table.add_column(name, justify="left" if name == "cell" else "right")
    for cell, seeds, needed in suggestions:
        margin = smallest(needed, power)
        texts = f"{np.mean(needed <= MARGIN):.0%}", format_percent(margin) if margin else NONE
        table.add_row(cell, str(seeds), *texts)
    show(
        table,
        f"{default}: share of unchanged checks of one cell with this verdict, at this margin. "
        "Margins are shares of the range from random actions to the reference. Baseline and check "
        "have the same number of seeds; their scores are drawn from those of this folder.",
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
        digests = cell.digests
        table.add_row(
            cell.frozen.title,
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
