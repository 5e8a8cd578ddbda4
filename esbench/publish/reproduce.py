"""Train recorded trials again and compare digests and scores; nothing is written.

The records are stored trials or the files of a leaderboard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import float_digest
from esbench.core.errors import TrainingError, UsageError
from esbench.core.seeding import Purpose, stream
from esbench.core.settings import parse
from esbench.engine.engine import Engine
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.stored_trainer import evaluate_trial, make_trainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.leaderboard.entries import Entry, at_target, edited_fields, run_summary
from esbench.publish.verification import (
    MIN_TESTED_RUNS,
    SCORE_ONLY,
    Rerun,
    RerunOutcome,
    Verification,
    contradiction,
    decide,
    fewest_runs,
    score_tolerance,
)
from esbench.results.baselines import done_cells
from esbench.results.cell import Cell
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance import changed_code, changes, origin_of, provenance
from esbench.store.trial_folder import TrialFolder

PLAYED: Final = (
    "env_steps", "eval_env_steps", "episodes", "population_size", "population_return_mean",
    "population_return_std", "population_return_min", "population_return_max", "center_return",
    "center_rank", "non_finite", "episode_length_mean",
)  # fmt: skip
"""The columns of stored rows that follow from what was played."""
SAME_COMMIT: Final = (
    "commit, versions and processor are the recorded ones, so every bit must be equal"
)
_ROUNDING: Final = 1e-9  # another processor may add in another order

Watch: TypeAlias = Callable[[str, GenerationRecord], None]
"""Called with the name of a trial and every generation's record."""
Records: TypeAlias = Sequence[GenerationRecord]


@final
@dataclass(frozen=True)
class RunRecord:
    """What a source has of a run to compare with training it again.

    Attributes:
        digests: of some generations or all, by generation from 1.
        same_score: whether a new score has the recorded episodes, bit for bit.
        edited: the recorded numbers that a trial with the same digests does not have.
        stored_score: scores the stored policy, if there is one.
    """

    digests: Mapping[int, str | None]
    same_score: Callable[[HeldOutScore], bool]
    edited: Callable[[Records, HeldOutScore], tuple[str, ...]]
    stored_score: Callable[[Engine], HeldOutScore] | None = None


@final
@dataclass(frozen=True)
class RecordedCell:
    """A cell, and the places of the runs that are to be trained again.

    Of an ``entry`` of a leaderboard, further seeds may be trained if the chosen ones are too few
    for a test, and with its commit, versions and processor no bit may differ.
    """

    cell: Cell
    chosen: tuple[int, ...]
    entry: Entry | None = None

    @property
    def name(self) -> str:
        """The name of the cell, which no other one has."""
        return self.entry.name if self.entry else self.cell.title

    @property
    def title(self) -> str:
        """The cell and the chosen seeds."""
        return f"{self.name}, seed {', '.join(str(self.cell.seeds[n]) for n in self.chosen)}"

    @property
    def env_steps(self) -> int:
        """The steps of training the chosen runs."""
        return int(sum(self.cell.runs[place].env_steps for place in self.chosen))

    def spec(self, seed: int) -> TrialSpec:
        """The specification of a seed; UsageError if this version does not understand it."""
        return parse(TrialSpec, {**self.cell.spec, "seed": seed}, self.name, "spec")

    def record(self, place: int) -> RunRecord:
        """What is recorded of a run."""
        if self.entry:
            return _published_record(self.entry, place)
        return _stored_record(self.cell.runs[place].folder)


def stored_trials(path: Path) -> list[RecordedCell]:
    """Every trial below ``path``, all chosen.

    Raises:
        UsageError: as ``done_cells``, a trial is damaged, or this version does not understand its
            specification.
    """
    found = done_cells(path)
    for trial in (trial for cell in found for trial in cell.trials):
        trial.load_checkpoint()  # damage is named before anything is trained
        trial.rows()
    return [RecordedCell(cell, tuple(range(len(cell.runs)))) for cell in found]


def draw_sample(entries: Sequence[Entry], count: int | None, seed: int) -> list[RecordedCell]:
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
    return [RecordedCell(entries[e].to_cell(), tuple(own), entries[e]) for e, own in places.items()]


def reproduce(
    cells: Iterable[RecordedCell],
    pool: Engine,
    watch: Watch,
    announce: Callable[[Verification], None],
) -> None:
    """Train the chosen runs of some cells again, and announce every verdict once it is final.

    Cells with differences come at the end, because their p-values depend on each other. Where bits
    of a published cell differ, up to four of its seeds are trained, and new ones if its recorded
    scores are too few for a test.

    Raises:
        UsageError: this version does not understand a specification.
    """
    apart: list[tuple[RecordedCell, Verification]] = []
    for cell in cells:
        found = _verification(cell, *_trained_again(cell, cell.chosen, pool, watch))
        if found.outcome is RerunOutcome.DIFFERENT:
            apart.append((cell, found))
        else:
            announce(found)
    tests = sum(not found.contradiction for _, found in apart)
    complete = []
    for cell, found in apart:
        if cell.entry and not found.contradiction and not found.problem:
            more, problem = _more_seeds(cell, len(found.reruns), tests, pool, watch)
            found = replace(found, reruns=(*found.reruns, *more), problem=problem)
        complete.append(found)
    for found in decide(complete):
        announce(found)


def _verification(cell: RecordedCell, reruns: Sequence[Rerun], problem: str) -> Verification:
    """What reruns say without a test; ``problem`` is why others have failed."""
    made = provenance(cell.spec(0))  # now that its environment is registered
    here, runs = origin_of(made), cell.cell.runs
    phrases = [phrase for run in runs for phrase in changes(run.origin, here)]
    code = [changed_code(run.description, made["own_code"]) for run in runs]
    changed = tuple(dict.fromkeys([*phrases, *itertools.chain(*code)]))
    different = any(rerun.parts_at is not None or rerun.edited for rerun in reruns)
    refuted = contradiction(reruns, changed)
    same_commit = {run.origin.git_commit for run in runs} == {here.git_commit}
    is_clean = not (here.git_commit or "+").endswith("+")
    if different and cell.entry and not changed and same_commit and is_clean:
        refuted = refuted or SAME_COMMIT
    failed = RerunOutcome.FAILED if problem else RerunOutcome.IDENTICAL
    return Verification(
        name=cell.name,
        outcome=RerunOutcome.DIFFERENT if different else failed,
        reruns=tuple(reruns),
        recorded=tuple(run.score for run in runs),
        changed=changed,
        problem=problem,
        contradiction=refuted,
    )


def _more_seeds(
    cell: RecordedCell, done: int, tests: int, pool: Engine, watch: Watch
) -> tuple[list[Rerun], str]:
    """Further recorded seeds, then new ones, until a test can find a difference."""
    seeds = cell.cell.seeds
    others = [place for place in range(len(seeds)) if place not in cell.chosen]
    reruns, problem = _trained_again(cell, others[: max(0, MIN_TESTED_RUNS - done)], pool, watch)
    if problem:
        return reruns, problem
    missing = fewest_runs(len(seeds), tests) - done - len(reruns)
    first = max(seeds) + 1
    fresh, problem = attempted(
        (seed, partial(_new_run, cell, seed, pool, watch)) for seed in range(first, first + missing)
    )
    return [*reruns, *fresh], problem


def _trained_again(
    cell: RecordedCell, places: Iterable[int], pool: Engine, watch: Watch
) -> tuple[list[Rerun], str]:
    return attempted(
        (cell.cell.seeds[place], partial(_rerun, cell, place, pool, watch)) for place in places
    )


def attempted(runs: Iterable[tuple[int, Callable[[], Rerun]]]) -> tuple[list[Rerun], str]:
    """The results of ``runs``, each with its seed, and why others have failed."""
    reruns, problems = [], []
    for seed, run in runs:
        try:
            reruns.append(run())
        except TrainingError as error:
            problems.append(f"seed {seed}: {error}")
    return reruns, "; ".join(problems)


def _rerun(cell: RecordedCell, place: int, pool: Engine, watch: Watch) -> Rerun:
    run, record = cell.cell.runs[place], cell.record(place)
    watched = partial(watch, f"{cell.name}, seed {run.seed}")
    generations = int(run.generations)
    records, score = train_again(cell.spec(run.seed), pool, watched, generations, run.stopped)
    digests = {each.generation: each.digest for each in records}
    differ = [at for at, digest in record.digests.items() if digests.get(at) != digest]
    if len(records) != generations:
        differ.append(min(len(records), generations) + 1)
    parts_at = min(differ, default=None)
    if parts_at is None and record.stored_score is not None and record.same_score(score):
        score = record.stored_score(pool)  # also what ``esbench eval`` plays
    if parts_at is None and not record.same_score(score):
        parts_at = SCORE_ONLY
    return Rerun(
        run.seed,
        parts_at,
        run.score,
        score.finite_mean,
        edited=record.edited(records, score) if parts_at is None else (),
        tolerance=score_tolerance(score.returns),
    )


def _new_run(cell: RecordedCell, seed: int, pool: Engine, watch: Watch) -> Rerun:
    watched = partial(watch, f"{cell.name}, seed {seed}")
    _, score = train_again(cell.spec(seed), pool, watched, 0, None)
    return Rerun(seed, None, None, score.finite_mean, is_new=True)


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
    last = generations if stopped and not at_target(spec.as_json(), stopped) else None

    def watched(record: GenerationRecord) -> Stop | None:
        watch(record)
        return Stop(stopped or "") if record.generation == last else None

    with make_trainer(spec, pool) as trainer:
        trainer.train(callbacks=[watched])
        score = trainer.evaluate()
        return [*trainer.history], score


def _stored_record(trial: TrialFolder) -> RunRecord:
    result = trial.result()
    has_policy = trial.load_checkpoint() is not None
    return RunRecord(
        digests={n: str(row["digest"]) for n, row in enumerate(trial.rows(), start=1)},
        same_score=lambda score: score.is_identical(result),
        edited=lambda records, score: _edited_columns(trial, records),
        stored_score=(lambda pool: evaluate_trial(trial.path, pool).score) if has_policy else None,
    )


def _edited_columns(trial: TrialFolder, records: Records) -> tuple[str, ...]:
    stored = trial.columns(*PLAYED)
    now = {key: np.array([getattr(record, key) for record in records], float) for key in PLAYED}
    return tuple(
        key
        for key in PLAYED
        if not np.allclose(stored[key], now[key], rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    )


def _published_record(entry: Entry, place: int) -> RunRecord:
    trial, run = entry.cell.trials[place], entry.runs[place]

    def same_score(score: HeldOutScore) -> bool:
        digest = float_digest(score.returns, score.lengths)
        return (digest, score.mean) == (run.episodes_digest, trial.score)

    def edited(records: Records, score: HeldOutScore) -> tuple[str, ...]:
        steps, returns = (
            np.array([getattr(record, name) for record in records], dtype=np.float64)
            for name in ("env_steps", "center_return")
        )
        played = {**score.as_json, "env_steps": records[-1].env_steps}
        is_agent = entry.spec["policy"] is None
        again = run_summary({**run.model_dump(), **played}, steps, returns, is_agent)
        return edited_fields(run, again)

    first = dict(enumerate(trial.first_digests, start=1))
    return RunRecord({**first, run.generations: trial.last_digest}, same_score, edited)
