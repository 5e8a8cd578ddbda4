"""Measures how checks of unchanged and of worse code end, and writes ``unchanged_checks.md``.

    python plots/unchanged_checks.py

The scores are those of the rows of the leaderboard with ten seeds or more. Baseline and checks are
drawn from the seeds of a row with replacement, so no digests are equal. A baseline has a margin of
5 %, or those that ``esbench baseline`` chooses for it. Where the code is worse, all scores of the
first cell are lower by a share of the range, and the margins are those of the default power.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from error_rates import DROPS, markdown

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.publish.gate.check import EXIT_INCONCLUSIVE, EXIT_REGRESSION, EXIT_SAME
from esbench.publish.gate.choose_margin import MARGINS, margins_needed, smallest
from esbench.results.entries import read_leaderboard
from esbench.results.statistics.judgment import (
    MARGIN,
    POWER,
    GateRules,
    Sample,
    Verdict,
    judge,
)
from esbench.results.statistics.significance import OMNIBUS

LEADERBOARD = Path(__file__).parents[1] / "results" / "leaderboard"
FEWEST = 10  # seeds of a row
CASES = ((1, 8), (1, 10), (1, 16), (4, 8), (4, 10), (4, 16))  # cells and seeds
EXITS = (EXIT_REGRESSION, EXIT_INCONCLUSIVE, EXIT_SAME)
POWERS = (None, POWER, 0.95)  # None: the margin is 5 %
BASELINES = 2  # of each row
CHECKS = 10  # of each baseline, for each margin and each drop
SPLITS = 1000


def main() -> None:
    """Write both tables."""
    pools = published()
    unchanged, worse = [], []
    for cells, seeds in CASES:
        margins, codes = simulate(pools, cells, seeds)
        for power in POWERS:
            name = f"chosen, power {power:.0%}" if power else f"{MARGIN:.0%}"
            row = [str(cells), str(seeds), name, f"{np.median(margins[power]):.1%}"]
            found = codes[power, 0.0]
            row += [share(found, EXIT_SAME), share(found, EXIT_INCONCLUSIVE)]
            unchanged.append([*row, share(found, EXIT_REGRESSION, digits=1)])
        row = [str(cells), str(seeds), quartiles(margins[POWER])]
        worse.append(row + [share(codes[POWER, drop], code) for drop in DROPS for code in EXITS])
        print(*unchanged[-len(POWERS) :], worse[-1], sep="\n", flush=True)  # noqa: T201
    numbers = [BASELINES * (len(pools) // cells) * CHECKS for cells in (CASES[0][0], CASES[-1][0])]
    about = (
        f"{len(pools)} rows of the leaderboard, each in {BASELINES} baselines. Each share is that "
        f"of {numbers[0]:,} checks of one cell, or of {numbers[1]:,} of four."
    )
    header = ["cells", "seeds", "margin", "median", "no worse", "inconclusive", "false alarm"]
    lines = ["Unchanged code:", "", *markdown(header, unchanged), ""]
    header = ["cells", "seeds", "quartiles of the margins"]
    for drop in DROPS:
        header += [f"drop {drop:.0%}: caught", "inconclusive", "no worse"]
    lines += [
        f"Worse code, with the margins that are chosen for a power of {POWER:.0%}:",
        "",
        *markdown(header, worse),
        "",
        about,
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def published() -> list[Floats]:
    """The scores of rows as shares of their range."""
    return [
        np.array(entry.scores) / abs(entry.cell.reference_score - entry.cell.random_score)
        for entry in read_leaderboard(LEADERBOARD)
        if len(entry.scores) >= FEWEST
    ]


def simulate(
    pools: Sequence[Floats], cells: int, seeds: int
) -> tuple[dict[float | None, list[float]], dict[tuple[float | None, float], Counter[int]]]:
    """The margins by their power, and the exit codes of checks by power and drop."""
    rng = stream(0, Purpose.SIMULATION, cells, seeds)
    kinds = [*((power, 0.0) for power in POWERS), *((POWER, drop) for drop in DROPS)]
    margins: dict[float | None, list[float]] = {power: [] for power in POWERS}
    codes: dict[tuple[float | None, float], Counter[int]] = {kind: Counter() for kind in kinds}
    for group in groups(rng, len(pools), cells):
        own = [pools[place] for place in group]
        bases = [rng.choice(pool, seeds) for pool in own]
        needed = [margins_needed(base, seeds, OMNIBUS) for base in bases]
        chosen = {power: choose(needed, power) for power in POWERS}
        for power, found in chosen.items():
            margins[power] += found
        for _ in range(CHECKS):
            first, *others = (rng.choice(pool, seeds) for pool in own)
            for power, drop in kinds:
                scores = [first - drop, *others]
                codes[power, drop][exit_code(bases, scores, chosen[power])] += 1
    return margins, codes


def groups(rng: np.random.Generator, number: int, cells: int) -> Iterator[list[int]]:
    """The places of the rows in each baseline [cells]."""
    for _ in range(BASELINES):
        yield from rng.permutation(number)[: number // cells * cells].reshape(-1, cells).tolist()


def choose(needed: Sequence[Floats], power: float | None) -> list[float]:
    """The margin of each cell, as ``esbench baseline`` chooses it."""
    if power is None:
        return [MARGIN] * len(needed)
    return [smallest(each, power ** (1 / len(needed))) or MARGINS[-1] for each in needed]


def exit_code(bases: list[Floats], scores: list[Floats], margins: list[float]) -> int:
    """The exit code of a check of these cells."""
    samples = [
        Sample(*each) for each in zip(bases, scores, [1.0] * len(bases), margins, strict=True)
    ]
    judgments = judge(samples, GateRules(), resamples=SPLITS)
    verdicts = {judgment.verdict for judgment in judgments if judgment}
    if Verdict.REGRESSION in verdicts:
        return EXIT_REGRESSION
    return EXIT_INCONCLUSIVE if Verdict.INCONCLUSIVE in verdicts else EXIT_SAME


def share(codes: Counter[int], code: int, digits: int = 0) -> str:
    """The share of checks that end with this code."""
    return f"{codes[code] / codes.total():.{digits}%}"


def quartiles(margins: Sequence[float]) -> str:
    """The quartiles of some margins."""
    return ", ".join(f"{margin:.0%}" for margin in np.quantile(margins, (0.25, 0.5, 0.75)))


if __name__ == "__main__":
    main()
