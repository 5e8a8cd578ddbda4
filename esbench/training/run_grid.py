"""Runs the trials of a grid, one after the other on all workers or some of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from esbench.rollouts.worker_pool import WorkerPool
from esbench.training.callbacks import Callback
from esbench.training.run_trial import GridWatcher, Outcome, check_trials, run_trial
from esbench.training.schedule import Schedule, schedule
from esbench.training.trial_processes import Lanes
from esbench.training.trials import Trial


@final
@dataclass(frozen=True)
class Report:
    """How a grid's run ended: the trials of each outcome."""

    outcomes: dict[Outcome, list[Trial]]

    def count(self, outcome: Outcome) -> int:
        """Return the number of trials that ended so."""
        return len(self.outcomes[outcome])


def run_grid(
    trials: Sequence[Trial],
    pool: WorkerPool,
    watcher: GridWatcher,
    callbacks: Sequence[Callback] = (),
    at_once: int | None = 1,
) -> Report:
    """Run every trial that is not done; one that fails, or is damaged, does not stop the others.

    Args:
        trials: what to run.
        pool: the workers of trials that run one after the other; those that run side by side have
            as many of their own.
        watcher: is told what happens.
        callbacks: see every generation of trials that run one after the other.
        at_once: trials at a time; None leaves it to ``schedule``.

    Raises:
        UsageError: a trial cannot be served (nothing was written), a folder holds another
            specification or is of a newer esbench (it was not touched), or a folder cannot be
            written (what was saved before is intact).
        TrainingError: a process that runs trials beside others met a defect, or died before the
            first one.
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
            pool.start()  # the workers load meanwhile
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
    with Lanes(layout.at_once, layout.workers_each, slots) as lanes:
        lanes.check(trials)
        lanes.run(beside, watcher, ended)
