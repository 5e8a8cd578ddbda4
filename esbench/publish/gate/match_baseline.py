"""Match the cells of a baseline with stored trials: settings, seeds and digests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import counted
from esbench.grids.stored_spec import at_target
from esbench.grids.trial_spec import differences
from esbench.results.baselines import NO_DIGESTS, other_code, without_settings
from esbench.results.cell import SAME_TRAINING, Cell
from esbench.results.run import Run
from esbench.results.sources import unfinished
from esbench.results.statistics.estimates import EpisodeStatistic, diverged_as_worst
from esbench.results.statistics.judgment import Judgment, Sample, Verdict
from esbench.store.origin import (
    all_own_code,
    changed_code,
    changes,
    differences_within,
    user_code_of,
)
from esbench.store.own_code import code_here


class DigestResult(StrEnum):
    """The comparison of a cell's digests with the baseline's."""

    IDENTICAL = "identical"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"


@final
@dataclass(frozen=True)
class CellReport:
    """A cell of the baseline with the stored trials that belong to it, and the verdict on them.

    Attributes:
        cell: None if there are none, or they cannot be compared.
        reason: why they cannot be compared, or a caution.
        digests_detail: where the digests differ, or why they cannot be compared.
        looks: the judgments that led to the verdict: one, or several of a sequential check.
    """

    frozen: Cell
    cell: Cell | None = None
    reason: str = ""
    digests: DigestResult = DigestResult.NOT_COMPARABLE
    digests_detail: str = "not measured"
    verdict: Verdict = Verdict.NOT_MEASURED
    looks: tuple[Judgment, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The stored trials."""
        return () if self.cell is None else self.cell.runs

    @cached_property
    def sample(self) -> Sample | None:
        """The scores of both sides; None if they cannot be compared."""
        if self.cell is None:
            return None
        own = [run.scored(self.frozen.statistic) for run in self.runs]
        return make_sample(self.frozen, own)

    @property
    def scores(self) -> Floats:
        """The scores of the last look, [runs]; diverged runs as in ``make_sample``."""
        return np.empty(0) if self.sample is None else self.sample.scores

    @property
    def baseline_scores(self) -> Floats:
        """The scores of the baseline, [runs]; diverged runs as in ``make_sample``."""
        return np.array(self.frozen.scores) if self.sample is None else self.sample.baseline

    @property
    def has_same_scores(self) -> bool:
        """Whether both sides have the same seeds, and equal finite scores of each."""
        before, now = (
            {run.seed: run.scored(self.frozen.statistic) for run in runs}
            for runs in (self.frozen.runs, self.runs)
        )
        return before == now and None not in before.values()

    def judged(self, judgment: Judgment | None, earlier: tuple[Judgment, ...] = ()) -> CellReport:
        """The report with the verdict of a look; ``earlier`` are the judgments of those before."""
        if judgment is None:
            return replace(self, looks=earlier)
        # Identical bits or scores are no worse, however few the seeds are.
        identical = self.digests is DigestResult.IDENTICAL or self.has_same_scores
        verdict = Verdict.NO_WORSE if identical else judgment.verdict
        return replace(self, verdict=verdict, looks=(*earlier, judgment))


def match_cell(frozen: Cell, found: Sequence[Cell], min_seeds: int) -> CellReport:
    """Find the stored trials with the labels, settings and enough seeds of a baseline's cell."""
    cell, reason = find_cell(frozen, found)
    problem = reason if cell is None else _why_not_comparable(frozen, cell, min_seeds)
    if cell is None or problem:
        return CellReport(frozen, None, problem)
    diverged = sum(run.scored(frozen.statistic) is None for run in cell.runs)
    cautions = [reason, _missing_code(cell)]
    cautions += [f"{counted(diverged, 'run')} diverged, counted as the worst"] * bool(diverged)
    return CellReport(frozen, cell, "; ".join(filter(None, cautions)), *_digests(frozen, cell))


def find_cell(frozen: Cell, found: Sequence[Cell]) -> tuple[Cell | None, str]:
    """The stored cell with the labels and the settings of a baseline's, or None and the reason.

    A setting that neither side was given may differ: its default is part of the code. The text
    names such settings.
    """
    candidates = [cell for cell in found if cell.labels == frozen.labels]
    if not candidates:
        return None, "the folder has no trial of it"
    differing = [_differences(frozen, cell) for cell in candidates]
    for cell, (given, defaults) in zip(candidates, differing, strict=True):
        if not given:
            return cell, f"changed defaults: {'; '.join(defaults)}" if defaults else ""
    fewest = min((given for given, _ in differing), key=len)
    return None, f"other settings: {'; '.join(fewest)}"


def _differences(frozen: Cell, cell: Cell) -> tuple[list[str], list[str]]:
    """The settings in which a stored cell differs: those that were given, and the defaults."""
    wanted, stored, defaults = {**frozen.spec, "seed": 0}, {**cell.spec, "seed": 0}, cell.defaults
    if "algorithm" not in wanted:  # esbench did not train the trials of the baseline
        return differences(wanted, stored), []
    before, after = wanted["algorithm"]["settings"], stored["algorithm"]["settings"]
    names = {name for name in frozen.defaults if name in defaults or name not in after}
    names |= {name for name in defaults if name not in before}
    given = differences(without_settings(wanted, names), without_settings(stored, names))
    return given, [each for each in differences(wanted, stored) if each not in given]


def make_sample(frozen: Cell, scores: Sequence[float | None]) -> Sample:
    """Pair the scores of a cell with those of the baseline.

    A run that diverged counts as the worst: leaving it out would hide a change that makes runs
    diverge. Drops are shares of the range from random actions to the reference.
    """
    before = [run.scored(frozen.statistic) for run in frozen.runs]
    sides = diverged_as_worst((before, scores), frozen.random_score)
    span = abs(frozen.reference_score - frozen.random_score)
    return Sample(np.array(sides[0]), np.array(sides[1]), span, frozen.margin)


def _why_not_comparable(frozen: Cell, cell: Cell, min_seeds: int) -> str:
    """The reason why a cell with the right settings has no verdict; empty if it can have one."""
    if undone := unfinished([cell]):
        return undone
    if problem := lasting_problem(cell):
        return problem
    if len(cell.runs) < min_seeds:
        lacks = [str(seed) for seed in frozen.seeds if seed not in cell.seeds]
        named = f"; the baseline also has {', '.join(lacks)}" if lacks else ""
        return f"{counted(len(cell.runs), 'seed')}; expected {min_seeds}{named}"
    return ""


def lasting_problem(cell: Cell) -> str:
    """The reason why a cell has no verdict that further seeds cannot remove; empty if none."""
    if cell.ignores_seed:
        return SAME_TRAINING
    # The scores belong to the code that trained them: a folder left from an earlier commit must
    # not let the present one pass.
    return other_code(cell)


def _missing_code(cell: Cell) -> str:
    """A caution about user code that is not here, so that it is unknown whether it has changed."""
    code = {name: own for run in cell.runs for name, own in all_own_code(run.description)}
    missing = [name for name, here in code_here(code).items() if here is None]
    if not missing:
        return ""
    names = " and ".join(missing)
    return f"not found on this machine, so not compared with that of the baseline: {names}"


def _digests(frozen: Cell, cell: Cell) -> tuple[DigestResult, str]:
    """The comparison of the digests of the seeds that both sides have, and where they differ.

    A seed that the baseline lacks counts only if others replace seeds of the baseline.
    """
    known = {run.seed: run for run in frozen.runs}
    has_all = {*cell.seeds} >= {*known}
    same, reasons = 0, []
    for run in cell.runs:
        before = known.get(run.seed)
        if before is None:
            if not has_all:
                reasons.append(f"seed {run.seed} is not in the baseline")
        elif not before.digests[0]:
            reasons.append(f"seed {run.seed} has no digests in the baseline: {NO_DIGESTS}")
        elif within := differences_within(run.description):
            reasons.append(f"seed {run.seed} was trained with {'; '.join(within)}")
        elif other := changes(before.origin, run.origin):
            reasons.append("; ".join(other))
        elif (where := _first_difference(before, run, frozen.statistic)) is None:
            same += 1
        elif not where:
            reasons.append(f"seed {run.seed} was stopped by a callback")
        else:
            code = changed_code(before.description, user_code_of(run.description))
            detail = "".join(f"; changed: {each}" for each in code)
            return DigestResult.CHANGED, f"seed {run.seed} {where}{detail}"
    if reasons:
        return DigestResult.NOT_COMPARABLE, reasons[0]
    return DigestResult.IDENTICAL, counted(same, "seed")


def _first_difference(before: Run, now: Run, statistic: EpisodeStatistic) -> str | None:
    """Where a run differs from that of the baseline, or None.

    Empty if a callback has stopped one of them, so that only the first digests can be compared.
    """
    (first_before, last_before), (first, last) = before.digests, now.digests
    pairs = enumerate(zip(first_before, first, strict=False), start=1)
    for generation, (theirs, ours) in pairs:
        if theirs != ours:
            return f"differs from generation {generation} on"
    if last != last_before:
        spec = now.description["spec"]
        is_cut = any(run.stopped and not at_target(spec, run.stopped) for run in (before, now))
        return "" if is_cut else f"differs after generation {len(first_before)}"
    if now.scored(statistic) != before.scored(statistic):
        return "has the same digests and another score"
    return None
