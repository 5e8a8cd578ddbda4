"""Plays the held-out episodes of published policies again and compares return by return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from esbench.core.arrays import float_digest
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.engine import Engine
from esbench.publish.leaderboard.entries import Entry
from esbench.publish.leaderboard.policies import (
    Arrays,
    PublishedPolicy,
    policies_file,
    read_policies,
)
from esbench.publish.reproduce import RecordedCell
from esbench.publish.verification import SCORE_ONLY, Rerun, RerunOutcome, Verification
from esbench.results.statistics.significance import LEVEL, p_different
from esbench.store.origin import changes, origin_of
from esbench.store.provenance import provenance

SAME: Final = "packages and processor are the recorded ones, so every return must be equal"


def has_policies(entries: Sequence[Entry], place: Path) -> list[Entry]:
    """The rows whose policies are published; UsageError if there is none."""
    found = [entry for entry in entries if entry.policies is not None]
    if not found:
        raise UsageError(
            f"{place}: none of the chosen rows has published policies; without --replay, their "
            "seeds are trained again"
        )
    return found


def play_again(
    cells: Iterable[RecordedCell],
    leaderboard: Path,
    pool: Engine,
    announce: Callable[[Verification], None],
) -> None:
    """Play the policies of the chosen seeds of published rows, and announce every verdict.

    Where a return differs, as it may on another processor, a permutation test compares the returns
    of the episodes of a seed with the recorded ones.

    Raises:
        UsageError: a row has no policies, or their file is missing, damaged or of another row.
    """
    found = [(cell, _policies(cell, leaderboard)) for cell in cells]
    for cell, policies in found:
        announce(_verdict(cell, policies, pool))


def _policies(cell: RecordedCell, leaderboard: Path) -> dict[int, Arrays]:
    assert cell.entry is not None
    path = policies_file(cell.entry, leaderboard)
    policies = read_policies(cell.entry, path)
    for seed in cell.chosen:
        if seed not in policies:
            raise UsageError(f"{path} lacks seed {seed}; expected one of {sorted(policies)}")
        arrays, run = policies[seed], cell.entry.runs[cell.entry.seeds.index(seed)]
        if float_digest(arrays["returns"], arrays["lengths"]) != run.episodes_digest:
            raise UsageError(f"{path}: the episodes of seed {seed} are not those of the row")
    return policies


def _verdict(cell: RecordedCell, policies: dict[int, Arrays], pool: Engine) -> Verification:
    reruns, problems, p_values = [], [], []
    for seed in cell.chosen:
        arrays = policies[seed]
        try:
            score = PublishedPolicy(cell.cell.trial_spec(seed), arrays).play(pool)
        except TrainingError as error:
            problems.append(f"seed {seed}: {error}")
            continue
        same = np.array_equal(score.returns, arrays["returns"])
        if not same:
            p_values.append(p_different(score.returns, arrays["returns"]))
        at = None if same else SCORE_ONLY
        reruns.append(Rerun(seed, at, float(arrays["returns"].mean()), score.finite_mean))
    here = origin_of(provenance(cell.cell.trial_spec(0)))
    runs = [run for run in cell.cell.runs if run.seed in cell.chosen]
    changed = [each for run in runs for each in changes(run.origin, here, itself=True)]
    outcome, p_value = RerunOutcome.FAILED if problems else RerunOutcome.IDENTICAL, None
    if p_values:
        p_value = min(1.0, min(p_values) * len(p_values))
        is_excused = changed and p_value > LEVEL
        outcome = RerunOutcome.NO_DIFFERENCE if is_excused else RerunOutcome.DIFFERENT
    return Verification(
        name=cell.name,
        outcome=outcome,
        reruns=tuple(reruns),
        recorded=tuple(run.score for run in cell.cell.runs),
        changed=tuple(dict.fromkeys(changed)),
        problem="; ".join(problems),
        p_value=p_value,
        contradiction="" if changed or not p_values else SAME,
        compared="every return",
    )
