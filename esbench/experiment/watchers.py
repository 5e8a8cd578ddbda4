"""Watchers: what receives the events of trials and of the grid that runs them."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from esbench.experiment.trials import Trial
from esbench.store.generation_record import GenerationRecord

Outcome: TypeAlias = Literal["done", "skipped", "failed", "elsewhere"]


class Watcher(Protocol):
    """Receives the events of a running trial, for example to display the progress."""

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts, or is resumed after generation ``resumed_at``."""

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        """Some episodes of a generation, or of the scoring, have ended; a few times per second."""

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Training has ended; the held-out episodes begin."""


class GridWatcher(Watcher, Protocol):
    """Also receives the events of the grid that runs the trials."""

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is done, was done before, failed, or runs in another process."""

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process resumes the trial."""

    def trial_silent(self, trial: Trial, seconds: float) -> None:
        """No episode of a trial, or of its first check, has ended for this long."""
