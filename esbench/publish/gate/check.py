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
from esbench.publish.gate.baselines import Baseline, judged_spec, load_cells
from esbench.publish.gate.match_baseline import CellReport, DigestResult, find_cell, match_cell
from esbench.results.cell import Cell
from esbench.results.statistics.judgment import (
    GateRules,
    Verdict,
    judge,
    looks,
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
) -> CheckReport:
    """Compare the trials below ``folder`` with a baseline.

    A cell needs at least as many seeds as the baseline has. The statistics of the tests are those
    that the baseline names. ``CheckReport`` describes the flags.
    Errors are those of ``load_cells``.
    """
    rules = replace(rules, statistics=baseline.statistics)
    found, wanted = load_cells(folder), baseline.to_cells()
    matches = [match_cell(cell, found, len(cell.runs)) for cell in wanted]
    judgments = judge([match.sample for match in matches], rules)
    reports = tuple(map(CellReport.judged, matches, judgments))
    new = _new_cells(found, wanted)
    return CheckReport(reports, rules, exact, allow_inconclusive, new)


def _new_cells(found: Sequence[Cell], wanted: Sequence[Cell]) -> tuple[str, ...]:
    known = {cell.labels for cell in wanted}
    return tuple(cell.title for cell in found if cell.labels not in known)


def check_until_conclusive(
    folder: Path,
    baseline: Baseline,
    rules: GateRules,
    max_seeds: int,
    train: Train,
    exact: bool = False,
    allow_inconclusive: bool = False,
) -> CheckReport:
    """Judge the trials below ``folder`` at each look, after ``train`` has trained what is missing.

    A cell without trials, or with some seeds of the baseline, starts with the seeds of the
    baseline. New seeds are numbered above the known ones. Other arguments and errors are those of
    ``check``.
    """
    rules = replace(rules, statistics=baseline.statistics)
    sizes = looks(max_seeds)
    shares = shares_of_looks(sizes)
    resamples_needed(replace(rules, share=min(shares)), len(baseline.cells))  # before training
    wanted = baseline.to_cells()
    reports: list[CellReport | None] = [None] * len(wanted)
    for look, (seeds, share) in enumerate(zip(sizes, shares, strict=True)):
        undecided = [
            cell
            for cell, report in zip(wanted, reports, strict=True)
            if report is None or report.verdict is Verdict.INCONCLUSIVE
        ]
        if not undecided:
            break
        if trials := _missing_trials(undecided, folder, seeds):
            train(seeds, trials)
        found = load_cells(folder)
        matches = [
            match_cell(cell, [_part(each, cell, seeds) for each in found], seeds)
            if cell in undecided
            else None
            for cell in wanted
        ]
        part = replace(rules, share=share)
        judgments = judge([match and match.sample for match in matches], part, seed=look)
        for place, (match, judgment) in enumerate(zip(matches, judgments, strict=True)):
            if match is not None:
                earlier = reports[place]
                reports[place] = match.judged(judgment, earlier.looks if earlier else ())
    decided = tuple(report for report in reports if report is not None)
    new = _new_cells(load_cells(folder), wanted)
    return CheckReport(decided, rules, exact, allow_inconclusive, new, sizes)


def _missing_trials(cells: Sequence[Cell], folder: Path, seeds: int) -> list[Trial]:
    """The trials of a look at ``seeds`` seeds that are not done."""
    found = load_cells(folder) if has_trials(folder) else []
    trials = []
    for frozen in cells:
        cell, _ = find_cell(frozen, found)
        for seed in _seeds(frozen, cell, seeds):
            trial = trial_at(judged_spec(frozen, seed), *frozen.labels, folder)
            if not trial.is_done and not _is_elsewhere(cell, trial):
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


def _is_elsewhere(cell: Cell | None, trial: Trial) -> bool:
    """Whether a trial is stored in a folder that ``esbench run`` would not have chosen."""
    return cell is not None and any(
        run.seed == trial.spec.seed and run.folder.path != trial.folder.path for run in cell.runs
    )


def _part(cell: Cell, frozen: Cell, seeds: int) -> Cell:
    """The trials that a look at this number of seeds judges, sorted by seed.

    A cell that is not that of the baseline may have none of the seeds; it stays as it is.
    """
    judged = _seeds(frozen, cell, seeds)
    runs = tuple(run for run in cell.runs if run.seed in judged)
    return replace(cell, runs=runs) if runs else cell
