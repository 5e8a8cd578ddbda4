"""How long trials may take: no part of their specification, as it changes no result."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final, final

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import GridWatcher

HINT_SECONDS: Final = 60.0  # without an episode


@final
@dataclass(frozen=True)
class Limits:
    """The longest times of a trial, in seconds; None is no limit.

    Attributes:
        episode: without the end of an episode, or for an agent without a step; loading and updates
            count too.
        trial: in this command; a trial that is resumed later has it again.

    Raises:
        UsageError: a limit is not a positive number.
    """

    episode: float | None = None
    trial: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            number = isinstance(seconds, int | float) and 0 < seconds < math.inf
            if not (number or seconds is None):
                raise UsageError(
                    f"{name}_timeout = {seconds!r}: expected a positive number of seconds"
                )

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self != UNLIMITED

    def exceeded(self, silent: float, total: float) -> str:
        """The limit that a trial exceeds, as a sentence; empty if it exceeds none.

        Args:
            silent: seconds since an episode ended.
            total: seconds since the trial started.
        """
        if self.trial is not None and total >= self.trial:
            return f"it was stopped after the trial timeout of {self.trial:g} s"
        if self.episode is not None and silent >= self.episode:
            return f"no episode ended within the episode timeout of {self.episode:g} s"
        return ""


UNLIMITED: Final = Limits()


@final
class Clock:
    """The time of a trial, or of its check, in the processes that run it."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._hinted = False
        self.start()

    def start(self) -> None:
        """A process begins or continues the trial."""
        self._started = self._heard = time.monotonic()

    def stop(self) -> None:
        """The process is gone; no time passes until the next one starts."""
        self._spent += time.monotonic() - self._started

    def note_progress(self) -> None:
        """An episode has ended, or the trial has come further."""
        self._heard = time.monotonic()

    def check(self, trial: Trial, limits: Limits, watcher: GridWatcher) -> str:
        """The exceeded limit as a sentence, or an empty one; also gives the hint, once."""
        silent, total = (time.monotonic() - since for since in (self._heard, self._started))
        if silent >= HINT_SECONDS and not self._hinted:
            self._hinted = True
            watcher.trial_silent(trial, HINT_SECONDS)
        return limits.exceeded(silent, self._spent + total)
