"""Trains a random sample of a leaderboard again and compares digests and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, stream
from esbench.engine.engine import Engine
from esbench.experiment.final_policy import HeldOutScore
from esbench.publish.gate.reruns import (
    MIN_TESTED_RUNS,
    SCORE_ONLY,
    Announce,
    Rerun,
    RerunOutcome,
    Verification,
    Watch,
    announce_final,
    attempted,
    contradiction,
    fewest_runs,
    outcome_of,
    score_tolerance,
    smallest_p,
    train_again,
)
from esbench.publish.leaderboard.entries import Entry, Run
from esbench.publish.leaderboard.run_summary import edited_fields, run_summary
from esbench.results.statistics.significance import p_different
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance import Origin, changed_code, changes, origin_of, provenance


@final
@dataclass(frozen=True)
class Drawn:
    """Trials of one entry, by their places in it."""

    entry: Entry
    places: tuple[int, ...]

    @property
    def env_steps(self) -> int:
        """The steps of training them again."""
        return sum(self.entry.runs[place].env_steps for place in self.places)

    @property
    def name(self) -> str:
        """The cell and the seeds."""
        seeds = ", ".join(str(self.entry.seeds[place]) for place in self.places)
        return f"{self.entry.name}, seed {seeds}"


def draw_sample(entries: Sequence[Entry], count: int | None, seed: int) -> list[Drawn]:
    """Choose ``count`` random trials by ``seed``, or all; UsageError if there are fewer."""
    trials = [(e, place) for e, entry in enumerate(entries) for place in range(len(entry.runs))]
    if count is None:
        count = len(trials)
    if not 1 <= count <= len(trials):
        raise UsageError(f"sample = {count}: expected 1 to {len(trials)}, the number of trials")
    chosen = stream(seed, Purpose.SAMPLE).choice(len(trials), size=count, replace=False)
    places: dict[int, list[int]] = {}
    for e, place in (trials[number] for number in sorted(chosen.tolist())):
        places.setdefault(e, []).append(place)
    return [Drawn(entries[e], tuple(own)) for e, own in places.items()]


def verify_drawn(drawn: Sequence[Drawn], pool: Engine, watch: Watch, announce: Announce) -> None:
    """Train trials again; identical ones are reported at once.

    Where bits differ, as they may with another processor or other versions, more seeds of the cell
    are trained, up to four, and their scores are compared to all of the cell. If these are too few
    for a significant difference, new seeds follow. With the commit, versions and processor of the
    record, bits must not differ.

    Raises:
        UsageError: this version does not understand a specification.
    """
    announce_final(_verifications(drawn, pool, watch), announce)


def _verifications(drawn: Sequence[Drawn], pool: Engine, watch: Watch) -> Iterator[Verification]:
    """The verdicts; those on entries whose bits differ come last, because their number matters."""
    apart = []
    for each in drawn:
        reruns, problem = attempted(_stored(each.entry, each.places, pool, watch))
        if any(rerun.parts_at is not None for rerun in reruns):
            apart.append((each, reruns, problem))
        else:
            yield _verify_entry(each, reruns, problem, 0, pool, watch)
    for each, reruns, problem in apart:
        yield _verify_entry(each, reruns, problem, len(apart), pool, watch)


def _verify_entry(
    drawn: Drawn, reruns: list[Rerun], problem: str, tests: int, pool: Engine, watch: Watch
) -> Verification:
    """The verdict on an entry, with more ``reruns`` if bits differ; one of several ``tests``.

    ``problem`` is why some of the first reruns have failed; then there are no more.
    """
    entry, places = drawn.entry, drawn.places
    made = provenance(entry.cell.trial_spec(entry.seeds[0]))  # now that it is registered
    here = origin_of(made)
    changed = [phrase for origin in entry.origins for phrase in changes(origin, here)]
    changed += changed_code({"own_code": entry.own_code}, made["own_code"])
    outcome = outcome_of(reruns, problem)
    found = contradiction(reruns, changed)
    if outcome is RerunOutcome.DIFFERENT and not changed and _same_commit(entry, here):
        found = found or (
            "commit, versions and processor are the recorded ones, so every bit must be equal"
        )
    if outcome is RerunOutcome.DIFFERENT and not found and not problem:
        others = [place for place in range(len(entry.runs)) if place not in places]
        more = others[: max(0, MIN_TESTED_RUNS - len(reruns))]
        stored, problem = attempted(_stored(entry, more, pool, watch))
        reruns += stored
        missing = 0 if problem else fewest_runs(len(entry.scores), tests) - len(reruns)
        new_seeds = range(max(entry.seeds) + 1, max(entry.seeds) + 1 + missing)
        fresh, new_problem = attempted(
            (seed, partial(_new_run, entry, seed, pool, watch)) for seed in new_seeds
        )
        reruns += fresh
        problem = problem or new_problem
    new = [rerun.score for rerun in reruns if rerun.score is not None]
    tested = outcome is RerunOutcome.DIFFERENT and not found and not problem
    decidable = tested and MIN_TESTED_RUNS <= len(new) == len(reruns)
    return Verification(
        name=entry.name,
        outcome=outcome,
        reruns=tuple(reruns),
        p_value=p_different(entry.scores, new) if decidable else None,
        changed=tuple(dict.fromkeys(changed)),
        smallest_p=smallest_p(len(entry.scores), len(reruns)),
        problem=problem,
        contradiction=found,
    )


def _same_commit(entry: Entry, here: Origin) -> bool:
    """Whether all trials were made with this commit, without changes."""
    commits = {origin.git_commit for origin in entry.origins}
    return commits == {here.git_commit} and not (here.git_commit or "+").endswith("+")


def _stored(
    entry: Entry, places: Sequence[int], pool: Engine, watch: Watch
) -> list[tuple[int, Callable[[], Rerun]]]:
    """The trials at ``places`` of an entry as runs for ``attempted``."""
    return [
        (entry.cell.trials[place].seed, partial(_rerun, entry, place, pool, watch))
        for place in places
    ]


def _new_run(entry: Entry, seed: int, pool: Engine, watch: Watch) -> Rerun:
    watched = partial(watch, f"{entry.name}, seed {seed}")
    _, score = train_again(entry.cell.trial_spec(seed), pool, watched, 0, None)
    return Rerun(seed, None, None, score.finite_mean, is_new=True)


def _rerun(entry: Entry, place: int, pool: Engine, watch: Watch) -> Rerun:
    trial, run = entry.cell.trials[place], entry.runs[place]
    spec = entry.cell.trial_spec(trial.seed)
    watched = partial(watch, f"{entry.name}, seed {trial.seed}")
    records, score = train_again(spec, pool, watched, run.generations, run.stopped)
    digests = [record.digest for record in records]
    recorded = [*enumerate(trial.first_digests), (run.generations - 1, trial.last_digest)]
    parts_at = next((at + 1 for at, then in recorded if digests[at : at + 1] != [then]), None)
    if not np.isfinite(score.returns).all():
        at = SCORE_ONLY if parts_at is None else parts_at
        return Rerun(trial.seed, at, trial.score, None)
    again = _summary(run, records, score, spec.is_agent)
    played = again.generations, again.episodes_digest, score.mean
    if parts_at is None and played != (run.generations, run.episodes_digest, trial.score):
        parts_at = SCORE_ONLY
    return Rerun(
        trial.seed,
        parts_at,
        trial.score,
        score.finite_mean,
        edited=edited_fields(run, again) if parts_at is None else (),
        tolerance=score_tolerance(score.returns),
    )


def _summary(
    run: Run, records: Sequence[GenerationRecord], score: HeldOutScore, is_agent: bool
) -> Run:
    result = {
        **run.model_dump(),
        **score.as_json,
        "generations": len(records),
        "env_steps": records[-1].env_steps,
    }
    steps, returns = (
        np.array([getattr(record, name) for record in records], dtype=np.float64)
        for name in ("env_steps", "center_return")
    )
    return run_summary(result, steps, returns, is_agent)
