"""The gate: compare an output folder with a baseline.

There are two layers. Exact: where package versions and processor are those of the baseline, equal
seeds must give equal digests. Statistical: ``analysis.gate`` judges the scores, on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.publish.gate.baselines import Baseline, load_cells
from esbench.publish.gate.match_baseline import CellMatch, DigestResult, match_cell
from esbench.results.cell import Cell
from esbench.results.statistics.judgment import GateRules, Judgment, Verdict, judge

EXIT_SAME: Final = 0
EXIT_REGRESSION: Final = 1
EXIT_NOT_MEASURED: Final = 3
EXIT_INCONCLUSIVE: Final = 4


@final
@dataclass(frozen=True)
class CellReport:
    """The verdict on a cell's scores, and why it was not measured or a caution.

    ``looks`` are the judgments that led to it: one, or several of a sequential check.
    """

    match: CellMatch
    verdict: Verdict
    reason: str
    looks: tuple[Judgment, ...] = ()

    @property
    def scores(self) -> Floats:
        """The scores of the last look, [runs]; diverged runs as in ``make_sample``."""
        sample = self.match.sample
        return np.empty(0) if sample is None else sample.scores

    @property
    def baseline_scores(self) -> Floats:
        """The scores of the baseline, [runs]; diverged runs as in ``make_sample``."""
        sample = self.match.sample
        return np.array(self.match.frozen.scores) if sample is None else sample.baseline


@final
@dataclass(frozen=True)
class CheckReport:
    """The result of a check; ``new`` are cells of the folder that the baseline does not have.

    If ``exact``, a changed digest fails too; if ``allow_inconclusive``, inconclusive cells pass.
    ``looks`` are the numbers of seeds of a sequential check.
    """

    cells: tuple[CellReport, ...]
    rules: GateRules
    exact: bool
    allow_inconclusive: bool
    new: tuple[str, ...]
    looks: tuple[int, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """The number of cells with a verdict."""
        return sum(cell.verdict is verdict for cell in self.cells)

    @property
    def changed(self) -> int:
        """The number of cells whose digests should equal the baseline's and do not."""
        return sum(cell.match.digests is DigestResult.CHANGED for cell in self.cells)

    @property
    def exit_code(self) -> int:
        """0 no regression, 1 a regression, 3 a cell was not measured, 4 one is inconclusive."""
        if self.count(Verdict.REGRESSION) or (self.exact and self.changed):
            return EXIT_REGRESSION
        if self.count(Verdict.NOT_MEASURED):
            return EXIT_NOT_MEASURED
        undecided = self.count(Verdict.INCONCLUSIVE) and not self.allow_inconclusive
        return EXIT_INCONCLUSIVE if undecided else EXIT_SAME


def check(
    folder: Path,
    baseline: Baseline,
    rules: GateRules,
    exact: bool = False,
    allow_inconclusive: bool = False,
) -> CheckReport:
    """Compare the trials below ``folder`` with a baseline.

    A cell needs at least as many seeds as the baseline has. The statistics of the tests are those
    that the baseline names. ``CheckReport`` describes the flags.
    Errors are those of ``load_cells``.
    """
    rules = replace(rules, statistics=baseline.statistics)
    found = load_cells(folder)
    matches = [
        match_cell(cell, found, len(cell.trials), baseline.origins) for cell in baseline.cells
    ]
    judgments = judge([match.sample for match in matches], rules)
    reports = tuple(map(report_cell, matches, judgments))
    new = new_cells(found, baseline)
    return CheckReport(reports, rules, exact, allow_inconclusive, new)


def new_cells(found: Sequence[Cell], baseline: Baseline) -> tuple[str, ...]:
    """The names of the cells that the baseline does not have."""
    known = {cell.labels for cell in baseline.cells}
    return tuple(cell.title for cell in found if cell.labels not in known)


def report_cell(
    match: CellMatch, judgment: Judgment | None, earlier: tuple[Judgment, ...] = ()
) -> CellReport:
    """The report on a cell after a look; ``earlier`` are the judgments of those before."""
    if judgment is None:
        return CellReport(match, Verdict.NOT_MEASURED, match.reason, earlier)
    # Identical bits or scores are no worse, however few the seeds are.
    identical = match.digests is DigestResult.IDENTICAL or match.has_same_scores
    verdict = Verdict.NO_WORSE if identical else judgment.verdict
    return CellReport(match, verdict, match.reason, (*earlier, judgment))
