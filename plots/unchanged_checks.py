"""Measures how often checks of unchanged code fail, and writes ``unchanged_checks.md`` beside it.

    python plots/unchanged_checks.py

The scores are those of the rows of the leaderboard with ten seeds or more. Baseline and checks are
drawn from the seeds of a row with replacement, so no digests are equal. A baseline has a margin of
5 %, or those that ``esbench baseline`` chooses for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from error_rates import markdown

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.publish.gate.check import EXIT_INCONCLUSIVE, EXIT_REGRESSION, EXIT_SAME
from esbench.publish.gate.choose_margin import MARGINS, margins_needed, smallest
from esbench.results.entries import read_leaderboard
from esbench.results.statistics.judgment import MARGIN, GateRules, Sample, Verdict, judge
from esbench.results.statistics.significance import OMNIBUS

LEADERBOARD = Path(__file__).parents[1] / "results" / "leaderboard"
FEWEST = 10  # seeds of a row
CASES = ((1, 8), (1, 10), (1, 16), (4, 8), (4, 10), (4, 16))  # cells and seeds
POWERS = (0.8, 0.95)
CHECKS = 10  # of each baseline
SPLITS = 1000


def main() -> None:
    """Write the table."""
    pools = published()
    header = ["cells", "seeds", "margin", "median", "exit 0", "exit 4", "exit 1"]
    rows = []
    for cells, seeds in CASES:
        rng = stream(0, Purpose.SIMULATION, cells, seeds)
        names = [f"{MARGIN:.0%}", *(f"chosen, power {power:.0%}" for power in POWERS)]
        codes: dict[str, Counter[int]] = {name: Counter() for name in names}
        margins: dict[str, list[float]] = {name: [] for name in names}
        for group in groups(rng, len(pools), cells):
            own = [pools[place] for place in group]
            bases = [rng.choice(pool, seeds) for pool in own]
            needed = [margins_needed(base, seeds, OMNIBUS) for base in bases]
            chosen = [[MARGIN] * len(own)] + [
                [smallest(each, power ** (1 / len(own))) or MARGINS[-1] for each in needed]
                for power in POWERS
            ]
            for name, found in zip(names, chosen, strict=True):
                margins[name] += found
            for _ in range(CHECKS):
                scores = [rng.choice(pool, seeds) for pool in own]
                for name, found in zip(names, chosen, strict=True):
                    codes[name][exit_code(bases, scores, found)] += 1
        for name, found in codes.items():
            total = found.total()
            row = [str(cells), str(seeds), name, f"{np.median(margins[name]):.1%}"]
            row += [f"{found[code] / total:.0%}" for code in (EXIT_SAME, EXIT_INCONCLUSIVE)]
            rows.append([*row, f"{found[EXIT_REGRESSION] / total:.2%}"])
            print(*rows[-1], total, flush=True)  # noqa: T201
    about = (
        f"{len(pools)} rows of the leaderboard, each in one baseline of a line, or in two if these "
        f"have several cells, with {CHECKS} checks of each baseline."
    )
    text = "\n".join([*markdown(header, rows), "", about])
    Path(__file__).with_suffix(".md").write_text(text + "\n", encoding="utf-8")


def published() -> list[Floats]:
    """The scores of rows as shares of their range."""
    return [
        np.array(entry.scores) / abs(entry.cell.reference_score - entry.cell.random_score)
        for entry in read_leaderboard(LEADERBOARD)
        if len(entry.scores) >= FEWEST
    ]


def groups(rng: np.random.Generator, number: int, cells: int) -> Iterator[list[int]]:
    """The places of the rows in each baseline [cells]; with several cells, each row is in two."""
    for _ in range(min(cells, 2)):
        yield from rng.permutation(number)[: number // cells * cells].reshape(-1, cells).tolist()


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


if __name__ == "__main__":
    main()
