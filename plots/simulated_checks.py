"""Simulated error rates of the gate: false alarms and detected regressions.

Scores are drawn on the scale where random actions have 0 and the reference 1, from distributions
that are typical of training seeds: about normal, heavy-tailed, with seeds that fail, and bimodal,
where a drop means that more seeds fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.statistics.judgment import GateRules, Judgment, Sample, Verdict

Judge: TypeAlias = Callable[[Sequence[Sample | None], GateRules], list[Judgment | None]]
Draw: TypeAlias = Callable[[np.random.Generator, int, float], Floats]
"""Draws scores from a generator, the number of seeds, and the drop of their mean."""

DEVIATION: Final = 0.05
FAILING: Final = 0.1
TAIL_DEGREES: Final = 3


def normal(rng: np.random.Generator, runs: int, drop: float) -> Floats:
    """Scores [runs] with mean 1 - ``drop`` and deviation 0.05."""
    return rng.normal(1 - drop, DEVIATION, runs)


def bimodal(rng: np.random.Generator, runs: int, drop: float) -> Floats:
    """Scores [runs] near 1; a share of 0.1 + ``drop`` of the seeds fails, and has 0."""
    learns = rng.random(runs) >= FAILING + drop
    return np.where(learns, 1.0, 0.0) + rng.normal(0, DEVIATION / 5, runs)


def heavy_tailed(rng: np.random.Generator, runs: int, drop: float) -> Floats:
    """Scores [runs] around 1 - ``drop``: Student's t with three degrees of freedom."""
    return 1 - drop + DEVIATION * rng.standard_t(TAIL_DEGREES, runs)


def with_failures(rng: np.random.Generator, runs: int, drop: float) -> Floats:
    """Scores [runs] as ``normal``, but a tenth of the seeds fails, and has 0 to 0.5.

    Those that learn drop by so much that the mean drops by ``drop``.
    """
    learns = rng.random(runs) >= FAILING
    return np.where(learns, normal(rng, runs, drop / (1 - FAILING)), rng.uniform(0, 0.5, runs))


DISTRIBUTIONS: Final[Mapping[str, Draw]] = {
    "normal": normal,
    "bimodal": bimodal,
    "heavy-tailed": heavy_tailed,
    "some seeds fail": with_failures,
}


def resampled(pool: Floats) -> Draw:
    """A ``Draw`` that samples measured normalized scores, [runs], with replacement."""
    return lambda rng, runs, drop: rng.choice(pool, runs) - drop


@final
@dataclass(frozen=True)
class Rates:
    """The results of many simulated checks.

    Attributes:
        failed: share of checks with a regression in any cell.
        caught: share of dropped cells judged a regression; NaN without any.
        passed: share of dropped cells (of all cells if none dropped) judged no worse or better.
    """

    failed: float
    caught: float
    passed: float


def rates(
    judge: Judge,
    draws: Sequence[Draw],
    *,
    runs: int,
    drop: float,
    rules: GateRules,
    repetitions: int,
    seed: int = 0,
) -> Rates:
    """The error rates of ``gate.judge``, or of a double of it.

    There is one cell per draw, with as many seeds of the baseline as of the check. The mean of the
    first cell drops by ``drop``; 0 simulates A/A checks.
    """
    rng = stream(seed, Purpose.SIMULATION)
    failed = 0
    verdicts: list[Verdict] = []
    for _ in range(repetitions):
        samples = [
            Sample(draw(rng, runs, 0.0), draw(rng, runs, 0.0 if cell else drop), 1.0)
            for cell, draw in enumerate(draws)
        ]
        found = [judgment.verdict for judgment in judge(samples, rules) if judgment]
        failed += Verdict.REGRESSION in found
        verdicts += found[:1] if drop else found
    return Rates(
        failed=failed / repetitions,
        caught=_share(verdicts, Verdict.REGRESSION) if drop else float("nan"),
        passed=_share(verdicts, Verdict.NO_WORSE, Verdict.IMPROVEMENT),
    )


def _share(verdicts: Sequence[Verdict], *wanted: Verdict) -> float:
    return sum(verdict in wanted for verdict in verdicts) / len(verdicts)
