"""Prints the measured speed of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esbench.cli.console import show
from esbench.cli.display.tables import plain_table
from esbench.core.units import NONE, format_steps

if TYPE_CHECKING:  # slow to import
    from esbench.bench.throughput import Throughput

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
