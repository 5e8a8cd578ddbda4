"""Match the cells of a baseline with stored trials: settings, seeds and digests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

import numpy as np

from esbench.core.units import counted
from esbench.grids.trial_spec import differences
from esbench.publish.gate.baselines import (
    FrozenCell,
    FrozenTrial,
    changed_code_of,
    without_settings,
)
from esbench.results.cell import Cell
from esbench.results.run import Run
from esbench.results.statistics.estimates import EpisodeStatistic, diverged_as_worst
from esbench.results.statistics.judgment import Sample
from esbench.store.provenance import (
    Origin,
    all_own_code,
    changed_code,
    changes,
    code_here,
    user_code_of,
    was_mixed,
)


class DigestResult(StrEnum):
    """The comparison of a cell's digests with the baseline's."""

    IDENTICAL = "identical"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"


@final
@dataclass(frozen=True)
class CellMatch:
    """A cell of the baseline with the stored trials that belong to it.

    ``cell`` is None if they cannot be compared, for the ``reason``, which may also be a caution.
    ``digests_detail`` says where the digests differ or why they cannot be compared.
    """

    frozen: FrozenCell
    cell: Cell | None
    reason: str
    digests: DigestResult = DigestResult.NOT_COMPARABLE
    digests_detail: str = "not measured"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the stored trials."""
        return () if self.cell is None else self.cell.seeds

    @property
    def sample(self) -> Sample | None:
        """The scores of both sides; None if they cannot be compared."""
        return None if self.cell is None else make_sample(self.frozen, self.run_scores)

    @property
    def has_same_scores(self) -> bool:
        """Whether every seed of both sides has the score of the baseline."""
        before = {trial.seed: trial.score for trial in self.frozen.trials}
        now = dict(zip(self.seeds, self.run_scores, strict=True))
        return before == now and None not in before.values()

    @property
    def run_scores(self) -> list[float | None]:
        """The scores of the stored trials by the episode statistic of the baseline."""
        runs = self.cell.runs if self.cell else ()
        return [run.scored(self.frozen.episode_statistic) for run in runs]


def match_cell(
    frozen: FrozenCell, found: Sequence[Cell], min_seeds: int, origins: Sequence[Origin]
) -> CellMatch:
    """Find the stored trials with the labels, the settings and enough seeds of a baseline's cell.

    Without the origins of the baseline, digests are not compared.
    """
    cell, reason = find_cell(frozen, found)
    problem = reason if cell is None else _why_not_comparable(frozen, cell, min_seeds)
    if cell is None or problem:
        return CellMatch(frozen, None, problem)
    digests = _digest_result(frozen, cell, origins) if origins else ()
    match = CellMatch(frozen, cell, "", *digests)
    diverged = match.run_scores.count(None)
    cautions = [reason, _missing_code(cell)]
    cautions += [f"{counted(diverged, 'run')} diverged, counted as the worst"] * bool(diverged)
    return replace(match, reason="; ".join(filter(None, cautions)))


def find_cell(frozen: FrozenCell, found: Sequence[Cell]) -> tuple[Cell | None, str]:
    """The stored cell with the labels and the settings of a baseline's, or None and the reason.

    A setting that neither side was given may differ: its default is part of the code. The text
    names such settings.
    """
    candidates = [cell for cell in found if cell.labels == frozen.labels]
    if not candidates:
        return None, _why_missing(frozen, found)
    differing = [_differences(frozen, cell) for cell in candidates]
    if all(given for given, _ in differing):
        fewest, _ = min(differing, key=lambda phrases: len(phrases[0]))
        return None, f"other settings: {'; '.join(fewest)}"
    place = next(place for place, (given, _) in enumerate(differing) if not given)
    changed = differing[place][1]
    return candidates[place], f"changed defaults: {'; '.join(changed)}" if changed else ""


def _differences(frozen: FrozenCell, cell: Cell) -> tuple[list[str], list[str]]:
    """The settings in which a stored cell differs: those that were given, and the defaults."""
    stored = {**cell.spec, "seed": 0}
    if frozen.spec is None:
        return differences({"seed": 0}, stored), []
    wanted, defaults = {**frozen.spec, "seed": 0}, cell.defaults
    before, after = wanted["algorithm"]["settings"], stored["algorithm"]["settings"]
    names = {name for name in frozen.defaults if name in defaults or name not in after}
    names |= {name for name in defaults if name not in before}
    given = differences(without_settings(wanted, names), without_settings(stored, names))
    return given, [each for each in differences(wanted, stored) if each not in given]


def make_sample(frozen: FrozenCell, scores: Sequence[float | None]) -> Sample:
    """Pair the scores of a cell with those of the baseline.

    A run that diverged counts as the worst: leaving it out would hide a change that makes runs
    diverge.
    """
    before = [trial.score for trial in frozen.trials]
    sides = diverged_as_worst((before, scores), frozen.random_score)
    return Sample(np.array(sides[0]), np.array(sides[1]), frozen.span)


def _why_not_comparable(frozen: FrozenCell, cell: Cell, min_seeds: int) -> str:
    """The reason why a cell with the right settings has no verdict; empty if it can have one."""
    undone = [run for run in cell.runs if not run.done]
    if undone:
        what = f"{counted(len(undone), 'trial')} not done, {undone[0].folder.path} the first"
        return f"{what} ({undone[0].status})"
    if len(cell.runs) < min_seeds:
        has = {*cell.seeds}
        lacks = [str(trial.seed) for trial in frozen.trials if trial.seed not in has]
        named = f"; the baseline also has {', '.join(lacks)}" if lacks else ""
        return f"{counted(len(cell.runs), 'seed')}; expected {min_seeds}{named}"
    # The scores belong to the code that trained them: a folder left from an earlier commit must
    # not let the present one pass.
    if changed := changed_code_of(cell):
        return f"trained with a different version of {changed}; train again into a new folder"
    return ""


def _missing_code(cell: Cell) -> str:
    """A caution about user code that is not here, so that it is unknown whether it has changed."""
    code = {name: version for each in cell.descriptions for name, version in all_own_code(each)}
    missing = [name for name, here in code_here(code).items() if here is None]
    if not missing:
        return ""
    names = " and ".join(missing)
    return f"not found on this machine, so not compared with that of the baseline: {names}"


def _digest_result(
    frozen: FrozenCell, cell: Cell, origins: Sequence[Origin]
) -> tuple[DigestResult, str]:
    """The comparison of the digests of the seeds that both sides have, and where they differ.

    A seed that the baseline lacks counts only if others replace seeds of the baseline.
    """
    known = {trial.seed: trial for trial in frozen.trials}
    has_all = {*cell.seeds} >= {*known}
    same, reasons = 0, []
    for run in cell.runs:
        seed = run.seed
        if seed not in known:
            if not has_all:
                reasons.append(f"seed {seed} is not in the baseline")
        elif not known[seed].first_digests:
            reasons.append(f"seed {seed} has no digests in the baseline")
        elif was_mixed(run.description):
            reasons.append(
                f"seed {seed} was resumed under other versions, or played by nodes that differ"
            )
        elif other := changes(before := origins[known[seed].origin], run.origin):
            reasons.append("; ".join(other))
        elif where := _first_difference(known[seed], run, frozen.episode_statistic):
            code = changed_code(before.model_dump(), user_code_of(run.description))
            detail = "".join(f"; changed: {each}" for each in code)
            return DigestResult.CHANGED, f"seed {seed} {where}{detail}"
        else:
            same += 1
    if reasons:
        return DigestResult.NOT_COMPARABLE, reasons[0]
    return DigestResult.IDENTICAL, counted(same, "seed")


def _first_difference(frozen: FrozenTrial, run: Run, statistic: EpisodeStatistic) -> str:
    """Where a trial differs from the baseline; empty if it is the same."""
    first, last = run.digests
    pairs = enumerate(zip(frozen.first_digests, first, strict=False), start=1)
    for generation, (theirs, ours) in pairs:
        if theirs != ours:
            return f"differs from generation {generation} on"
    if last != frozen.last_digest:
        return f"differs after generation {len(frozen.first_digests)}"
    if run.scored(statistic) != frozen.score:
        return "has the same digests and another score"
    return ""


def _why_missing(frozen: FrozenCell, found: Sequence[Cell]) -> str:
    base = frozen.environment.rpartition("-v")[0]
    for cell in found:
        environment, *rest = cell.labels
        same = rest == [frozen.algorithm, frozen.policy]
        if same and base and environment.rpartition("-v")[0] == base:
            return f"the folder has {environment}, another version of the environment"
    return "the folder has no trial of it"
