"""Simulates checks of policies that fall, by means and by tails, and writes ``tail_checks.md``.

    python plots/tail_checks.py

One cell with a margin of 5 %, as many seeds on both sides, 100 held-out episodes per seed. On the
scale where random actions have 0 and the reference 1, an episode has 0.9, with a deviation of 0.03
between seeds and of 0.05 between episodes. A fall lowers an episode by 0.3.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from error_rates import markdown

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.estimates import tail_mean
from esbench.results.statistics.judgment import GateRules, Sample, Verdict, judge

EPISODES, LEVEL, DEPTH = 100, 0.9, 0.3
BETWEEN_SEEDS, BETWEEN_EPISODES = 0.03, 0.05
REPETITIONS = 200
CHANGES = {
    "unchanged": (0.0, 0.0),
    "falls in 5 % of episodes": (0.05, 0.0),
    "falls in 10 % of episodes": (0.1, 0.0),
    "falls in 25 % of episodes": (0.25, 0.0),
    "falls in 25 %, the others higher: same mean": (0.25, 0.25 * DEPTH),
}


def main() -> None:
    """Write the table."""
    header = ["change", "seeds"]
    header += [f"{by}: {what}" for by in ("means", "tails") for what in ("caught", "no worse")]
    rows = []
    for (name, (falls, higher)), seeds in product(CHANGES.items(), (8, 16)):
        row = [name, str(seeds)]
        for statistic in (np.mean, tail_mean):
            rng = stream(0, Purpose.SIMULATION)
            found: Counter[Verdict] = Counter()
            for _ in range(REPETITIONS):
                sides = (returns(rng, seeds, 0.0, 0.0), returns(rng, seeds, falls, higher))
                before, now = (np.array([float(statistic(own)) for own in side]) for side in sides)
                (judgment,) = judge([Sample(before, now, 1.0)], GateRules())
                assert judgment is not None
                found[judgment.verdict] += 1
            row += [f"{found[v] / REPETITIONS:.1%}" for v in (Verdict.REGRESSION, Verdict.NO_WORSE)]
        rows.append(row)
        print(*row, flush=True)  # noqa: T201
    text = "\n".join(markdown(header, rows)) + "\n"
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


def returns(rng: np.random.Generator, seeds: int, falls: float, higher: float) -> Floats:
    """The returns of [seeds, episodes]; a share ``falls`` is lower by ``DEPTH``."""
    levels = LEVEL + higher + BETWEEN_SEEDS * rng.standard_normal((seeds, 1))
    noise = BETWEEN_EPISODES * rng.standard_normal((seeds, EPISODES))
    fallen: Floats = levels + noise - DEPTH * (rng.random((seeds, EPISODES)) < falls)
    return fallen


if __name__ == "__main__":
    main()
