"""Runs one trial: takes the lock, resumes, trains, scores, and keeps what went wrong.

Whoever watches gets an event for each step.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from esbench.errors import EnvironmentFailedError, UsageError
from esbench.rollouts.jobs import Setup
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.store.own_code import changed_since
from esbench.store.provenance import provenance
from esbench.store.trial_files import DamagedTrialError
from esbench.store.trial_folder import now, score_text
from esbench.training.callbacks import Callback, Stop
from esbench.training.scoring import restore
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial

Outcome: TypeAlias = Literal["done", "skipped", "failed", "elsewhere"]


class Watcher(Protocol):
    """Sees a grid run; ``esbench run`` draws its progress with one."""

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial begins, or goes on after generation ``resumed_at``."""

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Training is over; the held-out episodes begin."""

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is over, was done before, failed, or is being run by another process."""


class GridWatcher(Watcher, Protocol):
    """A watcher that is also told what a process cannot tell of itself."""

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process that ran a trial beside others died; another one goes on with it."""


def check_trials(trials: Sequence[Trial]) -> None:
    """Build everything that the trials need once, so that what cannot be served is known at once.

    Raises:
        UsageError: an environment, its spaces, a policy or a setting cannot be served.
    """
    distinct = {trial.spec.model_copy(update={"seed": 0}).hash: trial for trial in trials}
    for trial in distinct.values():
        if not trial.is_done:
            Trainer(trial.spec).close()


def run_trial(
    trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]
) -> tuple[Outcome, str]:
    """Run a trial if it is not done; returns how it ended, and its score or what went wrong.

    Raises:
        UsageError: it cannot be served, its folder holds another specification or is of a newer
            esbench (it was not touched), or cannot be written (what was saved before is intact).
        KeyboardInterrupt: after the trial was saved.
    """
    try:
        with trial.folder.locked() as mine:
            if trial.is_done:
                trial.check()
                other = _made_with_other_code(trial)
                hint = f"; made with {other}: --out elsewhere trains anew" if other else ""
                return "skipped", score_text(trial.folder.result()) + hint
            if not mine:
                return "elsewhere", "another process runs it"
            return _attempt(trial, pool, watcher, callbacks)
    except DamagedTrialError as error:  # the other trials can be run; this one is left as it is
        return "failed", str(error)


def _attempt(
    trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]
) -> tuple[Outcome, str]:
    try:
        return "done", _train(trial, pool, watcher, callbacks)
    except (UsageError, BrokenPipeError):  # no fault of the trial: input, or a display gone
        raise
    except EnvironmentFailedError as error:
        trial.folder.fail(error.traceback)
        return "failed", f"{error} (traceback in {trial.folder.path / 'error.txt'})"
    except Exception as error:  # kept with the trial; the grid goes on and exits with 1
        trial.folder.fail(traceback.format_exc())
        summary = f"{type(error).__name__}: {error}"
        return "failed", f"{summary} (traceback in {trial.folder.path / 'error.txt'})"


def _made_with_other_code(trial: Trial) -> str:
    """Say which of a person's own code has changed since a trial was begun, if any."""
    changed = changed_since(trial.folder.description())
    return f"other code of {' and '.join(changed)}" if changed else ""


def _train(trial: Trial, pool: WorkerPool, watcher: Watcher, callbacks: Sequence[Callback]) -> str:
    """Train, score and keep the result; returns the score in words."""
    folder = trial.folder
    backend = Setup(trial.spec.environment, trial.spec.policy).backend_name
    about = {
        "labels": trial.labels,
        "inherited": list(trial.inherited),
        "created": now(),
        "backend": backend,
        "workers": pool.size,  # no result depends on them; wall-clock times do
        **provenance(trial.spec),
    }
    history = folder.begin(trial.spec, about, trial.extend)
    with Trainer(trial.spec, pool, folder, folder.path / "log.txt") as trainer:
        state = folder.load_checkpoint()
        if state is not None:
            restore(trainer, folder, state, history)
        other = _made_with_other_code(trial)
        watcher.trial_started(trial, trainer.progress.generation)

        def keep() -> None:
            if is_kept(trial, trainer.history):
                folder.keep(trainer.state_dict())

        def watch(record: GenerationRecord) -> None:
            keep()
            watcher.generation_done(trial, record)

        try:
            keep()  # what an interruption has prevented
            # A run that was stopped, and then killed while it was scored, is not trained further.
            stop = trainer.stopped or trainer.train(callbacks=[watch, *callbacks])
        except KeyboardInterrupt:
            trainer.save()
            raise
        watcher.scoring_started(trial, trial.spec.evaluation.episodes)
        result = score_trial(trainer, stop)
        text = score_text(result)
        folder.finish(result)  # the last thing that can go wrong: a done trial has not failed
        return f"{text}; begun with {other}" if other else text


def is_kept(trial: Trial, history: Sequence[GenerationRecord]) -> bool:
    """Tell whether the checkpoint after some generations is to be kept.

    It is if the last of them is the first one to reach one of the equal parts of the budget. The
    end of training is none of these: its checkpoint is there anyway.
    """
    before, after = [0, 0, *(_parts(trial, record) for record in history[-2:])][-2:]
    return before < after < trial.keep


def _parts(trial: Trial, record: GenerationRecord) -> int:
    """Return how many of ``trial.keep`` equal parts of its budget have been trained."""
    budget, parts = trial.spec.budget, trial.keep
    done = record.env_steps * parts // budget.env_steps
    if budget.generations:
        done = max(done, record.generation * parts // budget.generations)
    return done


def score_trial(trainer: Trainer, stop: Stop | None = None) -> dict[str, object]:
    """Score a trained policy and return the content of ``result.json``."""
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
