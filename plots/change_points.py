"""Simulates histories of checks, and writes ``change_points.md`` beside it.

    python plots/change_points.py

A history has 24 checks of eight seeds, or 24 speeds with a deviation of 5 %. From check 16 or 21 on
the scores are lower by a share of the range, or the speeds by a share of themselves. A change is
found if a mark is at most one check away from it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from error_rates import markdown
from simulated_checks import DISTRIBUTIONS

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.significance import change_points

CHECKS, SEEDS = 24, 8
PLACES = (16, 21)
DROPS = (0.05, 0.1, 0.2)
UNCHANGED, CHANGED = 400, 100  # histories


def speeds(rng: np.random.Generator, count: int, drop: float) -> Floats:
    """One speed, in units of the usual one."""
    del count
    return 1 - drop + 0.05 * rng.standard_normal(1)


def main() -> None:
    """Write the table."""
    header = ["scores", "unchanged: marked"]
    header += [f"drop {drop:.0%} at check {place}: found" for place, drop in product(PLACES, DROPS)]
    rows = []
    for name, draw in {**DISTRIBUTIONS, "speeds, deviation 5 %": speeds}.items():
        rng = stream(0, Purpose.SIMULATION)
        marked = sum(bool(marks(draw, rng, CHECKS, 0.0)) for _ in range(UNCHANGED))
        row = [name, f"{marked / UNCHANGED:.1%}"]
        for place, drop in product(PLACES, DROPS):
            histories = [marks(draw, rng, place, drop) for _ in range(CHANGED)]
            found = sum(any(abs(mark - place) <= 1 for mark in each) for each in histories)
            row.append(f"{found / CHANGED:.0%}")
        rows.append(row)
        print(*row, flush=True)  # noqa: T201
    text = "\n".join(markdown(header, rows)) + "\n"
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


def marks(
    draw: Callable[..., Floats], rng: np.random.Generator, place: int, drop: float
) -> list[int]:
    """The change points of one history, in which scores drop at ``place``."""
    return change_points([draw(rng, SEEDS, drop * (check >= place)) for check in range(CHECKS)])


if __name__ == "__main__":
    main()
