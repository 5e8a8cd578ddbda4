"""Prints the cost and the progress of a grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.text import Text

from esbench.cli.console import show
from esbench.cli.display.tables import plain_table
from esbench.core.units import counted, format_duration, format_steps

if TYPE_CHECKING:  # slow to import
    from esbench.bench.plan import Cost, TrialStanding
    from esbench.experiment.engines import Schedule

FEW_GENERATIONS: Final = 10
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
        few: dict[int, list[str]] = {}
        for algorithm, generations in cost.generations.items():
            if generations < FEW_GENERATIONS:
                few.setdefault(generations, []).append(algorithm)
        for generations, names in sorted(few.items()):
            text = few_generations(f"{cost.environment} {', '.join(names)}", generations)
            show(Text(text, "yellow"))


def few_generations(name: str, generations: int) -> str:
    """The warning about a budget that buys few generations."""
    return (
        f"{name}: the budget buys about {counted(generations, 'generation')} if all episodes are "
        f"as long as the first ones. Fewer than {FEW_GENERATIONS} are often too few to learn: "
        "raise budget.env_steps or shrink the population."
    )


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
        name, detail = Text(item.trial.name), Text(item.detail)  # brackets are not markup
        table.add_row(name, state, str(item.generation), steps, detail)
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
