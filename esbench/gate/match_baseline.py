"""The cells of a baseline beside what an output folder has of them: settings, seeds and digests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np

from esbench.analysis.gate import Sample
from esbench.errors import UsageError
from esbench.gate.baselines import FrozenCell, FrozenTrial, first_digests
from esbench.grids.trial_spec import differences
from esbench.store.defaults import completed
from esbench.store.origins import Origin, changes, origin_of, was_mixed
from esbench.store.own_code import changed_since
from esbench.store.seed_groups import Cell
from esbench.store.trial_folder import TrialFolder
from esbench.units import counted


class Trace(StrEnum):
    """What the digests of a cell say."""

    IDENTICAL = "identical"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"


@final
@dataclass(frozen=True)
class Measured:
    """A cell of the baseline beside what the folder has of it.

    Attributes:
        frozen: the baseline's.
        cell: the folder's; None if it cannot be held to the baseline.
        reason: why, or what to beware of; empty if there is nothing.
    """

    frozen: FrozenCell
    cell: Cell | None
    reason: str


def labels_of(cell: Cell) -> tuple[str, str, str]:
    """Return environment, algorithm and policy, as a baseline has them."""
    labels = cell.descriptions[0]["labels"]
    return labels["environment"], labels["algorithm"], labels["policy"]


def seeds_of(cell: Cell) -> tuple[int, ...]:
    """Return the seeds of a cell's trials."""
    return tuple(description["spec"]["seed"] for description in cell.descriptions)


def find(frozen: FrozenCell, found: Sequence[Cell], least: int) -> Measured:
    """Return the folder's cell with the baseline's labels and settings, or why there is none.

    Args:
        frozen: the baseline's cell.
        found: the folder's cells.
        least: seeds that it must have.
    """
    key = (frozen.environment, frozen.algorithm, frozen.policy)
    candidates = [cell for cell in found if labels_of(cell) == key]
    if not candidates:
        return Measured(frozen, None, _missing(frozen, found))
    apart: list[list[str]] = []
    try:
        wanted = frozen.trial_spec(0)
        for cell in candidates:
            stored = cell.trials[0].spec().model_copy(update={"seed": 0})
            apart.append(differences(wanted, completed(stored)))
    except UsageError as error:
        return Measured(frozen, None, f"not understood by this version: {error}")
    if all(apart):
        fewest = min(apart, key=lambda phrases: len(phrases))
        return Measured(frozen, None, f"other settings: {'; '.join(fewest)}")
    cell = candidates[apart.index([])]
    undone = [trial for trial in cell.trials if not trial.is_done]
    if undone:
        what = f"{counted(len(undone), 'trial')} not done, {undone[0].path} the first"
        return Measured(frozen, None, f"{what} ({undone[0].status})")
    if len(cell.trials) < least:
        return Measured(frozen, None, f"{counted(len(cell.trials), 'seed')}; expected {least}")
    if stale := _stale(cell):
        what = f"made with other code of {' and '.join(stale)} than is here"
        return Measured(frozen, None, f"{what}; a new folder for --out trains it anew")
    diverged = sum(score is None for score in scores_of(cell))
    note = f"{counted(diverged, 'run')} diverged, counted as the worst" if diverged else ""
    return Measured(frozen, cell, note)


def _stale(cell: Cell) -> list[str]:
    """Return the parts of a person's own code that have changed since a cell was trained.

    Its scores are those of the code as it was: a folder that was left from an earlier commit must
    not let this one pass. What cannot be found here, as where results are only looked at, is not
    held against it.
    """
    changed = [name for description in cell.descriptions for name in changed_since(description)]
    return list(dict.fromkeys(changed))


def scores_of(cell: Cell) -> list[float | None]:
    """Return the scores of a cell's trials, null where they are not finite."""
    found = [trial.result()["score"] for trial in cell.trials]
    return [float(s) if s is not None and math.isfinite(s) else None for s in found]


def sample_of(frozen: FrozenCell, scores: Sequence[float | None]) -> Sample:
    """Return a cell's scores beside the baseline's.

    A run whose score is null, since it was not finite, counts as the worst of random actions and
    all runs of both sides: to leave it out would flatter a change that makes runs diverge.

    Raises:
        UsageError: there is no score.
    """
    before = [trial.score for trial in frozen.trials]
    finite = [score for score in (*before, *scores) if score is not None]
    worst = min([frozen.random_score, *finite])
    sides = [[worst if s is None else s for s in side] for side in (before, scores)]
    return Sample(np.array(sides[0]), np.array(sides[1]), frozen.span)


def trace(item: Measured, origins: Sequence[Origin]) -> tuple[Trace, str]:
    """Return what the digests of the seeds say that both sides have, and why."""
    if item.cell is None:
        return Trace.NOT_COMPARABLE, "not measured"
    frozen = {trial.seed: trial for trial in item.frozen.trials if trial.first_digests}
    same, reasons = 0, []
    for trial, description in zip(item.cell.trials, item.cell.descriptions, strict=True):
        seed = description["spec"]["seed"]
        if seed not in frozen:
            reasons.append(f"seed {seed} is not in the baseline")
        elif was_mixed(description):
            reasons.append(f"seed {seed} was resumed under other versions")
        elif other := changes(origins[frozen[seed].origin], origin_of(description)):
            reasons.append("; ".join(other))
        elif where := _parting(frozen[seed], trial):
            return Trace.CHANGED, f"seed {seed} {where}"
        else:
            same += 1
    if reasons:
        return Trace.NOT_COMPARABLE, reasons[0]
    return Trace.IDENTICAL, counted(same, "seed")


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


def _missing(frozen: FrozenCell, found: Sequence[Cell]) -> str:
    base = frozen.environment.rpartition("-v")[0]
    for cell in found:
        environment, *rest = labels_of(cell)
        same = rest == [frozen.algorithm, frozen.policy]
        if same and base and environment.rpartition("-v")[0] == base:
            return f"the folder has {environment}, another version of the environment"
    return "the folder has no trial of it"
