"""Runs one trial: locks its folder, resumes, trains and scores it, and stores errors."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from esbench.errors import DamagedTrialError, EnvironmentFailedError, UsageError
from esbench.rollouts.jobs import Setup
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance.own_code import changed_since
from esbench.store.provenance.record import provenance
from esbench.store.trial_folder import now, score_text
from esbench.training.callbacks import Callback, Stop
from esbench.training.scoring import restore
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial

Outcome: TypeAlias = Literal["done", "skipped", "failed", "elsewhere"]


class Watcher(Protocol):
    """Receives the events of a running trial, for example to display the progress."""

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts, or is resumed after generation ``resumed_at``."""

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Training has ended; the held-out episodes begin."""


class GridWatcher(Watcher, Protocol):
    """Also receives the events of the grid that runs the trials."""

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is done, was done before, failed, or runs in another process."""

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process resumes the trial."""


def check_trials(trials: Sequence[Trial]) -> None:
    """Build everything that the trials need once, to report unsupported ones before training.

    Raises:
        UsageError: an environment, its spaces, a policy or a setting is not supported.
    """
    distinct = {trial.spec.model_copy(update={"seed": 0}).hash: trial for trial in trials}
    for trial in distinct.values():
        if not trial.is_done:
            Trainer(trial.spec).close()


def run_trial(
    trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]
) -> tuple[Outcome, str]:
    """Run a trial if it is not done; returns its outcome, and its score or error.

    Raises:
        UsageError: the trial is not supported, or its folder holds another specification or format
            or cannot be written. Stored results are not changed.
        KeyboardInterrupt: after the trial was saved.
    """
    try:
        with trial.folder.locked() as mine:
            if trial.is_done:
                trial.check()
                other = _other_code(trial)
                hint = f"; trained with {other}, use another --out to retrain" if other else ""
                return "skipped", score_text(trial.folder.result()) + hint
            if not mine:
                return "elsewhere", "another process runs it"
            return _attempt(trial, pool, watcher, callbacks)
    except DamagedTrialError as error:  # the other trials can run
        return "failed", str(error)


def _attempt(
    trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]
) -> tuple[Outcome, str]:
    try:
        return "done", _train(trial, pool, watcher, callbacks)
    except (UsageError, BrokenPipeError):  # the input, or a closed output, not the trial
        raise
    except Exception as error:  # stored with the trial; the grid continues
        if isinstance(error, EnvironmentFailedError):
            summary, details = str(error), error.traceback
        else:
            summary, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        trial.folder.fail(details)
        return "failed", f"{summary} (traceback in {trial.folder.path / 'error.txt'})"


def _other_code(trial: Trial) -> str:
    """The user's modules that have changed since the trial was started, as text; may be empty."""
    changed = changed_since(trial.folder.description())
    return f"a different version of {' and '.join(changed)}" if changed else ""


def _train(trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]) -> str:
    """Train, score and store the result; returns the score as text."""
    folder = trial.folder
    backend = Setup(trial.spec.environment, trial.spec.policy).backend_name
    about = {
        "labels": trial.labels,
        "inherited": list(trial.inherited),
        "created": now(),
        "backend": backend,
        "workers": pool.size,  # for the wall-clock times; results do not depend on it
        **provenance(trial.spec),
    }
    history = folder.begin(trial.spec, about, trial.extend)
    with Trainer(trial.spec, pool, folder, folder.path / "log.txt") as trainer:
        state = folder.load_checkpoint()
        if state is not None:
            restore(trainer, folder, state, history)
        other = _other_code(trial)
        watcher.trial_started(trial, trainer.progress.generation)

        def keep() -> None:
            if is_kept(trial, trainer.history):
                folder.keep(trainer.state_dict())

        def watch(record: GenerationRecord) -> None:
            keep()
            watcher.generation_done(trial, record)

        try:
            keep()  # an interrupt may have prevented it
            # A trial that a callback stopped and that died during scoring is not trained further.
            stop = trainer.stopped or trainer.train(callbacks=[watch, *callbacks])
        except KeyboardInterrupt:
            trainer.save()
            raise
        watcher.scoring_started(trial, trial.spec.evaluation.episodes)
        result = score_trial(trainer, stop)
        text = score_text(result)
        folder.finish(result)  # last, so that a finished trial cannot fail
        return f"{text}; started with {other}" if other else text


def is_kept(trial: Trial, history: Sequence[GenerationRecord]) -> bool:
    """Whether to keep the checkpoint after the generations of ``history``.

    It is kept if the last generation is the first one to reach one of the equal parts of the
    budget, except for the end of the budget, whose checkpoint is always stored.
    """
    before, after = [0, 0, *(_parts(trial, record) for record in history[-2:])][-2:]
    return before < after < trial.keep


def _parts(trial: Trial, record: GenerationRecord) -> int:
    """The number of the ``trial.keep`` equal parts of the budget that are complete."""
    budget, parts = trial.spec.budget, trial.keep
    done = record.env_steps * parts // budget.env_steps
    if budget.generations:
        done = max(done, record.generation * parts // budget.generations)
    return done


def score_trial(trainer: Trainer, stop: Stop | None = None) -> dict[str, object]:
    """Score a trained policy; returns the content of ``result.json``."""
    score = trainer.evaluate()
    progress = trainer.progress
    return {
        "score": score.mean,
        "evaluation_episodes": score.returns.size,
        "returns": score.returns.tolist(),
        "lengths": score.lengths.tolist(),
        "env_steps": progress.env_steps,
        "eval_env_steps": progress.eval_env_steps,
        "generations": progress.generation,
        "wall_time_s": progress.wall_time_s,
        "cpu_time_s": progress.cpu_time_s,
        "stopped": None if stop is None else stop.reason,
        "digest": trainer.history[-1].digest if trainer.history else None,
        "finished": now(),
    }
