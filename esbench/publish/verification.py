"""The verdict on trials that were trained again: whether their scores differ, and why.

Where bits differ, as they may with another processor or other versions, a permutation test compares
the scores. Its p-values are Holm-corrected over the cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.units import NONE, counted
from esbench.results.statistics.significance import LEVEL, PERMUTATIONS, holm

MIN_TESTED_RUNS: Final = 4  # per side: with three, no p-value is below the level
SCORE_ONLY: Final = 0  # instead of a generation
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
    """One trial, run again, with its recorded and its new score, None if not finite.

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


def sentences(verification: Verification) -> list[str]:
    """The outcome in sentences: first the result, then where and why trials differ."""
    start = f"{verification.name}: {verification.outcome.value}"
    reruns, problem = verification.reruns, verification.problem
    if verification.outcome is RerunOutcome.FAILED:
        return [f"{start}: {problem}"]
    apart = [rerun for rerun in reruns if rerun.parts_at is not None]
    trials = counted(len(reruns), "trial")
    if verification.outcome is RerunOutcome.IDENTICAL:
        return [f"{start}: {trials}, every digest and score"]
    if not apart:
        return [f"{start}: {verification.contradiction}"]
    first, known = apart[0], sum(not rerun.is_new for rerun in reruns)
    is_score = first.parts_at == SCORE_ONLY
    where = "in the held-out episodes only" if is_score else f"from generation {first.parts_at}"
    how = f"{len(apart)} of {counted(known, 'trial')} differ, seed {first.seed} {where}"
    if known == 1:
        how = f"seed {first.seed} differs {where}"
    before, now = (NONE if s is None else f"{s:.10g}" for s in (first.recorded, first.score))
    if verification.contradiction:
        test = verification.contradiction
    elif problem:
        test = "no test of the scores, because some seeds have none"
    elif verification.p_value is None:
        test = (
            f"no test of the scores, which takes {verification.needed} seeds or more, all with "
            "finite scores"
        )
    else:
        test = f"p = {verification.p_value:.2g} for a difference of the scores of {trials}"
    if verification.changed:
        why = f"changed: {'; '.join(verification.changed)}"
    elif is_score:
        why = (
            "packages and processor are the same: the recorded score is not that of the trained "
            "policy, or scoring has changed"
        )
    else:
        why = (
            "packages and processor are the same: esbench itself or the environment has changed, "
            "or the algorithm or environment draws random numbers that do not depend on the seed "
            "alone, or does not restore its whole state when a trial is resumed (agents begin new "
            "episodes then)"
        )
    lines = [f"{start}: {how} (score {before} before, {now} now); {test}", why]
    return [*lines, f"{RerunOutcome.FAILED.value}: {problem}"] if problem else lines
