"""The second stage of a check: fresh seeds for inconclusive cells, fixed before any is trained.

Its folder belongs to one first stage, so scores of older code are never judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from esbench.analysis.gate import Verdict, judge
from esbench.errors import UsageError
from esbench.files import read_bytes, write_bytes
from esbench.gate.baselines import load_cells
from esbench.gate.check import CellReport, CheckReport
from esbench.gate.match_baseline import CellMatch, match_cell
from esbench.store.cells import Cell
from esbench.store.trial_folder import has_trials, results_digest
from esbench.training.trials import Trial, trial_at

MARKER: Final = "second-stage.sha256"
SEEDS_FACTOR: Final = 2  # fresh seeds per seed of the first stage


def require_apart(first: Path, second: Path) -> None:
    """Raise a UsageError if one folder is the other or contains it, which would mix the seeds."""
    ours, theirs = second.resolve(), first.resolve()
    if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
        raise UsageError(
            f"--second-stage {second}: expected a folder outside of {first}, because the fresh "
            "seeds are judged on their own"
        )


def bind(first: Path, second: Path) -> None:
    """Make ``second`` the second stage of the present results below ``first``.

    Raises:
        UsageError: It holds trials of another first stage, or cannot be written.
    """
    identity = results_digest(first)
    marker = second / MARKER
    known = read_bytes(marker).decode(errors="replace") if marker.exists() else ""
    if known != identity and has_trials(second):
        raise UsageError(
            f"--second-stage {second} holds trials of another first stage than the present "
            f"{first}; expected an empty folder"
        )
    write_bytes(marker, identity.encode())


def plan(report: CheckReport, second: Path) -> list[Trial]:
    """The trials of the second stage: twice as many seeds, numbered above all known ones.

    Raises:
        UsageError: This version does not understand a cell's specification.
    """
    return [
        trial_at(cell.match.frozen.trial_spec(seed), *cell.match.frozen.labels, second)
        for cell in report.cells
        if cell.verdict is Verdict.INCONCLUSIVE
        for seed in _fresh_seeds(cell)
    ]


def decide(report: CheckReport, second: Path) -> CheckReport:
    """Judge the inconclusive cells by their fresh seeds; where one is missing, it is not measured.

    Errors are those of ``load_cells``.
    """
    found = load_cells(second) if has_trials(second) else []
    matches = [_fresh_match(cell, found) for cell in report.cells]
    judgements = judge([match and match.sample for match in matches], report.rules, seed=1)
    decided = []
    for cell, match, judgement in zip(report.cells, matches, judgements, strict=True):
        if judgement is not None:
            stages = (*cell.stages, judgement)
            decided.append(replace(cell, verdict=judgement.verdict, stages=stages))
        elif match is not None:
            reason = f"second stage: {match.reason}"
            decided.append(replace(cell, verdict=Verdict.NOT_MEASURED, reason=reason))
        else:
            decided.append(cell)
    return replace(report, cells=tuple(decided))


def _fresh_seeds(cell: CellReport) -> range:
    first = 1 + max([*cell.match.seeds, *(trial.seed for trial in cell.match.frozen.trials)])
    return range(first, first + SEEDS_FACTOR * len(cell.match.seeds))


def _fresh_match(cell: CellReport, found: Sequence[Cell]) -> CellMatch | None:
    """The trials of a cell's fresh seeds; None if the first stage decided."""
    if cell.verdict is not Verdict.INCONCLUSIVE:
        return None
    wanted = _fresh_seeds(cell)
    match = match_cell(cell.match.frozen, found, len(wanted), origins=())
    if match.cell is None or match.seeds == tuple(wanted):
        return match
    expected = f"{wanted.start} to {wanted.stop - 1}"
    return replace(match, cell=None, reason=f"seeds {match.seeds}; expected {expected}")
