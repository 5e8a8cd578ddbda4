"""Runs the trials of a grid, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.callbacks import Callback
from esbench.training.run_trial import GridWatcher, Outcome, check_trials, run_trial
from esbench.training.schedule import Schedule, schedule
from esbench.training.trial_processes import TrialProcesses
from esbench.training.trials import Trial


@final
@dataclass(frozen=True)
class Report:
    """The trials of a grid by outcome."""

    outcomes: dict[Outcome, list[Trial]]

    def count(self, outcome: Outcome) -> int:
        """The number of trials with this outcome."""
        return len(self.outcomes[outcome])


def run_grid(
    trials: Sequence[Trial],
    pool: WorkerPool,
    watcher: GridWatcher,
    callbacks: Sequence[Callback] = (),
    at_once: int | None = 1,
) -> Report:
    """Run every trial that is not done; a failed or damaged one does not stop the others.

    Args:
        trials: the trials.
        pool: the workers for trials that run one after the other; trials that run side by side
            have as many workers of their own.
        watcher: receives the events.
        callbacks: called with every generation of the trials that run one after the other.
        at_once: the number of trials that run side by side; None for the choice of ``schedule``.

    Raises:
        UsageError: a trial is not supported, a folder holds another specification or format, or a
            folder cannot be written. Stored trials are not changed.
        TrainingError: a process that runs trials side by side failed, or died during the check.
        KeyboardInterrupt: after the running trials were saved.
    """
    report = Report({"done": [], "skipped": [], "failed": [], "elsewhere": []})

    def ended(trial: Trial, outcome: Outcome, detail: str) -> None:
        report.outcomes[outcome].append(trial)
        watcher.trial_ended(trial, outcome, detail)

    todo = [trial for trial in trials if not trial.is_done]
    layout = schedule([trial.spec.budget.env_steps for trial in todo], pool.size, at_once)
    beside = todo[: layout.side_by_side]
    if beside:
        _run_beside(trials, beside, layout, pool.slots, watcher, ended)
    else:
        if todo:
            pool.start()  # the workers load during the check
        check_trials(trials)
    for trial in trials:
        if trial not in beside:
            ended(trial, *run_trial(trial, pool, watcher, callbacks))
    return report


def _run_beside(
    trials: Sequence[Trial],
    beside: Sequence[Trial],
    layout: Schedule,
    slots: int,
    watcher: GridWatcher,
    ended: Callable[[Trial, Outcome, str], None],
) -> None:
    with TrialProcesses(layout.at_once, layout.workers_each, slots) as processes:
        processes.check(trials)
        processes.run(beside, watcher, ended)
