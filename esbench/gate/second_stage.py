"""The second stage of a check: fresh seeds of what the first one could not decide.

Which cells those are and how many seeds they get is settled before one of them is trained, and
their folder belongs to one first stage: scores of code that has changed since are never judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from esbench.analysis.gate import Rules, Sample, Verdict, judge
from esbench.errors import UsageError
from esbench.files import read_bytes, write_bytes
from esbench.gate.baselines import FrozenCell
from esbench.gate.check import CellReport, Report
from esbench.gate.match_baseline import find, sample_of, scores_of, seeds_of
from esbench.store.seed_groups import Cell, cells, require_distinct_seeds
from esbench.training.trials import Trial, trial_at

MARKER: Final = "second-stage.sha256"
TIMES: Final = 2  # so many seeds as the first stage had


def require_apart(root: Path, second: Path) -> None:
    """Refuse a second stage whose fresh seeds would be mixed with the first ones.

    Raises:
        UsageError: its folder is the first one's, or lies in it or around it.
    """
    ours, theirs = second.resolve(), root.resolve()
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        raise UsageError(
            f"--second-stage {second}: expected a folder apart from {root}, since its seeds are "
            "judged by themselves"
        )


def bind(root: Path, second: Path) -> None:
    """Make ``second`` the second stage of the results below ``root``, as they are now.

    Raises:
        UsageError: it holds trials of another first stage, or cannot be written.
    """
    results = sorted(path.relative_to(root) for path in root.rglob("result.json"))
    content = b"".join(str(path).encode() + read_bytes(root / path) for path in results)
    identity = hashlib.sha256(content).hexdigest()
    marker = second / MARKER
    known = read_bytes(marker).decode(errors="replace") if marker.exists() else ""
    if known != identity and second.is_dir() and any(second.rglob("trial.json")):
        raise UsageError(
            f"--second-stage {second} holds trials of another first stage than {root} as it is "
            "now; expected an empty folder"
        )
    write_bytes(marker, identity.encode())


def planned(report: Report, second: Path) -> list[Trial]:
    """Return the trials of the second stage: fresh seeds of the cells that are inconclusive.

    Twice as many as the first stage had, counted from above all seeds of the baseline and of it.

    Raises:
        UsageError: a cell's specification is not understood by this version.
    """
    return [
        trial_at(cell.frozen.trial_spec(seed), *_labels(cell.frozen), second)
        for cell in report.cells
        if cell.verdict is Verdict.INCONCLUSIVE
        for seed in _fresh_seeds(cell)
    ]


def decide(report: Report, second: Path) -> Report:
    """Return the report with what the fresh seeds say of the cells that were inconclusive.

    A cell whose fresh seeds are not all there, or not done, is not measured.

    Raises:
        UsageError: a stored trial is not readable, or a seed lies there twice.
    """
    has_trials = second.is_dir() and any(second.rglob("trial.json"))
    found = cells(second) if has_trials else []
    require_distinct_seeds(found)
    looked = [_look(cell, found) for cell in report.cells]
    judgements = judge([sample for sample, _ in looked], report.rules, seed=1)
    decided = []
    for cell, (_, reason), judgement in zip(report.cells, looked, judgements, strict=True):
        if judgement is not None:
            stages = (*cell.stages, judgement)
            decided.append(replace(cell, verdict=judgement.verdict, stages=stages))
        elif reason:
            decided.append(replace(cell, verdict=Verdict.NOT_MEASURED, reason=reason))
        else:
            decided.append(cell)
    return replace(report, cells=tuple(decided))


def rules_of(alpha: float, margin: float, second: Path | None) -> Rules:
    """Return the rules of a check, with two stages if there is a folder of a second one."""
    return Rules(alpha, margin, stages=1 if second is None else 2)


def _labels(frozen: FrozenCell) -> tuple[str, str, str]:
    return frozen.environment, frozen.algorithm, frozen.policy


def _fresh_seeds(cell: CellReport) -> range:
    first = 1 + max([*cell.seeds, *(trial.seed for trial in cell.frozen.trials)])
    return range(first, first + TIMES * len(cell.seeds))


def _look(cell: CellReport, found: Sequence[Cell]) -> tuple[Sample | None, str]:
    """Return the scores of a cell's fresh seeds, or why there are none; neither if decided."""
    if cell.verdict is not Verdict.INCONCLUSIVE:
        return None, ""
    wanted = _fresh_seeds(cell)
    item = find(cell.frozen, found, least=len(wanted))
    if item.cell is None:
        return None, f"second stage: {item.reason}"
    if seeds_of(item.cell) != tuple(wanted):
        expected = f"{wanted.start} to {wanted.stop - 1}"
        return None, f"second stage: seeds {seeds_of(item.cell)}; expected {expected}"
    return sample_of(cell.frozen, scores_of(item.cell)), ""
