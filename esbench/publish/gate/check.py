"""The gate: compare an output folder with a baseline.

There are two layers. Exact: where package versions and processor are those of the baseline, equal
seeds must give equal digests. Statistical: ``judgment`` judges the scores, on any machine.

A sequential check trains more seeds until it has a verdict, at looks that are fixed in advance. The
first look judges the first 8 seeds of each cell, and every later one twice as many, up to the
largest number. A cell whose verdict stands is not trained further. Each look spends a part of the
error levels; all parts together are the promised levels (``judgment.shares_of_looks``), so
the promise holds however the looks depend on each other. The seeds of a look are the same after an
interruption, so the same command continues the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.experiment.trials import Trial, trial_at
from esbench.publish.gate.match_baseline import (
    CellReport,
    DigestResult,
    find_cell,
    lasting_problem,
    match_cell,
)
from esbench.results.baselines import Baseline, judged_spec
from esbench.results.cell import Cell
from esbench.results.sources import load_cells
from esbench.results.statistics.judgment import (
    GateRules,
    Verdict,
    judge,
    resamples_needed,
    shares_of_looks,
)
from esbench.store.find_trials import has_trials

Train: TypeAlias = Callable[[int, Sequence[Trial]], object]
"""Trains the trials that a look at this number of seeds lacks."""

EXIT_SAME: Final = 0
EXIT_REGRESSION: Final = 1
EXIT_NOT_MEASURED: Final = 3
EXIT_INCONCLUSIVE: Final = 4


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
        return sum(cell.digests is DigestResult.CHANGED for cell in self.cells)

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
    sequence: Sequence[int] = (),
    train: Train | None = None,
) -> CheckReport:
    """Compare the trials below ``folder`` with a baseline.

    A cell needs at least as many seeds as the baseline has. The statistics of the tests are those
    that the baseline names, and so are the margins, unless the rules have one. ``CheckReport``
    describes the flags.

    With a ``sequence`` of ``looks``, the trials are judged at each of these numbers of seeds, after
    ``train`` has trained what is missing. A cell without trials, or with some seeds of the
    baseline, starts with the seeds of the baseline. New seeds are numbered above the known ones.

    Errors are those of ``load_cells``.
    """
    rules = replace(rules, statistics=baseline.statistics)
    shares = shares_of_looks(sequence) if sequence else [1.0]
    resamples_needed(replace(rules, share=min(shares)), len(baseline.cells))  # before training
    wanted = baseline.to_cells()
    found = load_cells(folder) if train is None or has_trials(folder) else []
    reports = [CellReport(cell, verdict=Verdict.INCONCLUSIVE) for cell in wanted]
    for look, (seeds, share) in enumerate(zip(sequence or [0], shares, strict=True)):
        left = [report.frozen for report in reports if report.verdict is Verdict.INCONCLUSIVE]
        if train and (missing := _missing_trials(left, found, seeds, folder)):
            train(seeds, missing)
            found = load_cells(folder)
        matches = [
            match_cell(cell, [_part(each, cell, seeds) for each in found], seeds or len(cell.runs))
            if cell in left
            else None
            for cell in wanted
        ]
        samples = [match and match.sample for match in matches]
        judgments = judge(samples, replace(rules, share=share), seed=look)
        reports = [
            report if match is None else match.judged(judgment, report.looks)
            for report, match, judgment in zip(reports, matches, judgments, strict=True)
        ]
    known = {cell.labels for cell in wanted}
    new = tuple(cell.title for cell in found if cell.labels not in known)
    return CheckReport(tuple(reports), rules, exact, allow_inconclusive, new, tuple(sequence))


def _missing_trials(
    left: Sequence[Cell], found: Sequence[Cell], seeds: int, folder: Path
) -> list[Trial]:
    """The trials of a look at ``seeds`` seeds that are not done and would change a verdict."""
    trials = []
    for frozen in left:
        cell, _ = find_cell(frozen, found)
        if cell is not None and lasting_problem(cell):
            continue
        stored = {} if cell is None else {run.seed: run.folder.path for run in cell.runs}
        for seed in _seeds(frozen, cell, seeds):
            trial = trial_at(judged_spec(frozen, seed), *frozen.labels, folder)
            # A trial may lie in a folder that ``esbench run`` would not have chosen.
            is_here = stored.get(seed, trial.folder.path) == trial.folder.path
            if is_here and not trial.is_done:
                trials.append(trial)
    return trials


def _seeds(frozen: Cell, cell: Cell | None, number: int) -> list[int]:
    """The seeds of a look: those of the baseline, other stored ones, and new ones.

    A cell that shares no seed with the baseline does not get the baseline's. No seed that is
    trained later changes the first ones of this order, so a look is the same when it is repeated.
    """
    baseline = sorted(frozen.seeds)
    stored = () if cell is None else cell.seeds
    shared = not stored or not set(stored).isdisjoint(baseline)
    known = [*baseline, *(seed for seed in stored if seed not in baseline)] if shared else stored
    new = (seed for seed in count(max(known) + 1) if seed not in baseline)
    return [*known[:number], *islice(new, max(0, number - len(known)))]


def _part(cell: Cell, frozen: Cell, seeds: int) -> Cell:
    """The trials that a look at this number of seeds judges, sorted by seed; all for 0.

    A cell that is not that of the baseline may have none of the seeds; it stays as it is.
    """
    judged = _seeds(frozen, cell, seeds) if seeds else ()
    runs = tuple(run for run in cell.runs if run.seed in judged)
    return replace(cell, runs=runs) if runs else cell
