"""Run stored trials again from their specifications, and compare digests and scores.

Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Final, final

from esbench.analysis.comparison import LEVEL
from esbench.analysis.permutation import holm, p_different
from esbench.errors import UsageError
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.cells import Cell, cells, require_distinct_seeds
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance.changes import changed_code, changes, origin_of
from esbench.store.provenance.record import provenance
from esbench.store.trial_folder import TrialFolder
from esbench.training.trainer import Trainer
from esbench.units import NONE, counted, format_number

MIN_RUNS: Final = 4  # per side: with three, p is never below the level


class Outcome(StrEnum):
    """The comparison of rerun trials with their records."""

    IDENTICAL = "identical"
    EQUAL = "statistically equal"
    DIFFERENT = "different"


@final
@dataclass(frozen=True)
class Rerun:
    """One trial, run again.

    Attributes:
        path: The trial's folder.
        seed: The training seed.
        parts_at: The first generation whose digest differs, one after the last if only the score
            differs; None if nothing differs.
        recorded: The stored score; None if not finite.
        score: The new score; None if not finite.
    """

    path: Path
    seed: int
    parts_at: int | None
    recorded: float | None
    score: float | None


@final
@dataclass(frozen=True)
class Verification:
    """The trials of one cell, run again.

    Attributes:
        name: Algorithm and environment.
        outcome: The outcome over all seeds.
        reruns: One per seed.
        p_value: Two-sided permutation test of the mean scores, Holm-corrected over the cells; None
            if all is identical, there are fewer than four seeds, or a score is not finite on one
            side only.
        changed: Packages and processor that differ.
    """

    name: str
    outcome: Outcome
    reruns: tuple[Rerun, ...]
    p_value: float | None
    changed: tuple[str, ...]


def verify(
    path: Path, pool: WorkerPool, watch: Callable[[str, GenerationRecord], None]
) -> list[Verification]:
    """Run every trial below ``path`` again.

    Args:
        path: The folder of a trial, or a folder with several.
        pool: Plays the episodes.
        watch: Called with the name of the trial and every generation's record.

    Raises:
        UsageError: There is no trial, one is not done or not readable, or this version does not
            understand its specification.
        TrainingError: An environment raised an error.
    """
    found = cells(path)
    for cell in found:
        for trial in cell.trials:
            if not trial.is_done:
                raise UsageError(f"{trial.path} is {trial.status}; expected trials that are done")
    require_distinct_seeds(found)
    return _judged([_verify_cell(cell, pool, watch) for cell in found])


def sentences(verification: Verification) -> list[str]:
    """The outcome in sentences: first the result, then where and why trials differ."""
    apart = [rerun for rerun in verification.reruns if rerun.parts_at is not None]
    trials = counted(len(verification.reruns), "trial")
    if verification.outcome is Outcome.IDENTICAL:
        return [f"{verification.name}: identical: {trials}, every digest and score"]
    first = apart[0]
    how = f"{len(apart)} of {trials} differ, seed {first.seed} from generation {first.parts_at}"
    if len(verification.reruns) == 1:
        how = f"seed {first.seed} differs from generation {first.parts_at}"
    scores = f"score {_score(first.recorded)} before, {_score(first.score)} now"
    if verification.p_value is None:
        test = f"too few scores for a test; expected a folder with {MIN_RUNS} seeds or more"
    else:
        test = f"p = {verification.p_value:.2g} for a difference of the scores of {trials}"
    why = "; ".join(verification.changed)
    return [
        f"{verification.name}: {verification.outcome.value}: {how} ({scores}); {test}",
        f"changed: {why}"
        if why
        else "packages and processor are the same: esbench itself or the environment has changed",
    ]


def _verify_cell(
    cell: Cell, pool: WorkerPool, watch: Callable[[str, GenerationRecord], None]
) -> Verification:
    reruns = tuple(_rerun(trial, pool, watch) for trial in cell.trials)
    made = provenance(cell.trials[0].spec())  # now that its environment is registered
    here = origin_of(made)
    changed = dict.fromkeys(
        phrase
        for description in cell.descriptions
        for phrase in (
            *changes(origin_of(description), here),
            *changed_code(description, made["own_code"]),
        )
    )
    same = all(rerun.parts_at is None for rerun in reruns)
    outcome = Outcome.IDENTICAL if same else Outcome.DIFFERENT
    p_value = None if same else _p_value(reruns)
    name = f"{cell.name} on {cell.environment}"
    return Verification(name, outcome, reruns, p_value, tuple(changed))


def _p_value(reruns: Sequence[Rerun]) -> float | None:
    """The p-value of a difference of the scores; None if there are too few."""
    then = [rerun.recorded for rerun in reruns if rerun.recorded is not None]
    now = [rerun.score for rerun in reruns if rerun.score is not None]
    if len(then) != len(now) or len(then) < MIN_RUNS:
        return None
    return p_different(then, now)


def _judged(found: Sequence[Verification]) -> list[Verification]:
    """Correct the p-values for their number and decide between equal and different."""
    tested = [place for place, item in enumerate(found) if item.p_value is not None]
    judged = list(found)
    for place, p_value in zip(tested, holm([found[p].p_value or 0.0 for p in tested]), strict=True):
        outcome = Outcome.EQUAL if p_value > LEVEL else Outcome.DIFFERENT
        judged[place] = replace(found[place], outcome=outcome, p_value=float(p_value))
    return judged


def _rerun(
    trial: TrialFolder, pool: WorkerPool, watch: Callable[[str, GenerationRecord], None]
) -> Rerun:
    spec, result = trial.spec(), trial.result()
    recorded = [str(row["digest"]) for row in trial.rows()]
    with Trainer(spec, pool) as trainer:
        trainer.train(callbacks=[lambda record: watch(str(trial.path), record)])
        score = trainer.evaluate().mean
        digests = [record.digest for record in trainer.history]
    pairs = enumerate(zip_longest(recorded, digests), start=1)
    parts_at = next((number for number, (then, now) in pairs if then != now), None)
    finite = score if math.isfinite(score) else None
    if parts_at is None and finite != result["score"]:
        parts_at = len(digests) + 1
    return Rerun(trial.path, spec.seed, parts_at, result["score"], finite)


def _score(score: float | None) -> str:
    return NONE if score is None else format_number(score)
