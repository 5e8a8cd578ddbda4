"""Checks and runs one trial: resumes, trains and scores it, and stores what is recorded."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from esbench.core.arrays import State
from esbench.core.errors import (
    DamagedTrialError,
    EnvironmentFailedError,
    UsageError,
    UserCodeError,
    error_text,
    limit_error,
)
from esbench.core.escape import printable
from esbench.core.json_text import Json
from esbench.core.process import end_if_interrupted
from esbench.engine.child_process import ParentGoneError, require_main_process
from esbench.engine.engine import Engine
from esbench.experiment.stored_trainer import backend_of, make_trainer, resumed_trainer
from esbench.experiment.trainer import Recorder, Trainer
from esbench.experiment.trials import Start, Trial, require_same_code
from esbench.experiment.watchers import Callback, Outcome, Watcher
from esbench.grids.trial_spec import TrialSpec
from esbench.results.run import has_equal_episodes, score_text
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance import now, provenance

PROGRESS_SECONDS: Final = 0.5


def check_trials(trials: Sequence[Trial], pool: Engine | None = None) -> None:
    """Check one trial of each specification in this process; ``check_each`` says which."""
    check_each(trials, lambda trial: check_spec(trial.spec, not trial.folder.has_begun, pool))


def check_each(trials: Sequence[Trial], check: Callable[[Trial], None]) -> None:
    """Check one trial of each specification that is not done, whatever its seed.

    Training reports the errors of user code, and stores them with the trials.

    Raises:
        UsageError: a trial is not supported, or user code that every trial needs cannot be made.
    """
    distinct = {
        trial.spec.model_copy(update={"seed": 0}).hash: trial
        for trial in trials
        if not trial.is_done
    }
    refused: list[UserCodeError] = []
    for trial in distinct.values():
        try:
            check(trial)
        except UserCodeError as error:
            refused.append(error)
        except UsageError as error:
            if len(distinct) == 1:
                raise
            raise UsageError(f"{trial.name}: {error}") from error
        except KeyboardInterrupt:
            raise
        except BaseException:  # of user code, which may raise anything
            end_if_interrupted()
    if refused and len(refused) == len(distinct):
        raise refused[0]


def check_spec(spec: TrialSpec, is_new: bool, pool: Engine | None) -> None:
    """Build everything that a trial needs; UsageError if something is not supported.

    With a pool, a worker also plays some episodes if the trial ``is_new``, which has not begun.
    """
    # User code may change the current folder.
    with contextlib.chdir("."), make_trainer(spec, pool) as trainer:
        if pool is not None and is_new:
            trainer.check_episodes()


class TrialRecorder(Recorder, Protocol):
    """Stores a trial, as ``TrialFolder`` does, or sends it to where its folder is."""

    path: Path
    """The folder of ``log.txt``."""

    def keep(self, state: State) -> None:
        """Save the state as the latest checkpoint, and keep a copy of it."""

    def record_nodes(self, nodes: Json) -> None:
        """Store what ``Engine.nodes`` says."""

    def finish(self, result: Json) -> None:
        """Store the result; the trial is done."""

    def fail(self, traceback: str) -> None:
        """Store the error of a failed trial."""


def run_trial(
    trial: Trial, pool: Engine, watcher: Watcher, callbacks: Sequence[Callback]
) -> tuple[Outcome, str]:
    """Run a trial if it is not done; returns its outcome, and its score or error.

    Raises:
        UsageError: the trial is not supported, or its folder holds another specification or format
            or cannot be written. Stored results are not changed.
        KeyboardInterrupt: after the trial was saved.
    """
    stored = trial.settled()
    try:
        with stored.folder.locked() as mine:
            found = outcome_without_training(trial, mine)
            return found or attempt(trial, pool, stored.folder, stored.begin, watcher, callbacks)
    except DamagedTrialError as error:  # the other trials can run
        return "failed", str(error)


def outcome_without_training(trial: Trial, mine: bool) -> tuple[Outcome, str] | None:
    """The outcome of a trial that is done or runs elsewhere; None if it is to be trained.

    ``mine`` is whether this process has locked the folder. Raises what ``run_trial`` does.
    """
    if trial.is_done:
        trial.check()
        trial.folder.columns("generation")  # raises if its rows are damaged
        if mine:
            trial.record_scores()
        hints = [f"trained with {other}"] if (other := trial.changed_code) else []
        if trial.record_members and not trial.folder.records_members:
            hints.append("trained without --record members")
        hint = f"; {' and '.join(hints)}, use another --out to retrain" if hints else ""
        return "skipped", score_text(trial.folder.result()) + hint
    return None if mine else ("elsewhere", "another process runs it")


def attempt(
    trial: Trial,
    pool: Engine,
    recorder: TrialRecorder,
    begin: Callable[[Json], Start],
    watcher: Watcher,
    callbacks: Sequence[Callback],
) -> tuple[Outcome, str]:
    """Run a trial that is not done, as ``run_trial``, without access to its folder.

    ``begin`` prepares the folder, with what the trial is trained with here, and resumes.
    """
    try:
        with contextlib.chdir("."):  # user code may change the current folder
            return "done", _train(trial, pool, recorder, begin, watcher, callbacks)
    except EnvironmentFailedError as error:
        summary, details = str(error), error.traceback
    except UserCodeError as error:
        summary, details = str(error), printable(traceback.format_exc())
    except DamagedTrialError as error:
        if not trial.folder.is_done:
            recorder.fail(f"{error}\n")
        return "failed", str(error)
    except (UsageError, KeyboardInterrupt, ParentGoneError):  # not of the trial
        raise
    except BaseException as error:  # stored with the trial; the grid continues
        if limit := limit_error(error):
            raise limit from error
        summary, details = error_text(error), printable(traceback.format_exc())
    finally:
        pool.progress = None
    end_if_interrupted()  # which may be what user code has failed of
    recorder.fail(details)
    return "failed", f"{summary} (traceback in {trial.folder.path / 'error.txt'})"


def _train(
    trial: Trial,
    pool: Engine,
    recorder: TrialRecorder,
    begin: Callable[[Json], Start],
    watcher: Watcher,
    callbacks: Sequence[Callback],
) -> str:
    """Train, score and store the result; returns the score as text."""
    notes: list[str] = []

    def ended(trainer: Trainer) -> None:
        watcher.scoring_started(trial, trial.spec.evaluation.episodes)
        notes.insert(0, score_text(_finish(recorder, trainer)))

    start = begin(_about(trial.spec, pool))
    notes += start.notes
    stored = trial.folder, trial.spec, pool, start.state, start.history
    with resumed_trainer(*stored, recorder, recorder.path, ended) as trainer:
        watcher.trial_started(trial, trainer.progress.generation)

        def keep(_: GenerationRecord | None = None) -> None:
            if trial.keeps(trainer.history):
                state = trainer.state_dict()
                if state is not None:
                    recorder.keep(state | {"told": trainer.progress.generation})

        def note_nodes() -> None:
            if nodes := pool.nodes:
                recorder.record_nodes(nodes)

        def watch(record: GenerationRecord) -> None:
            if pool.nodes.get("mixed"):
                note_nodes()
            watcher.generation_done(trial, record)

        told = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                note_nodes()
                watcher.episodes_done(trial, done, total)

        pool.progress = progress
        if "begun_at" not in (start.state or {}):
            keep()  # an extended trial may have ended where a checkpoint is kept now
        trainer.train(callbacks=[keep, watch, *callbacks])
        return "; ".join(notes)


@contextlib.contextmanager
def open_trial(trial: Trial, pool: Engine) -> Iterator[Trainer]:
    """A trainer that records into the folder of a trial, which is locked meanwhile, and scores it.

    The trainer of a done trial is at its end; using it changes nothing on disk.

    Raises:
        UsageError: as ``run_trial``, the trial is being trained, or it is done and its code has
            changed.
    """
    require_main_process()
    require_same_code([trial])
    stored = trial.settled()
    if not (trial.is_done or trial.folder.has_begun):
        check_spec(trial.spec, is_new=False, pool=pool)  # before anything is written
    with stored.folder.locked() as mine:
        if trial.is_done:
            yield _done(trial, pool)
            return
        if not mine:
            raise UsageError(
                f"{trial.folder.path} is being trained by another process, or by a trainer here "
                "that was not closed; expected one at a time"
            )
        folder, start = stored.folder, stored.begin(_about(trial.spec, pool))
        known = folder, trial.spec, pool, start.state, start.history
        yield resumed_trainer(*known, folder, folder.path, partial(_finish, folder))


def _about(spec: TrialSpec, pool: Engine) -> Json:
    """What a trial is trained with here, for ``trial.json``."""
    return {
        "backend": backend_of(spec),
        "workers": pool.size,  # for the wall-clock times; results do not depend on it
        **provenance(spec),
    }


def _done(trial: Trial, pool: Engine) -> Trainer:
    trial.check()
    folder = trial.folder
    state = folder.load_checkpoint()
    if state is None:
        raise UsageError(f"{folder.path} has a score, but no checkpoint; remove it to train again")
    stored = folder, trial.spec, pool, state, folder.records()
    trainer = resumed_trainer(*stored, folder=folder.path, ended=lambda _: None)
    trainer.done = True
    return trainer


def _finish(recorder: TrialRecorder, trainer: Trainer) -> Json:
    """Score the policy of a trained trial and store the result, which is returned."""
    score = trainer.evaluate()
    progress, stop = trainer.progress, trainer.stopped
    result = {
        **score.as_json,
        "env_steps": progress.env_steps,
        "eval_env_steps": progress.eval_env_steps,
        "generations": progress.generation,
        "wall_time_s": progress.wall_time_s,
        "cpu_time_s": progress.cpu_time_s,
        "stopped": None if stop is None else stop.reason,
        "digest": trainer.history[-1].digest if trainer.history else None,
        "finished": now(),
    }
    if trainer.validated_generation is not None:
        result["validated_generation"] = trainer.validated_generation
    if has_equal_episodes(result) and (found := trainer.is_deterministic()) is not None:
        result["deterministic"] = found
    recorder.finish(result)
    return result
