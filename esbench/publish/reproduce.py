"""Train recorded trials again and compare digests and scores; nothing is written.

The records are stored trials or the files of a leaderboard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import float_digest
from esbench.core.errors import TrainingError, UsageError
from esbench.core.seeding import Purpose, stream
from esbench.engine.engine import Engine
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.run_trial import check_spec
from esbench.experiment.stored_trainer import evaluate_trial, make_trainer
from esbench.experiment.watchers import Stop, episode_limit
from esbench.grids.stored_spec import at_target, require_possible
from esbench.grids.trial_spec import TrialSpec
from esbench.publish.verification import (
    MIN_TESTED_RUNS,
    SCORE_ONLY,
    Rerun,
    RerunOutcome,
    Verification,
    contradiction,
    decide,
    fewest_runs,
)
from esbench.results.cell import Cell
from esbench.results.entries import PLAYED, TRAINED, Entry, EntryRun, run_summary
from esbench.results.policy_files import Arrays
from esbench.results.run import Run
from esbench.results.sources import done_cells
from esbench.store.generation_record import GenerationRecord
from esbench.store.origin import (
    changed_code,
    changes,
    differences_within,
    is_same_esbench,
    origin_of,
)
from esbench.store.provenance import provenance
from esbench.store.trial_folder import TrialFolder

IN_ROWS: Final = (
    "env_steps", "eval_env_steps", "episodes", "population_size", "population_return_mean",
    "population_return_std", "population_return_min", "population_return_max", "center_return",
    "center_rank", "non_finite", "episode_length_mean",
)  # fmt: skip
"""The columns of stored rows that follow from what was played."""
UNKNOWN_CODE: Final = "esbench, whose code is not recorded or is of another commit"
SAME_CODE: Final = "code, versions and processor are the recorded ones, so every bit must be equal"
LONGER: Final = 2  # times the recorded steps: longer training is not that of the record
_ROUNDING: Final = 1e-9  # another processor may add in another order

Watch: TypeAlias = Callable[[str, GenerationRecord], None]
"""Called with the name of a trial and every generation's record."""


@final
@dataclass(frozen=True)
class RecordedCell:
    """A cell, and the ``chosen`` seeds that are to be trained or played again.

    Of an ``entry`` of a leaderboard, further seeds may be trained if the chosen ones are too few
    for a test. If ``policies`` are played, these are their arrays with the episodes to play, and
    ``missing`` are seeds without one.
    """

    cell: Cell
    chosen: tuple[int, ...]
    entry: Entry | None = None
    policies: Mapping[int, Arrays] = field(default_factory=dict)
    missing: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the cell, which no other one has."""
        return self.entry.name if self.entry else self.cell.title

    @property
    def title(self) -> str:
        """The cell and the chosen seeds."""
        return f"{self.name}, seed {', '.join(map(str, self.chosen))}"

    @property
    def env_steps(self) -> int:
        """The steps of training the chosen seeds, or of the episodes of policies."""
        if self.policies:
            return int(sum(arrays["lengths"].sum() for arrays in self.policies.values()))
        return int(sum(run.env_steps for run in self.cell.runs if run.seed in self.chosen))

    @property
    def recorded_episodes(self) -> int:
        """The held-out episodes of the chosen seeds."""
        return len(self.chosen) * int(self.cell.spec["evaluation"]["episodes"])

    @property
    def episodes(self) -> int:
        """The held-out episodes that are played."""
        played = sum(len(arrays["lengths"]) for arrays in self.policies.values())
        return played or self.recorded_episodes


def stored_trials(path: Path) -> list[RecordedCell]:
    """Every trial below ``path``, all chosen.

    Raises:
        UsageError: as ``done_cells``, a trial is damaged, or this version does not understand its
            specification.
    """
    found = done_cells(path)
    for trial in (trial for cell in found for trial in cell.trials):
        trial.load_checkpoint()  # damage is named before anything is trained
        trial.records()
    return [RecordedCell(cell, cell.seeds) for cell in found]


def draw_sample(entries: Sequence[Entry], count: int | None, seed: int) -> list[RecordedCell]:
    """Choose ``count`` random trials by ``seed``, or all; UsageError if there are fewer."""
    trials = [(n, seed) for n, entry in enumerate(entries) for seed in entry.seeds]
    if count is None:
        count = len(trials)
    if not 1 <= count <= len(trials):
        raise UsageError(f"sample = {count}: expected 1 to {len(trials)}, the number of trials")
    drawn = stream(seed, Purpose.SAMPLE).choice(len(trials), size=count, replace=False)
    chosen: dict[int, list[int]] = {}
    for n, own in (trials[number] for number in sorted(drawn.tolist())):
        chosen.setdefault(n, []).append(own)
    return [RecordedCell(entries[n].to_cell(), tuple(own), entries[n]) for n, own in chosen.items()]


def require_supported(cells: Iterable[RecordedCell], pool: Engine) -> None:
    """Build what training the cells needs; what training reports, as a failure, is no error here.

    Raises:
        UsageError: something is not supported, does not fit into memory or exceeds its limit, or
            a run is not ``require_possible``.
    """
    for cell in cells:
        spec = cell.cell.trial_spec(cell.chosen[0])
        for run in cell.cell.runs:
            numbers = run.generations, run.env_steps, run.stopped
            require_possible(spec, *numbers, f"{cell.name}, seed {run.seed}")
        try:
            check_spec(spec, is_new=False, pool=pool)
        except TrainingError:
            continue
        except MemoryError as error:
            raise UsageError(f"{cell.name}: {error}; expected what fits into memory") from None


def reproduce(
    cells: Iterable[RecordedCell],
    pool: Engine,
    watch: Watch,
    announce: Callable[[Verification], None],
    episode_timeout: float | None = None,
) -> None:
    """Train the chosen runs of some cells again, and announce every verdict once it is final.

    A run fails if no episode ends within ``episode_timeout`` seconds.

    Cells with differences come at the end, because their p-values depend on each other. Where bits
    of a published cell differ, up to four of its seeds are trained, and new ones if its recorded
    scores are too few for a test.

    Raises:
        UsageError: this version does not understand a specification.
    """
    apart: list[tuple[RecordedCell, Verification]] = []
    for cell in cells:
        found = _verification(
            cell, *_trained_again(cell, cell.chosen, pool, watch, episode_timeout)
        )
        if found.outcome is RerunOutcome.DIFFERENT:
            apart.append((cell, found))
        else:
            announce(found)
    tests = sum(not found.contradiction for _, found in apart)
    complete = []
    for cell, found in apart:
        if cell.entry and not found.contradiction and not found.problem:
            seeds = _more_seeds(cell, len(found.reruns), tests)
            more, problem = _trained_again(cell, seeds, pool, watch, episode_timeout)
            found = replace(found, reruns=(*found.reruns, *more), problem=problem)
        complete.append(found)
    for found in decide(complete):
        announce(found)


def _verification(cell: RecordedCell, reruns: Sequence[Rerun], problem: str) -> Verification:
    """What reruns say without a test; ``problem`` is why others have failed."""
    made = provenance(cell.cell.trial_spec(0))  # now that its environment is registered
    here, runs = origin_of(made), cell.cell.runs
    phrases = [phrase for run in runs for phrase in changes(run.origin, here, itself=True)]
    phrases += [phrase for run in runs for phrase in differences_within(run.description)]
    code = [changed_code(run.description, made["own_code"]) for run in runs]
    changed = tuple(dict.fromkeys([*phrases, *itertools.chain(*code)]))
    different = any(rerun.parts_at is not None or rerun.edited for rerun in reruns)
    refuted = contradiction(reruns)
    if different and not changed:
        if all(is_same_esbench(run.origin, here) for run in runs):
            refuted = refuted or SAME_CODE
        elif not refuted:
            changed = (UNKNOWN_CODE,)
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


def _more_seeds(cell: RecordedCell, done: int, tests: int) -> list[int]:
    """Further recorded seeds, then new ones, until a test can find a difference."""
    seeds = cell.cell.seeds
    others = [seed for seed in seeds if seed not in cell.chosen][: max(0, MIN_TESTED_RUNS - done)]
    missing = fewest_runs(len(seeds), tests) - done - len(others)
    first = max(seeds) + 1
    return [*others, *range(first, first + missing)]


def _trained_again(
    cell: RecordedCell,
    seeds: Iterable[int],
    pool: Engine,
    watch: Watch,
    episode_timeout: float | None,
) -> tuple[list[Rerun], str]:
    """The reruns of recorded or new seeds, and why others have failed."""
    reruns, problems = [], []
    for seed in seeds:
        try:
            with episode_limit(pool, episode_timeout):
                reruns.append(_rerun(cell, seed, pool, partial(watch, f"{cell.name}, seed {seed}")))
        except (TrainingError, MemoryError) as error:
            problems.append(f"seed {seed}: {error}")
    return reruns, "; ".join(problems)


def _rerun(
    cell: RecordedCell, seed: int, pool: Engine, watch: Callable[[GenerationRecord], None]
) -> Rerun:
    run = next((run for run in cell.cell.runs if run.seed == seed), None)
    most = LONGER * max(run.env_steps for run in cell.cell.runs)
    if run is None:
        _, score = train_again(cell.cell.trial_spec(seed), pool, watch, most)
        return Rerun(seed, None, None, score.finite_mean, is_new=True)
    recorded = cell.entry and cell.entry.runs[cell.entry.seeds.index(seed)]
    known = _digests(run, recorded)
    generations, spec = max(known, default=0), cell.cell.trial_spec(seed)
    # The specification has the target of a stop, and not the callback of another one.
    last = generations if run.stopped and not at_target(spec.as_json(), run.stopped) else None
    records, score = train_again(spec, pool, watch, most, last)
    digests = {each.generation: each.digest for each in records}
    differ = [at for at, digest in known.items() if not digests.get(at, "").startswith(digest)]
    if len(records) != generations:
        differ.append(min(len(records), generations) + 1)
    parts_at = min(differ, default=None)
    if recorded is None:
        result, folder = run.folder.result(), run.folder
        if parts_at is None and score.is_identical(result) and folder.load_checkpoint():
            score = evaluate_trial(folder.path, pool).score  # also what ``esbench eval`` plays
        same = score.is_identical(result)
        edited = _edited_rows(folder, records) if same and parts_at is None else ()
    else:
        same = float_digest(score.returns, score.lengths) == recorded.episodes_digest
        names = (*(TRAINED if parts_at is None else ()), *PLAYED)
        edited = _edited(run, recorded, records, score, names) if same else ()
    return Rerun(
        seed,
        SCORE_ONLY if parts_at is None and not same else parts_at,
        run.score,
        score.finite_mean,
        equal_until=max((at for at in known if at < (parts_at or 0)), default=0),
        edited=edited,
    )


def train_again(
    spec: TrialSpec,
    pool: Engine,
    watch: Callable[[GenerationRecord], None],
    most_steps: float,
    last: int | None = None,
) -> tuple[list[GenerationRecord], HeldOutScore]:
    """The records of all generations and the score of a specification.

    Training stops after the ``last`` generation, where a callback has stopped that of the record,
    or beyond ``most_steps``.
    """

    def watched(record: GenerationRecord) -> Stop | None:
        watch(record)
        ends = record.generation == last or record.env_steps > most_steps
        return Stop("as recorded") if ends else None

    with make_trainer(spec, pool) as trainer:
        trainer.train(callbacks=[watched])
        score = trainer.evaluate()
        return [*trainer.history], score


def _digests(run: Run, recorded: EntryRun | None) -> dict[int, str]:
    """How the digests of recorded generations begin: of all, or of those that a file has."""
    if recorded is None:
        return {row.generation: row.digest for row in run.folder.records()}
    first, last = run.digests
    return {**dict(enumerate(first, 1)), **recorded.digests, recorded.generations: last or ""}


def _edited(
    run: Run,
    recorded: EntryRun,
    rows: Sequence[GenerationRecord],
    score: HeldOutScore,
    names: Iterable[str],
) -> tuple[str, ...]:
    """The fields of a file that contradict its digests, which training again has given."""
    if score.mean != run.score:
        return ("score",)
    played = {**recorded.model_dump(), **score.as_json}
    again = run_summary(played, rows, run.is_agent)
    return tuple(name for name in names if getattr(recorded, name) != getattr(again, name))


def _edited_rows(folder: TrialFolder, rows: Sequence[GenerationRecord]) -> tuple[str, ...]:
    """The columns of stored rows that contradict their digests."""
    stored, close = folder.columns(*IN_ROWS), partial(np.allclose, equal_nan=True)
    now = {key: np.array([getattr(row, key) for row in rows], np.float64) for key in IN_ROWS}
    differ = (k for k in IN_ROWS if not close(stored[k], now[k], rtol=_ROUNDING, atol=_ROUNDING))
    return tuple(differ)
