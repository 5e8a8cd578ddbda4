"""Trials that are run again: how they are trained, compared with their records and judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import TrainingError
from esbench.core.units import NONE, counted
from esbench.engine.engine import Engine
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.stored_trainer import make_trainer
from esbench.experiment.watchers import Stop, TargetReturn
from esbench.grids.trial_spec import TrialSpec
from esbench.results.statistics.significance import LEVEL, PERMUTATIONS, holm
from esbench.store.generation_record import GenerationRecord

MIN_TESTED_RUNS: Final = 4  # per side: with three, no p-value is below the level
SCORE_ONLY: Final = 0  # instead of a generation
Watch: TypeAlias = Callable[[str, GenerationRecord], None]
"""Called with the name of a trial and every generation's record."""
Announce: TypeAlias = Callable[["Verification"], None]
"""Called with every verification once it is final."""


class RerunOutcome(StrEnum):
    """The comparison of rerun trials with their records."""

    IDENTICAL = "identical"
    NO_DIFFERENCE = "no significant difference"
    DIFFERENT = "different"
    FAILED = "not run to the end"


@final
@dataclass(frozen=True)
class Rerun:
    """One trial, run again, with its stored and its new score, None if not finite.

    ``parts_at`` is the first generation whose digest differs, ``SCORE_ONLY`` if the digests are
    equal and held-out episodes differ, and None if the rerun is identical. A new seed has no
    record: its score is for the test only. ``edited`` are the recorded numbers that contradict a
    trial with the same digests. ``tolerance`` is the largest difference of two scores of one policy
    that other packages or another processor can explain.
    """

    seed: int
    parts_at: int | None
    recorded: float | None
    score: float | None
    is_new: bool = False
    edited: tuple[str, ...] = ()
    tolerance: float = 0.0

    @property
    def is_far(self) -> bool:
        """Whether the scores are further apart than the tolerance."""
        if self.recorded is None or self.score is None:
            return self.recorded != self.score
        return abs(self.recorded - self.score) > self.tolerance


@final
@dataclass(frozen=True)
class Verification:
    """The trials of one cell, run again; ``changed`` are packages and processor that differ.

    ``p_value``: two-sided permutation test of the mean scores, Holm-corrected over the cells. None
    if all is identical, a score is not finite on one side only, or there are too few scores for
    any difference to be significant: ``smallest_p`` is the smallest possible p-value of these
    numbers of scores before the correction, and ``needed`` how many seeds each side needs.
    ``problem`` is why the trials could not be run. ``contradiction`` is why the trials cannot be
    those of the record, whatever their scores; then there is no test.
    """

    name: str
    outcome: RerunOutcome
    reruns: tuple[Rerun, ...]
    p_value: float | None
    changed: tuple[str, ...]
    smallest_p: float = 1.0
    needed: int = MIN_TESTED_RUNS
    problem: str = ""
    contradiction: str = ""


def announce_final(found: Iterable[Verification], announce: Announce) -> None:
    """Announce what is identical or has failed at once, and what differs at the end."""
    different = []
    for verification in found:
        if verification.outcome is RerunOutcome.DIFFERENT:
            different.append(verification)
        else:
            announce(verification)
    for verification in decide(different):
        announce(verification)


def sentences(verification: Verification) -> list[str]:
    """The outcome in sentences: first the result, then where and why trials differ."""
    if verification.outcome is RerunOutcome.FAILED:
        return [f"{verification.name}: {verification.outcome.value}: {verification.problem}"]
    apart = [rerun for rerun in verification.reruns if rerun.parts_at is not None]
    trials = counted(len(verification.reruns), "trial")
    if verification.outcome is RerunOutcome.IDENTICAL:
        return [f"{verification.name}: identical: {trials}, every digest and score"]
    if not apart:
        return [f"{verification.name}: {verification.outcome.value}: {verification.contradiction}"]
    first = apart[0]
    where = f"from generation {first.parts_at}"
    if first.parts_at == SCORE_ONLY:
        where = "in the held-out episodes only"
    known = sum(not rerun.is_new for rerun in verification.reruns)
    how = f"{len(apart)} of {counted(known, 'trial')} differ, seed {first.seed} {where}"
    if known == 1:
        how = f"seed {first.seed} differs {where}"
    before, now = (
        NONE if score is None else f"{score:.10g}" for score in (first.recorded, first.score)
    )
    scores = f"score {before} before, {now} now"
    if verification.contradiction:
        test = verification.contradiction
    elif verification.problem:
        test = "no test of the scores, because some seeds have none"
    elif verification.p_value is None:
        test = (
            f"no test of the scores, which takes {verification.needed} seeds or more, all with "
            "finite scores"
        )
    else:
        test = f"p = {verification.p_value:.2g} for a difference of the scores of {trials}"
    why = "; ".join(verification.changed)
    unchanged = "packages and processor are the same: "
    if first.parts_at == SCORE_ONLY:
        unchanged += "the recorded score is not that of the trained policy, or scoring has changed"
    else:
        unchanged += (
            "esbench itself or the environment has changed, or the algorithm or environment draws "
            "random numbers that do not depend on the seed alone, or does not restore its whole "
            "state when a trial is resumed (agents begin new episodes then)"
        )
    return [
        f"{verification.name}: {verification.outcome.value}: {how} ({scores}); {test}",
        f"changed: {why}" if why else unchanged,
        *([f"{RerunOutcome.FAILED.value}: {verification.problem}"] * bool(verification.problem)),
    ]


def attempted(runs: Iterable[tuple[int, Callable[[], Rerun]]]) -> tuple[list[Rerun], str]:
    """The results of ``runs``, each with its seed, and why others have failed."""
    reruns, problems = [], []
    for seed, run in runs:
        try:
            reruns.append(run())
        except TrainingError as error:
            problems.append(f"seed {seed}: {error}")
    return reruns, "; ".join(problems)


def train_again(
    spec: TrialSpec,
    pool: Engine,
    watch: Callable[[GenerationRecord], None],
    generations: int,
    stopped: str | None,
) -> tuple[list[GenerationRecord], HeldOutScore]:
    """The records of all generations and the score of a specification.

    If a callback ``stopped`` the recorded training, it stops after as many ``generations``.
    """
    # The specification has the target of a stop, and not the callback of another one.
    target = spec.budget.target_return
    by_target = target is not None and TargetReturn(target).stopped(stopped or "")
    last = generations if stopped and not by_target else None

    def watched(record: GenerationRecord) -> Stop | None:
        watch(record)
        return Stop(stopped or "") if record.generation == last else None

    with make_trainer(spec, pool) as trainer:
        trainer.train(callbacks=[watched])
        score = trainer.evaluate()
        return [*trainer.history], score


def decide(found: Sequence[Verification]) -> list[Verification]:
    """Correct the p-values for their number and decide whether scores differ.

    A cell whose scores are too few for a significant difference counts as different, and so does
    one with a contradiction.
    """
    tests = sum(not item.contradiction for item in found)
    decided = [replace(item, needed=fewest_runs(None, tests)) for item in found]
    tested = [place for place, item in enumerate(found) if item.p_value is not None]
    p_values = [found[place].p_value or 0.0 for place in tested]
    for number, place in enumerate(tested):
        item, corrected = decided[place], float(holm(p_values)[number])
        best_case = [*p_values[:number], item.smallest_p, *p_values[number + 1 :]]
        if holm(best_case)[number] > LEVEL:
            decided[place] = replace(item, outcome=RerunOutcome.DIFFERENT, p_value=None)
            continue
        outcome = RerunOutcome.DIFFERENT if corrected <= LEVEL else RerunOutcome.NO_DIFFERENCE
        decided[place] = replace(item, outcome=outcome, p_value=corrected)
    return decided


def fewest_runs(recorded: int | None, tests: int = 1) -> int:
    """How many new scores a test needs so that a difference can be significant.

    It compares them to those recorded, None for as many, and is one of several ``tests``, whose
    p-values are corrected. 0 if fewer than two scores are recorded.
    """
    if recorded is not None and recorded < 2:
        return 0
    counts = itertools.count(MIN_TESTED_RUNS)
    least = max(LEVEL / max(1, tests), 2.0 / PERMUTATIONS)
    return next(n for n in counts if smallest_p(recorded or n, n) <= least)


def smallest_p(recorded: int, new: int) -> float:
    """The smallest possible p-value of a two-sided permutation test of these numbers of scores."""
    return 2.0 / min(math.comb(recorded + new, new), PERMUTATIONS)


def contradiction(reruns: Sequence[Rerun], changed: Collection[str]) -> str:
    """Why a policy that was trained again bit by bit cannot have the recorded numbers, or "".

    Packages or a processor that have ``changed`` explain small differences of held-out episodes.
    """
    if edited := [rerun for rerun in reruns if rerun.edited]:
        fields = "; ".join(f"seed {rerun.seed}: {', '.join(rerun.edited)}" for rerun in edited)
        return f"the digests are the recorded ones, but other numbers are not ({fields})"
    same_policy = (rerun for rerun in reruns if rerun.parts_at == SCORE_ONLY)
    if any(not changed or rerun.is_far for rerun in same_policy):
        return "the trained policy is the recorded one, so its score must equal the recorded one"
    return ""


def score_tolerance(returns: Floats) -> float:
    """Four standard errors of the difference of two scores of one policy, from [episodes]."""
    return 4.0 * math.sqrt(2.0 / returns.size) * float(np.std(returns))


def outcome_of(reruns: Iterable[Rerun], problem: str) -> RerunOutcome:
    """The outcome before the scores are compared; reruns that failed have a problem."""
    if any(rerun.parts_at is not None or rerun.edited for rerun in reruns):
        return RerunOutcome.DIFFERENT
    return RerunOutcome.FAILED if problem else RerunOutcome.IDENTICAL
