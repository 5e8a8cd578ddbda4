"""A check that trains more seeds until it has a verdict, at looks that are fixed in advance.

The first look judges the first 8 seeds of each cell, and every later one twice as many, up to the
largest number. A cell whose verdict stands is not trained further. Each look spends a part of the
error levels; all parts together are the promised levels (``analysis.gate.shares_of_looks``), so the
promise holds however the looks depend on each other.

The seeds of a look are the same after an interruption, so the same command continues the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import TypeAlias

from esbench.experiment.trials import Trial, trial_at
from esbench.publish.gate.baselines import Baseline, FrozenCell, load_cells
from esbench.publish.gate.check import CellReport, CheckReport, new_cells, report_cell
from esbench.publish.gate.match_baseline import find_cell, match_cell
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
    reports: list[CellReport | None] = [None] * len(baseline.cells)
    for look, (seeds, share) in enumerate(zip(sizes, shares, strict=True)):
        still_open = [each is None or each.verdict is Verdict.INCONCLUSIVE for each in reports]
        cells = [cell for cell, is_open in zip(baseline.cells, still_open, strict=True) if is_open]
        if not cells:
            break
        if trials := _missing_trials(cells, folder, seeds):
            train(seeds, trials)
        found = load_cells(folder)
        matches = [
            match_cell(cell, [_part(each, cell, seeds) for each in found], seeds, baseline.origins)
            if is_open
            else None
            for cell, is_open in zip(baseline.cells, still_open, strict=True)
        ]
        part = replace(rules, share=share)
        judgments = judge([match and match.sample for match in matches], part, seed=look)
        for place, (match, judgment) in enumerate(zip(matches, judgments, strict=True)):
            if match is not None:
                earlier = reports[place]
                reports[place] = report_cell(match, judgment, earlier.looks if earlier else ())
    decided = tuple(report for report in reports if report is not None)
    new = new_cells(load_cells(folder), baseline)
    return CheckReport(decided, rules, exact, allow_inconclusive, new, sizes)


def _missing_trials(cells: Sequence[FrozenCell], folder: Path, seeds: int) -> list[Trial]:
    """The trials of a look at ``seeds`` seeds that are not done."""
    found = load_cells(folder) if has_trials(folder) else []
    trials = []
    for frozen in cells:
        cell, _ = find_cell(frozen, found)
        for seed in _seeds(frozen, cell, seeds):
            trial = trial_at(frozen.judged_spec(seed), *frozen.labels, folder)
            if not trial.is_done and not _is_elsewhere(cell, trial):
                trials.append(trial)
    return trials


def _seeds(frozen: FrozenCell, cell: Cell | None, number: int) -> list[int]:
    """The seeds of a look: those of the baseline, other stored ones, and new ones.

    A cell that shares no seed with the baseline does not get the baseline's. No seed that is
    trained later changes the first ones of this order, so a look is the same when it is repeated.
    """
    baseline = sorted(trial.seed for trial in frozen.trials)
    stored = () if cell is None else cell.seeds
    shared = not stored or not set(stored).isdisjoint(baseline)
    known = [*baseline, *(seed for seed in stored if seed not in baseline)] if shared else stored
    new = (seed for seed in count(max(known) + 1) if seed not in baseline)
    return [*known[:number], *islice(new, max(0, number - len(known)))]


def _is_elsewhere(cell: Cell | None, trial: Trial) -> bool:
    """Whether a trial is stored in a folder that ``esbench run`` would not have chosen."""
    return cell is not None and any(
        seed == trial.spec.seed and stored.path != trial.folder.path
        for seed, stored in zip(cell.seeds, cell.trials, strict=True)
    )


def _part(cell: Cell, frozen: FrozenCell, seeds: int) -> Cell:
    """The trials that a look at this number of seeds judges, sorted by seed.

    A cell that is not that of the baseline may have none of the seeds; it stays as it is.
    """
    judged = _seeds(frozen, cell, seeds)
    places = [place for place, seed in enumerate(cell.seeds) if seed in judged]
    if not places:
        return cell
    return replace(
        cell,
        runs=tuple(cell.runs[place] for place in places),
    )
