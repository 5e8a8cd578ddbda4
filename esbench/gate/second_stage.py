"""The second stage of a check: fresh seeds for inconclusive cells.

The cells and the number of seeds are fixed before any of them is trained. The folder of a second
stage belongs to one first stage, so scores of older code are never judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from esbench.analysis.gate import Sample, Verdict, judge
from esbench.errors import UsageError
from esbench.files import read_bytes, write_bytes
from esbench.gate.check import CellReport, CheckReport, load_cells
from esbench.gate.match_baseline import match_cell
from esbench.store.cells import Cell
from esbench.store.trial_folder import has_trials, results_digest
from esbench.training.trials import Trial, trial_at

MARKER: Final = "second-stage.sha256"
SEEDS_FACTOR: Final = 2  # fresh seeds per seed of the first stage


def require_apart(first: Path, second: Path) -> None:
    """Refuse a folder that would mix the fresh seeds with the first ones.

    Raises:
        UsageError: One folder is the other, or contains it.
    """
    ours, theirs = second.resolve(), first.resolve()
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
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
    """The trials of the second stage: fresh seeds of the inconclusive cells.

    There are twice as many as in the first stage, numbered above all known seeds.

    Raises:
        UsageError: This version does not understand a cell's specification.
    """
    return [
        trial_at(cell.frozen.trial_spec(seed), *cell.frozen.labels, second)
        for cell in report.cells
        if cell.verdict is Verdict.INCONCLUSIVE
        for seed in _fresh_seeds(cell)
    ]


def decide(report: CheckReport, second: Path) -> CheckReport:
    """Judge the inconclusive cells by their fresh seeds.

    A cell with missing or unfinished fresh seeds is not measured.

    Raises:
        UsageError: A stored trial is not readable, or a seed was run twice.
    """
    found = load_cells(second) if has_trials(second) else []
    samples = [_fresh_sample(cell, found) for cell in report.cells]
    judgements = judge([sample for sample, _ in samples], report.rules, seed=1)
    decided = []
    for cell, (_, reason), judgement in zip(report.cells, samples, judgements, strict=True):
        if judgement is not None:
            stages = (*cell.stages, judgement)
            decided.append(replace(cell, verdict=judgement.verdict, stages=stages))
        elif reason:
            decided.append(replace(cell, verdict=Verdict.NOT_MEASURED, reason=reason))
        else:
            decided.append(cell)
    return replace(report, cells=tuple(decided))


def _fresh_seeds(cell: CellReport) -> range:
    first = 1 + max([*cell.match.seeds, *(trial.seed for trial in cell.frozen.trials)])
    return range(first, first + SEEDS_FACTOR * len(cell.match.seeds))


def _fresh_sample(cell: CellReport, found: Sequence[Cell]) -> tuple[Sample | None, str]:
    """The scores of a cell's fresh seeds, or the reason why there are none; neither if decided."""
    if cell.verdict is not Verdict.INCONCLUSIVE:
        return None, ""
    wanted = _fresh_seeds(cell)
    match = match_cell(cell.frozen, found, min_seeds=len(wanted))
    if match.cell is None:
        return None, f"second stage: {match.reason}"
    if match.seeds != tuple(wanted):
        expected = f"{wanted.start} to {wanted.stop - 1}"
        return None, f"second stage: seeds {match.seeds}; expected {expected}"
    return match.sample, ""
