"""The verdict on trials that were trained again: whether their scores differ, and why.

Where bits differ although code, versions and processor are the recorded ones, trials are different,
whatever their scores. Where they differ otherwise, a permutation test compares the scores. Its
p-values are Holm-corrected over the cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Final, Literal, final

from esbench.core.units import NONE, counted, p_is
from esbench.results.statistics.significance import (
    LEVEL,
    PERMUTATIONS,
    all_splits,
    holm,
    p_different,
)

MIN_TESTED_RUNS: Final = 4  # per side: with three, no p-value is below the level
SCORE_ONLY: Final = 0  # instead of a generation
_BISECTIONS: Final = 20
SCORING_CHANGED: Final = (
    "packages and processor are the same: the recorded score is not that of the trained policy, or "
    "the environment or the policy draws random numbers that do not depend on the seed alone"
)
TRAINING_CHANGED: Final = (
    "packages and processor are the same: the algorithm, agent or environment draws random numbers "
    "that do not depend on the seed alone, or reads what changes, such as a file or the time, or "
    "does not restore its whole state when a trial is resumed (agents begin new episodes then)"
)


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

    ``parts_at`` is the first recorded generation whose digest differs, ``SCORE_ONLY`` if all are
    equal and held-out episodes differ, and None if the rerun is identical. ``equal_until`` is the
    last recorded generation before that. A new seed has no record: its score is for the test only.
    ``edited`` are the recorded numbers that contradict the recorded digests.
    """

    seed: int
    parts_at: int | None
    recorded: float | None
    score: float | None
    is_new: bool = False
    equal_until: int = 0
    edited: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Where it differs, in words."""
        if self.parts_at == SCORE_ONLY:
            return "in the held-out episodes only"
        if self.parts_at == self.equal_until + 1:
            return f"from generation {self.parts_at}"
        return f"from a generation after {self.equal_until} and until {self.parts_at}"


@final
@dataclass(frozen=True)
class Verification:
    """The trials of one cell, run again.

    Attributes:
        recorded: the recorded scores of all seeds, None if not finite.
        changed: packages and processor that differ.
        problem: why some trials could not be run.
        contradiction: why the trials cannot be those of the record, whatever their scores; then
            there is no test.
        p_value: two-sided permutation test of the mean scores, Holm-corrected over the cells, or
            test of pairs of a row's returns. None if all is identical, or no difference of these
            numbers could be significant.
        needed: how many seeds each side needs for a test, or episodes if returns are compared.
        compared: what is equal if all is identical.
        measured: what the test compares.
    """

    name: str
    outcome: RerunOutcome
    reruns: tuple[Rerun, ...]
    recorded: tuple[float | None, ...] = ()
    changed: tuple[str, ...] = ()
    problem: str = ""
    contradiction: str = ""
    p_value: float | None = None
    needed: int = MIN_TESTED_RUNS
    compared: str = "every digest and score"
    measured: Literal["scores", "returns"] = "scores"

    @property
    def samples(self) -> tuple[list[float], list[float]] | None:
        """The recorded and the new scores, if a test may compare them."""
        before = [score for score in self.recorded if score is not None]
        now = [rerun.score for rerun in self.reruns if rerun.score is not None]
        complete = len(before) == len(self.recorded) and len(now) == len(self.reruns)
        refuted = self.contradiction or self.problem or len(now) < MIN_TESTED_RUNS
        refuted = refuted or self.measured == "returns"
        return (before, now) if complete and not refuted else None


def contradiction(reruns: Sequence[Rerun]) -> str:
    """Why trials that have given recorded digests again cannot have the recorded numbers, or "".

    Other packages or another processor are no excuse: where they matter, digests differ.
    """
    if edited := [rerun for rerun in reruns if rerun.edited]:
        fields = "; ".join(f"seed {rerun.seed}: {', '.join(rerun.edited)}" for rerun in edited)
        return f"recorded numbers contradict recorded digests, which are equal now ({fields})"
    if any(rerun.parts_at == SCORE_ONLY for rerun in reruns):
        return "every digest of training is the recorded one, so the held-out episodes must be"
    return ""


def largest_error(before: Sequence[float], now: Sequence[float]) -> float:
    """The largest amount that the mean of scores can be too high without a significant p-value."""
    low, high = fmean(before) - fmean(now), max(before) - min(now)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_hidden = p_different([score - middle for score in before], now) > LEVEL
        low, high = (middle, high) if is_hidden else (low, middle)
    return max(0.0, high)


def decide(found: Sequence[Verification]) -> list[Verification]:
    """Test the scores of cells whose bits differ, with p-values corrected for their number.

    A cell whose scores are too few for a significant difference counts as different, and so does
    one with a contradiction.
    """
    needed = fewest_runs(None, sum(not item.contradiction for item in found))
    decided = [replace(item, needed=needed) for item in found]
    tested = {place: item.samples for place, item in enumerate(found) if item.samples}
    p_values = [p_different(before, now) for before, now in tested.values()]
    for number, (place, (before, now)) in enumerate(tested.items()):
        best_case = [*p_values]
        best_case[number] = smallest_p(len(before), len(now))
        if holm(best_case)[number] > LEVEL:
            continue
        corrected = float(holm(p_values)[number])
        outcome = RerunOutcome.DIFFERENT if corrected <= LEVEL else RerunOutcome.NO_DIFFERENCE
        decided[place] = replace(decided[place], outcome=outcome, p_value=corrected)
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
    return 2.0 / (all_splits(recorded, new) or PERMUTATIONS)


def sentences(verification: Verification) -> list[str]:
    """The outcome in sentences: first the result, then where and why trials differ."""
    start = f"{verification.name}: {verification.outcome.value}"
    reruns, problem = verification.reruns, verification.problem
    if verification.outcome is RerunOutcome.FAILED:
        return [f"{start}: {problem}"]
    apart = [rerun for rerun in reruns if rerun.parts_at is not None]
    trials = counted(len(reruns), "trial")
    if verification.outcome is RerunOutcome.IDENTICAL:
        return [f"{start}: {trials}, {verification.compared}"]
    if not apart:
        return [f"{start}: {verification.contradiction}"]
    first, known = apart[0], sum(not rerun.is_new for rerun in reruns)
    how = f"{len(apart)} of {counted(known, 'trial')} differ, seed {first.seed} {first.where}"
    if known == 1:
        how = f"seed {first.seed} differs {first.where}"
    before, now = (NONE if s is None else f"{s:.10g}" for s in (first.recorded, first.score))
    if verification.contradiction:
        test = verification.contradiction
    elif problem:
        test = f"no test of the {verification.measured}, because some seeds have none"
    elif verification.p_value is None:
        needed = f"{verification.needed} seeds or more, all with finite scores"
        if verification.measured == "returns":
            needed = f"{verification.needed} episodes or more"
        test = f"no test of the {verification.measured}, which takes {needed}"
    else:
        test = f"{p_is(verification.p_value)} for a difference of the {verification.measured}"
        test += f" of {trials}"
    why = f"changed: {'; '.join(verification.changed)}"
    if not verification.changed:
        why = SCORING_CHANGED if first.parts_at == SCORE_ONLY else TRAINING_CHANGED
    lines = [f"{start}: {how} (score {before} before, {now} now); {test}", why]
    if verification.outcome is RerunOutcome.NO_DIFFERENCE and verification.samples:
        error = largest_error(*verification.samples)
        lines.append(f"not proved: other bits, so the mean score may be {error:.4g} too high")
    return [*lines, f"{RerunOutcome.FAILED.value}: {problem}"] if problem else lines
