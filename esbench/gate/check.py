"""The gate: holds an output folder to a baseline, cell by cell, in two layers.

Exact: where package versions and processor are the baseline's, the same seeds must give the same
digests. Any difference is a change of meaning, seen at once and without noise. Statistical: the
scores are judged by ``analysis.gate``, wherever and with whatever they were measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.analysis.gate import Judgement, Rules, Verdict, judge
from esbench.analysis.statistics import Floats
from esbench.gate.baselines import Baseline, FrozenCell
from esbench.gate.match_baseline import (
    Measured,
    Trace,
    find,
    labels_of,
    sample_of,
    scores_of,
    seeds_of,
    trace,
)
from esbench.store.seed_groups import cells, require_distinct_seeds

EXIT_SAME: Final = 0
EXIT_REGRESSION: Final = 1
EXIT_NOT_MEASURED: Final = 3
EXIT_INCONCLUSIVE: Final = 4


@final
@dataclass(frozen=True)
class CellReport:
    """What is known of one cell of the baseline.

    Attributes:
        frozen: the baseline's cell.
        verdict: of its scores, over both stages.
        trace: of its digests; trace_detail: where they part, or why they cannot be compared.
        reason: why it was not measured, or what to beware of; empty if there is nothing.
        seeds: of the first stage.
        baseline_scores, scores: [runs] of the first stage, diverged ones as in ``sample_of``.
        stages: the judgement of each stage it took part in.
    """

    frozen: FrozenCell
    verdict: Verdict
    trace: Trace
    trace_detail: str
    reason: str
    seeds: tuple[int, ...]
    baseline_scores: Floats
    scores: Floats
    stages: tuple[Judgement, ...]


@final
@dataclass(frozen=True)
class Report:
    """A whole check.

    Attributes:
        cells: in the order of the baseline.
        rules: what was decided before.
        exact: whether a changed digest fails the check too.
        allow_inconclusive: whether it passes with cells of which nothing could be shown.
        new: cells of the folder that the baseline does not have.
    """

    cells: tuple[CellReport, ...]
    rules: Rules
    exact: bool
    allow_inconclusive: bool
    new: tuple[str, ...]

    def count(self, verdict: Verdict) -> int:
        """Return the number of cells with a verdict."""
        return sum(cell.verdict is verdict for cell in self.cells)

    @property
    def changed(self) -> int:
        """The number of cells whose digests are not the baseline's, where they should be."""
        return sum(cell.trace is Trace.CHANGED for cell in self.cells)

    @property
    def exit_code(self) -> int:
        """0 no regression, 1 a regression, 3 a cell was not measured, 4 one is inconclusive."""
        if self.count(Verdict.REGRESSION) or (self.exact and self.changed):
            return EXIT_REGRESSION
        if self.count(Verdict.NOT_MEASURED):
            return EXIT_NOT_MEASURED
        open_ = self.count(Verdict.INCONCLUSIVE) and not self.allow_inconclusive
        return EXIT_INCONCLUSIVE if open_ else EXIT_SAME


def check(
    root: Path,
    baseline: Baseline,
    rules: Rules,
    exact: bool = False,
    allow_inconclusive: bool = False,
) -> Report:
    """Hold the trials below ``root`` to a baseline, in the first stage.

    A cell must have as many seeds as the baseline, or more.

    Args:
        root: an output folder.
        baseline: what it is held to.
        rules: of the check, both stages.
        exact: whether a changed digest fails the check too.
        allow_inconclusive: whether it passes with cells of which nothing could be shown.

    Raises:
        UsageError: there is no trial, one is not readable, or a seed lies there twice.
    """
    found = cells(root)
    require_distinct_seeds(found)
    measured = [find(frozen, found, least=len(frozen.trials)) for frozen in baseline.cells]
    samples = [
        None if item.cell is None else sample_of(item.frozen, scores_of(item.cell))
        for item in measured
    ]
    judgements = judge(samples, rules)
    traces = [trace(item, baseline.origins) for item in measured]
    reports = tuple(
        _report(item, judgement, *digests)
        for item, judgement, digests in zip(measured, judgements, traces, strict=True)
    )
    known = {(c.environment, c.algorithm, c.policy) for c in baseline.cells}
    new = tuple(
        f"{cell.name} on {cell.environment}" for cell in found if labels_of(cell) not in known
    )
    return Report(reports, rules, exact, allow_inconclusive, new)


def _report(
    item: Measured, judgement: Judgement | None, found: Trace, trace_detail: str
) -> CellReport:
    before = [trial.score for trial in item.frozen.trials]
    if item.cell is None or judgement is None:
        finite = np.array([score for score in before if score is not None])
        return CellReport(
            frozen=item.frozen,
            verdict=Verdict.NOT_MEASURED,
            trace=found,
            trace_detail=trace_detail,
            reason=item.reason,
            seeds=(),
            baseline_scores=finite,
            scores=np.empty(0),
            stages=(),
        )
    sample = sample_of(item.frozen, scores_of(item.cell))
    return CellReport(
        frozen=item.frozen,
        # What has not changed by one bit is no worse, however few its seeds are.
        verdict=Verdict.NO_WORSE if found is Trace.IDENTICAL else judgement.verdict,
        trace=found,
        trace_detail=trace_detail,
        reason=item.reason,
        seeds=seeds_of(item.cell),
        baseline_scores=sample.baseline,
        scores=sample.scores,
        stages=(judgement,),
    )
