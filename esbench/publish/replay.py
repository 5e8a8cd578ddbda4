"""Plays the held-out episodes of published policies again and compares return by return."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.engine import Engine
from esbench.experiment.published_policy import published_policy
from esbench.experiment.watchers import episode_limit
from esbench.publish.reproduce import RecordedCell
from esbench.publish.verification import SCORE_ONLY, Rerun, RerunOutcome, Verification
from esbench.results.entries import Entry
from esbench.results.policy_files import EPISODES, policies_file, read_policies
from esbench.results.statistics.significance import LEVEL, p_paired
from esbench.store.origin import changes, origin_of
from esbench.store.provenance import provenance

SAME: Final = "packages and processor are the recorded ones, so every return must be equal"
NOT_FINITE: Final = "returns that were finite are not finite now"
ROUNDING: Final = 1e-6  # of the largest return
ReturnPair: TypeAlias = tuple[Floats, Floats]
"""The recorded returns of a seed's episodes and those of now."""


def has_policies(entries: Sequence[Entry], place: Path) -> list[Entry]:
    """The rows whose policies are published; UsageError if there is none."""
    found = [entry for entry in entries if entry.policies is not None]
    if not found and len(entries) == 1:
        raise UsageError(f"{entries[0].name}: {entries[0].why_unpublished}")
    if not found:
        states = Counter(entry.policies_state for entry in entries)
        reasons = ", ".join(f"{state}: {count}" for state, count in states.items())
        raise UsageError(
            f"{place}: none of the {len(entries)} chosen rows has published policies ({reasons}); "
            "without --replay, their seeds are trained again"
        )
    return found


def with_policies(
    cell: RecordedCell, leaderboard: Path, episodes: int | None = None
) -> RecordedCell:
    """A row with the published policies of its chosen seeds.

    Args:
        cell: the row and its chosen seeds.
        leaderboard: the leaderboard, which has the policies beside it.
        episodes: how many of the recorded episodes of each seed to play (default: all).

    Raises:
        UsageError: the row has no policies of them, or their file is missing, damaged or of another
            row.
    """
    assert cell.entry is not None
    path = policies_file(cell.entry, leaderboard)
    policies = read_policies(cell.entry, path)
    chosen = {
        seed: policies[seed] | {name: policies[seed][name][:episodes] for name in EPISODES}
        for seed in cell.chosen
        if seed in policies
    }
    if not chosen:
        seeds = ", ".join(map(str, cell.chosen))
        raise UsageError(f"{path} lacks seed {seeds}; expected one of {sorted(policies)}")
    missing = tuple(seed for seed in cell.chosen if seed not in chosen)
    return replace(cell, chosen=tuple(chosen), policies=chosen, missing=missing)


def play_again(
    cell: RecordedCell, pool: Engine, episode_timeout: float | None = None, rows: int = 1
) -> Verification:
    """Play the held-out episodes of a row ``with_policies``: the verdict on the row.

    Where a return differs, as it may on another processor, a test of pairs compares the returns of
    the episodes with the recorded ones, of all seeds together and of each, with p-values corrected
    for the number of ``rows``. A row with too few episodes for a significant difference counts as
    different, and so does one with an episode that is finite no more. A seed fails if no episode
    ends within ``episode_timeout`` seconds. UsageError if arrays do not fit their row.
    """
    reruns, problems, pairs = [], [], []
    for seed, arrays in cell.policies.items():
        try:
            with episode_limit(pool, episode_timeout):
                policy = published_policy(cell.cell.trial_spec(seed), arrays)
                score = policy.play(pool, len(arrays["returns"]))
        except TrainingError as error:
            problems.append(f"seed {seed}: {error}")
            continue
        pairs.append((arrays["returns"], score.returns))
        at = None if np.array_equal(*pairs[-1]) else SCORE_ONLY
        reruns.append(Rerun(seed, at, float(arrays["returns"].mean()), score.finite_mean))
    here = origin_of(provenance(cell.cell.trial_spec(0)))
    runs = [run for run in cell.cell.runs if run.seed in cell.chosen]
    changed = [each for run in runs for each in changes(run.origin, here, itself=True)]
    p_value = None
    outcome = RerunOutcome.FAILED if problems else RerunOutcome.IDENTICAL
    is_finite = all(np.isfinite(now).all() for _, now in pairs)
    if apart := [pair for pair in pairs if not np.array_equal(*pair)]:
        p_value = p_of_pairs(pairs, apart, rows) if is_finite else None
        is_excused = changed and p_value is not None and p_value > LEVEL
        if not is_excused:
            outcome = RerunOutcome.DIFFERENT
        elif not problems:
            outcome = RerunOutcome.NO_DIFFERENCE
    refuted = "" if is_finite else NOT_FINITE
    is_whole = cell.episodes == cell.recorded_episodes
    compared = "every return" if is_whole else "the first returns"
    if cell.missing:
        compared += f"; no policy is published of seed {', '.join(map(str, cell.missing))}"
    return Verification(
        name=cell.name,
        outcome=outcome,
        reruns=tuple(reruns),
        recorded=tuple(run.score for run in cell.cell.runs),
        changed=tuple(dict.fromkeys(changed)),
        problem="; ".join(problems),
        p_value=p_value,
        contradiction=SAME if apart and not changed else refuted,
        needed=fewest_episodes(rows),
        compared=compared,
        measured="returns",
    )


def fewest_episodes(rows: int) -> int:
    """The number of pairs of a row whose smallest corrected p-value is significant."""
    return math.ceil(math.log2(2 * 2 * rows / LEVEL))  # two tests with two sides


def p_of_pairs(
    pairs: Sequence[ReturnPair], apart: Sequence[ReturnPair], rows: int = 1
) -> float | None:
    """The p-value of two tests, of all pairs and of those of each seed, corrected for ``rows``.

    None if even a difference in every pair could not be significant.
    """
    tested = [_told_apart(*pair) for pair in apart]
    if all(np.array_equal(*pair) for pair in tested):
        return 1.0
    alike = [pair for pair in pairs if np.array_equal(*pair)]
    if sum(before.size for before, _ in [*alike, *tested]) < fewest_episodes(rows):
        return None
    before, now = (np.concatenate(side) for side in zip(*tested, strict=True))
    together = p_paired(before, now)
    each = min(p_paired(*pair) for pair in tested) * len(tested)
    return min(1.0, 2 * rows * min(together, each))


def _told_apart(before: Floats, now: Floats) -> ReturnPair:
    """The pairs of a seed, with equal returns where only rounding differs.

    Rounding may move all returns to one side. One pair stands for episodes that are all the same.
    """
    if len(set(zip(before.tolist(), now.tolist(), strict=True))) == 1:
        before, now = before[:1], now[:1]
    is_rounding = np.abs(now - before) <= ROUNDING * np.abs(before).max()
    return before, np.where(is_rounding, before, now)
