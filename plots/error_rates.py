"""Measures how often the gate and the intervals are wrong, and writes ``error_rates.md`` beside it.

    python plots/error_rates.py [FOLDER]

With FOLDER, it writes ``error_rates_own_runs.md`` instead: both sides of a check are drawn from the
scores of an output folder with many seeds per cell (``esbench run ci --seeds 0-39 --out FOLDER``).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from simulated_checks import DISTRIBUTIONS, Draw, rates, resampled

from esbench.core.arrays import Floats
from esbench.core.seeding import Purpose, stream
from esbench.results.sources import read_folder
from esbench.results.statistics import estimates
from esbench.results.statistics.estimates import (
    StrataStatistic,
    bootstrap_interval,
    iqm,
    normalized,
    stratified_interval,
)
from esbench.results.statistics.judgment import GateRules, judge
from esbench.results.statistics.significance import OMNIBUS, TestStatistic

CELLS = 4
REPETITIONS = 400
POWER_REPETITIONS = 200
SPLITS = 4000  # per permutation test
INTERVALS = 1000
DROPS = (0.1, 0.2, 0.4)
SEEDS = (6, 8, 10, 16, 32)
FEW_SEEDS = (3, 4, 5)
SCORES = 4000  # intervals of single scores
LARGE = 1_000_000  # runs, whose IQM is taken for that of the distribution
TESTS: Mapping[str, tuple[TestStatistic, ...]] = {"mean": ("mean",), "omnibus": OMNIBUS}


def main() -> None:
    """Write the page."""
    if folder := sys.argv[1:]:
        text = "\n".join(own_runs(Path(folder[0])))
        Path(__file__).with_name("error_rates_own_runs.md").write_text(text, encoding="utf-8")
        return
    lines = ["# How often the gate and the intervals are wrong", ""]
    lines += ["Made by `python plots/error_rates.py`.", ""]
    checks = (
        f"Checks of {CELLS} cells with an alpha of 1 % and a margin of 5 %; {REPETITIONS} of what "
        f"is unchanged, and {POWER_REPETITIONS} of each drop of the first cell's mean, as a share "
        "of the range. Simulated scores:"
    )
    simulated = {name: [draw] * CELLS for name, draw in DISTRIBUTIONS.items()}
    lines += [checks, "", *gate_table(simulated, SEEDS), ""]
    intervals = (
        "How often a 95 % bootstrap interval of the difference of two equal sides covers 0 "
        f"({INTERVALS} pairs each):"
    )
    lines += [intervals, "", *coverage_table(), ""]
    scores = (
        f"How often the 95 % bootstrap interval of a score covers the true IQM ({SCORES} scores):"
    )
    lines += [scores, "", *score_coverage_table()]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def gate_table(cases: Mapping[str, Sequence[Draw]], seeds: Sequence[int]) -> list[str]:
    """The false alarms and the power of checks with these cells, where the first cell drops."""
    header = ["scores", "seeds", "test", "false alarms", "unchanged: no worse"]
    header += [f"drop {drop:.0%}: caught" for drop in DROPS]
    header += [f"drop {DROPS[0]:.0%}: no worse"]
    rows = []
    quick = partial(judge, resamples=SPLITS)
    for (name, draws), runs, (test, statistics) in product(cases.items(), seeds, TESTS.items()):
        common = {"runs": runs, "rules": GateRules(statistics=statistics)}
        same = rates(quick, draws, drop=0.0, repetitions=REPETITIONS, **common)
        rows.append([name, str(runs), test, f"{same.failed:.1%}", f"{same.passed:.0%}"])
        dropped = [
            rates(quick, draws, drop=drop, repetitions=POWER_REPETITIONS, **common)
            for drop in DROPS
        ]
        rows[-1] += [f"{found.caught:.0%}" for found in dropped] + [f"{dropped[0].passed:.0%}"]
        print(*rows[-1], flush=True)  # noqa: T201
    return markdown(header, rows)


def own_runs(folder: Path) -> list[str]:
    """Return the gate's error rates on scores that were measured."""
    draws: dict[str, Draw] = {}
    notes = []
    for cell in read_folder(folder):
        scale = cell.random_score, cell.reference_score
        scores = [trial.result()["score"] for trial in cell.trials if trial.is_done]
        pool = np.array([normalized(score, *scale) for score in scores])
        draws[cell.environment] = resampled(pool)
        about = f"{len(pool)} seeds, mean {pool.mean():.2f}, deviation {pool.std():.3f}"
        notes.append(f"- {cell.name} on {cell.environment}: {about}, lowest {pool.min():.2f}")
    cases = {
        name: [draw, *(other for key, other in draws.items() if key != name)]
        for name, draw in draws.items()
    }
    return [
        "Scores of our own runs, drawn for both sides from the seeds below, with replacement:",
        "",
        *gate_table(cases, (5, 8)),
        "",
        *notes,
        "",
    ]


def coverage_table() -> list[str]:
    """The coverage of 95 % intervals of a difference of two sides."""
    statistics = {"IQM": difference_of_iqms, "mean": difference_of_means}
    header = ["scores", "seeds a side"]
    header += [f"{name}, {method}" for name in statistics for method in ("percentile", "BCa")]
    rows = []
    for (name, draw), runs in product(DISTRIBUTIONS.items(), SEEDS):
        rng = stream(0, Purpose.SIMULATION, runs)
        samples = [(draw(rng, runs, 0.0), draw(rng, runs, 0.0)) for _ in range(INTERVALS)]
        rows.append([name, str(runs)])
        for statistic, interval in product(
            statistics.values(), (stratified_interval, bca_interval)
        ):
            covered = [
                low <= 0 <= high
                for sides in samples
                for low, high in [interval(statistic, sides, resamples=999)]
            ]
            rows[-1].append(f"{np.mean(covered):.1%}")
        print(*rows[-1], flush=True)  # noqa: T201
    return markdown(header, rows)


def score_coverage_table() -> list[str]:
    """The coverage of the 95 % intervals in tables of scores."""
    rows = []
    for name, draw in DISTRIBUTIONS.items():
        rng = stream(0, Purpose.SIMULATION)
        truth = iqm(draw(rng, LARGE, 0.0))
        rows.append([name])
        for runs in (*FEW_SEEDS, *SEEDS):
            low, high = bootstrap_interval(draw(rng, runs * SCORES, 0.0).reshape(runs, SCORES))
            rows[-1].append(f"{np.mean((low <= truth) & (truth <= high)):.0%}")
    return markdown(["scores", *(f"{runs} seeds" for runs in (*FEW_SEEDS, *SEEDS))], rows)


def bca_interval(
    statistic: StrataStatistic, strata: Sequence[Floats], resamples: int
) -> tuple[float, float]:
    """SciPy's bias-corrected and accelerated interval, of the same resamples.

    Efron, "Better bootstrap confidence intervals", JASA 82, 1987. The percentile interval where it
    is not defined, because all runs of a side are equal.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        # Dividing by a spread of zero is how SciPy finds out that BCa is not defined.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DegenerateDataWarning)
        low, high = bootstrap(
            strata,
            lambda *drawn, axis: statistic(*drawn),
            vectorized=True,
            n_resamples=resamples,
            method="BCa",
            rng=stream(0, Purpose.BOOTSTRAP),
        ).confidence_interval
    if math.isfinite(low) and math.isfinite(high):
        return float(low), float(high)
    return stratified_interval(statistic, strata, resamples)


def difference_of_iqms(first: Floats, second: Floats) -> Floats:
    """Return the difference of interquartile means."""
    return estimates.iqm_across(first) - estimates.iqm_across(second)


def difference_of_means(first: Floats, second: Floats) -> Floats:
    """Return the difference of means."""
    return estimates.mean_across(first) - estimates.mean_across(second)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table, numbers to the right."""
    rule = [":--", *["--:"] * (len(header) - 1)]
    return ["| " + " | ".join(cells_) + " |" for cells_ in (header, rule, *rows)]


if __name__ == "__main__":
    main()
