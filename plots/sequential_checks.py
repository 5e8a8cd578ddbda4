"""Simulates checks that stop when a verdict stands, and writes ``sequential_checks.md`` beside it.

    python plots/sequential_checks.py

One cell, a baseline of 16 seeds, the default levels and a margin of 5 %. A fixed design looks once;
the sequential one looks at 8, 16 and 32 seeds, and spends its levels as ``esbench check
--until-conclusive --max-seeds 32`` does.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from error_rates import SPLITS, markdown
from simulated_checks import DISTRIBUTIONS, Draw

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.judgment import (
    GateRules,
    Sample,
    Verdict,
    judge,
    looks,
    shares_of_looks,
)

BASELINE = 16
DESIGNS = {"8": (8,), "16": (16,), "32": (32,), "8, 16, 32": looks(32)}
DROPS = (0.0, 0.1, 0.2)
REPETITIONS = 300


def main() -> None:
    """Write the table."""
    header = ["scores", "looks at", "mean seeds", "false alarms", "unchanged: no worse"]
    header += [f"drop {drop:.0%}: {what}" for drop in DROPS[1:] for what in ("seeds", "caught")]
    rows = []
    for (name, draw), (title, sizes) in product(DISTRIBUTIONS.items(), DESIGNS.items()):
        row = [name, title]
        for drop in DROPS:
            verdicts, seeds = simulate(draw, sizes, drop)
            row += [f"{seeds:.1f}", f"{verdicts[Verdict.REGRESSION] / REPETITIONS:.1%}"]
            if not drop:
                passed = verdicts[Verdict.NO_WORSE] + verdicts[Verdict.IMPROVEMENT]
                row.append(f"{passed / REPETITIONS:.0%}")
        rows.append(row)
        print(*row, flush=True)  # noqa: T201
    text = "\n".join(markdown(header, rows)) + "\n"
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


def simulate(draw: Draw, sizes: tuple[int, ...], drop: float) -> tuple[Counter[Verdict], float]:
    """The verdicts of all repetitions, and the mean number of seeds at the last look."""
    rng = stream(0, Purpose.SIMULATION)
    verdicts: Counter[Verdict] = Counter()
    seeds = []
    for _ in range(REPETITIONS):
        verdict, size = check(draw(rng, BASELINE, 0.0), draw(rng, sizes[-1], drop), sizes)
        verdicts[verdict] += 1
        seeds.append(size)
    return verdicts, float(np.mean(seeds))


def check(baseline: Floats, scores: Floats, sizes: tuple[int, ...]) -> tuple[Verdict, int]:
    """The verdict on one cell, and the number of seeds at the last look."""
    verdict = Verdict.INCONCLUSIVE
    for size, share in zip(sizes, shares_of_looks(sizes), strict=True):
        sample = Sample(baseline, scores[:size], 1.0)
        (judgment,) = judge([sample], GateRules(share=share), resamples=SPLITS)
        assert judgment is not None
        verdict = judgment.verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict, size


if __name__ == "__main__":
    main()
