"""Trains a random sample of a leaderboard again and compares digests and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from esbench.analysis.permutation import p_different
from esbench.errors import UsageError
from esbench.gate.verify import (
    MIN_RUNS,
    Outcome,
    Rerun,
    Verification,
    Watch,
    judged,
    train_again,
)
from esbench.leaderboard.entries import Entry, read_leaderboard
from esbench.leaderboard.submit import episodes_digest
from esbench.rollouts.engine import Engine
from esbench.seeding import Purpose, stream
from esbench.store.provenance.changes import changed_code, changes, origin_of
from esbench.store.provenance.record import provenance


def verify_sample(
    folder: Path, count: int, seed: int, pool: Engine, watch: Watch
) -> list[Verification]:
    """Train ``count`` random trials of a leaderboard again, chosen by ``seed``.

    Where bits differ, as they may with another processor or other versions, more seeds of the cell
    are trained, up to four, and their scores are compared to all of the cell.

    Raises:
        UsageError: as ``read_leaderboard``, the leaderboard has fewer trials, or this version does
            not understand a specification.
        TrainingError: An environment raised an error.
    """
    entries = read_leaderboard(folder)
    trials = [(e, place) for e, entry in enumerate(entries) for place in range(len(entry.runs))]
    if not 1 <= count <= len(trials):
        raise UsageError(f"sample = {count}: expected 1 to {len(trials)}, the trials of {folder}")
    chosen = stream(seed, Purpose.SAMPLE).choice(len(trials), size=count, replace=False)
    places: dict[int, list[int]] = {}
    for e, place in (trials[number] for number in sorted(chosen.tolist())):
        places.setdefault(e, []).append(place)
    return judged([_verify_entry(entries[e], own, pool, watch) for e, own in places.items()])


def _verify_entry(entry: Entry, places: Sequence[int], pool: Engine, watch: Watch) -> Verification:
    reruns = [_rerun(entry, place, pool, watch) for place in places]
    same = all(rerun.parts_at is None for rerun in reruns)
    if not same:
        others = [place for place in range(len(entry.runs)) if place not in places]
        more = others[: max(0, MIN_RUNS - len(reruns))]
        reruns += [_rerun(entry, place, pool, watch) for place in more]
    new = [rerun.score for rerun in reruns if rerun.score is not None]
    decidable = not same and MIN_RUNS <= len(new) == len(reruns)
    made = provenance(entry.cell.trial_spec(entry.seeds[0]))  # now that it is registered
    here = origin_of(made)
    changed = [phrase for origin in entry.origins for phrase in changes(origin, here)]
    changed += changed_code({"own_code": entry.own_code}, made["own_code"])
    return Verification(
        name=entry.cell.name,
        outcome=Outcome.IDENTICAL if same else Outcome.DIFFERENT,
        reruns=tuple(reruns),
        p_value=p_different(entry.scores, new) if decidable else None,
        changed=tuple(dict.fromkeys(changed)),
    )


def _rerun(entry: Entry, place: int, pool: Engine, watch: Watch) -> Rerun:
    trial, run = entry.cell.trials[place], entry.runs[place]
    spec = entry.cell.trial_spec(trial.seed)
    watched = partial(watch, f"{entry.cell.name}, seed {trial.seed}")
    digests, score = train_again(spec, pool, watched, run.generations, run.stopped)
    recorded = [*enumerate(trial.first_digests), (run.generations - 1, trial.last_digest)]
    parts_at = next((at + 1 for at, then in recorded if digests[at : at + 1] != [then]), None)
    played = len(digests), episodes_digest(score.returns, score.lengths), score.mean
    if parts_at is None and played != (run.generations, run.episodes_digest, trial.score):
        parts_at = run.generations + 1
    return Rerun(
        trial.seed, parts_at, trial.score, score.mean if math.isfinite(score.mean) else None
    )
