"""The gate: holds an output folder to a baseline, cell by cell, in two layers.

Exact: where package versions and processor are the baseline's, the same seeds must give the same
digests. Any difference is a change of meaning, seen at once and without noise. Statistical: the
scores are judged by ``analysis.gate``, wherever and with whatever they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.analysis.gate import Judgement, Rules, Sample, Verdict, judge
from esbench.analysis.statistics import Floats
from esbench.baselines import Baseline, FrozenCell, FrozenTrial, first_digests
from esbench.cells import Cell, cells
from esbench.errors import UsageError
from esbench.origins import Origin, changes, origin_of
from esbench.spec import differences
from esbench.store import TrialFolder
from esbench.trials import Trial, completed, trial_at
from esbench.units import counted

EXIT_SAME: Final = 0
EXIT_REGRESSION: Final = 1
EXIT_NOT_MEASURED: Final = 3
EXIT_INCONCLUSIVE: Final = 4


class Trace(StrEnum):
    """What the digests of a cell say."""

    IDENTICAL = "identical"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"


@final
@dataclass(frozen=True)
class CellReport:
    """What is known of one cell of the baseline.

    Attributes:
        frozen: the baseline's cell.
        verdict: of its scores, over both stages.
        trace: of its digests; trace_detail: where they part, or why they cannot be compared.
        reason: why it was not measured, or what to beware of; empty if there is nothing.
        seeds: of the first stage; scores: theirs, [runs], diverged ones as in ``finite_scores``.
        stages: the judgement of each stage it took part in.
    """

    frozen: FrozenCell
    verdict: Verdict
    trace: Trace
    trace_detail: str
    reason: str
    seeds: tuple[int, ...]
    scores: Floats
    stages: tuple[Judgement, ...]

    @property
    def baseline_scores(self) -> Floats:
        """The baseline's scores, [runs]."""
        return finite_scores([trial.score for trial in self.frozen.trials], self.frozen)


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


@final
@dataclass(frozen=True)
class Measured:
    """A cell of the baseline beside what the folder has of it.

    Attributes:
        frozen: the baseline's.
        cell: the folder's; None if it cannot be held to the baseline.
        reason: why, or what to beware of.
    """

    frozen: FrozenCell
    cell: Cell | None
    reason: str


def check(
    root: Path,
    baseline: Baseline,
    rules: Rules,
    exact: bool = False,
    allow_inconclusive: bool = False,
    second: Path | None = None,
) -> Report:
    """Hold the trials below ``root`` to a baseline.

    Args:
        root: an output folder.
        baseline: what it is held to.
        rules: with two stages if there is a second folder.
        exact: whether a changed digest fails the check too.
        allow_inconclusive: whether it passes with cells of which nothing could be shown.
        second: the folder of the second stage: fresh seeds of what was inconclusive.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    found = cells(root)
    measured = [_find(frozen, found) for frozen in baseline.cells]
    judgements = judge([_sample(item) for item in measured], rules)
    traces = [_trace(item, baseline.origins) for item in measured]
    reports = [
        _report(item, judgement, *trace)
        for item, judgement, trace in zip(measured, judgements, traces, strict=True)
    ]
    if second is not None:
        reports = _with_second_stage(reports, second, rules)
    known = {(c.environment, c.algorithm, c.policy) for c in baseline.cells}
    new = tuple(
        f"{cell.name} on {cell.environment}" for cell in found if _labels(cell) not in known
    )
    return Report(tuple(reports), rules, exact, allow_inconclusive, new)


def sample_of(frozen: FrozenCell, scores: Sequence[float | None]) -> Sample:
    """Return a cell's scores, null where they were not finite, beside the baseline's."""
    before = finite_scores([trial.score for trial in frozen.trials], frozen)
    return Sample(before, finite_scores(scores, frozen), frozen.span)


def finite_scores(scores: Sequence[float | None], frozen: FrozenCell) -> Floats:
    """Return scores as numbers, [runs].

    A run whose score was not finite counts as the worse of random actions and the worst other run:
    to leave it out would flatter a change that makes runs diverge.
    """
    finite = [score for score in scores if score is not None]
    worst = min([frozen.random_score, *finite])
    return np.array([worst if score is None else score for score in scores], dtype=np.float64)


def _labels(cell: Cell) -> tuple[str, str, str]:
    labels = cell.descriptions[0]["labels"]
    return labels["environment"], labels["algorithm"], labels["policy"]


def _find(frozen: FrozenCell, found: Sequence[Cell]) -> Measured:
    """Return the folder's cell with the baseline's labels and settings, or why there is none."""
    key = (frozen.environment, frozen.algorithm, frozen.policy)
    candidates = [cell for cell in found if _labels(cell) == key]
    if not candidates:
        return Measured(frozen, None, _missing(frozen, found))
    wanted = frozen.trial_spec(0)
    apart: list[list[str]] = []
    for cell in candidates:
        stored = cell.trials[0].spec().model_copy(update={"seed": 0})
        apart.append(differences(wanted, completed(stored)))
    if all(apart):
        fewest = min(apart, key=lambda phrases: len(phrases))
        return Measured(frozen, None, f"other settings: {'; '.join(fewest)}")
    cell = candidates[apart.index([])]
    undone = [trial for trial in cell.trials if not trial.is_done]
    if undone:
        what = f"{counted(len(undone), 'trial')} not done, {undone[0].path} the first"
        return Measured(frozen, None, f"{what} ({undone[0].status})")
    return Measured(frozen, cell, _beware(frozen, cell))


def _missing(frozen: FrozenCell, found: Sequence[Cell]) -> str:
    base = frozen.environment.rpartition("-v")[0]
    for cell in found:
        environment, *rest = _labels(cell)
        same = rest == [frozen.algorithm, frozen.policy]
        if same and base and environment.rpartition("-v")[0] == base:
            return f"the folder has {environment}, another version of the environment"
    return "the folder has no trial of it"


def _beware(frozen: FrozenCell, cell: Cell) -> str:
    notes = []
    if (missing := len(frozen.trials) - len(cell.trials)) > 0:
        notes.append(f"{missing} of the baseline's {len(frozen.trials)} seeds not run")
    if diverged := sum(score is None for score in _scores(cell)):
        notes.append(f"{counted(diverged, 'run')} diverged, counted as no better than random")
    return "; ".join(notes)


def _scores(cell: Cell) -> list[float | None]:
    found = [trial.result()["score"] for trial in cell.trials]
    return [None if score is None else float(score) for score in found]


def _seeds(cell: Cell) -> tuple[int, ...]:
    return tuple(description["spec"]["seed"] for description in cell.descriptions)


def _sample(item: Measured) -> Sample | None:
    if item.cell is None:
        return None
    return sample_of(item.frozen, _scores(item.cell))


def _report(
    item: Measured, judgement: Judgement | None, trace: Trace, trace_detail: str
) -> CellReport:
    if item.cell is None or judgement is None:
        verdict = Verdict.NOT_MEASURED
        return CellReport(
            item.frozen, verdict, trace, trace_detail, item.reason, (), np.empty(0), ()
        )
    # What has not changed by one bit is no worse, however few its seeds are.
    identical = trace is Trace.IDENTICAL
    return CellReport(
        frozen=item.frozen,
        verdict=Verdict.NO_WORSE if identical else judgement.verdict,
        trace=trace,
        trace_detail=trace_detail,
        reason=item.reason,
        seeds=_seeds(item.cell),
        scores=finite_scores(_scores(item.cell), item.frozen),
        stages=(judgement,),
    )


def _trace(item: Measured, origins: Sequence[Origin]) -> tuple[Trace, str]:
    """Return what the digests of the seeds say that both sides have."""
    if item.cell is None:
        return Trace.NOT_COMPARABLE, "not measured"
    frozen = {trial.seed: trial for trial in item.frozen.trials if trial.first_digests}
    compared, unknown, reason = 0, 0, "the folder has none of the baseline's seeds"
    for trial, description in zip(item.cell.trials, item.cell.descriptions, strict=True):
        known = frozen.get(description["spec"]["seed"])
        if known is None:
            unknown += 1
        elif other := changes(origins[known.origin], origin_of(description)):
            return Trace.NOT_COMPARABLE, "; ".join(other)
        elif where := _parting(known, trial):
            return Trace.CHANGED, f"seed {known.seed} {where}"
        else:
            compared += 1
    if not compared:
        return Trace.NOT_COMPARABLE, reason
    if unknown:
        return Trace.NOT_COMPARABLE, f"{counted(unknown, 'seed')} not in the baseline"
    return Trace.IDENTICAL, counted(compared, "seed")


def _parting(frozen: FrozenTrial, trial: TrialFolder) -> str:
    """Return where a trial parts from the baseline's; empty if it is the same."""
    first, last = first_digests(trial)
    for generation, (theirs, ours) in enumerate(
        zip(frozen.first_digests, first, strict=False), start=1
    ):
        if theirs != ours:
            return f"differs from generation {generation} on"
    if last != frozen.last_digest:
        return f"differs after generation {len(frozen.first_digests)}"
    if trial.result()["score"] != frozen.score:
        return "is trained alike and scored differently"
    return ""


def _with_second_stage(
    reports: Sequence[CellReport], second: Path, rules: Rules
) -> list[CellReport]:
    """Return the reports with what the fresh seeds say of the cells that were inconclusive."""
    found = cells(second) if second.is_dir() and any(second.rglob("trial.json")) else []
    again: list[Measured | None] = []
    for report in reports:
        open_ = report.verdict is Verdict.INCONCLUSIVE
        item = _find(report.frozen, found) if open_ else None
        if item is not None and item.cell is not None:
            _require_fresh(report, item.cell, second)
        again.append(item)
    samples = [None if item is None else _sample(item) for item in again]
    judgements = judge(samples, rules, seed=1)
    return [
        report
        if judgement is None
        else replace(report, verdict=judgement.verdict, stages=(*report.stages, judgement))
        for report, judgement in zip(reports, judgements, strict=True)
    ]


def _require_fresh(report: CellReport, cell: Cell, second: Path) -> None:
    if common := sorted(set(report.seeds) & set(_seeds(cell))):
        raise UsageError(
            f"{second}: seed {common[0]} of {report.frozen.name} is one of the first stage; "
            "expected fresh seeds"
        )


def second_stage(report: Report, second: Path) -> list[Trial]:
    """Return the trials of the second stage: fresh seeds of the cells that are inconclusive.

    Twice as many as the first stage had, counted from above all seeds of the baseline and of it.

    Raises:
        UsageError: a cell's specification is not understood by this version.
    """
    trials = []
    for cell in report.cells:
        if cell.verdict is Verdict.INCONCLUSIVE and cell.frozen.spec is not None:
            first = 1 + max([*cell.seeds, *(trial.seed for trial in cell.frozen.trials)])
            labels = (cell.frozen.environment, cell.frozen.algorithm, cell.frozen.policy)
            trials += [
                trial_at(cell.frozen.trial_spec(seed), *labels, second)
                for seed in range(first, first + 2 * len(cell.seeds))
            ]
    return trials


def require_apart(root: Path, second: Path | None) -> None:
    """Refuse a second stage whose fresh seeds would be mixed with the first ones.

    Raises:
        UsageError: its folder is the first one's, or lies in it or around it.
    """
    if second is None:
        return
    ours, theirs = second.resolve(), root.resolve()
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        raise UsageError(
            f"--second-stage {second}: expected a folder apart from {root}, since its seeds are "
            "judged by themselves"
        )
