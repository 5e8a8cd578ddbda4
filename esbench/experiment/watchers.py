"""What observes a trial: callbacks, which may stop it, watchers, and limits of its time."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, final

from esbench.core.clock import RunningTime
from esbench.core.errors import (
    TrainingError,
    UsageError,
    UserCodeError,
    require_finite,
    require_integer,
    shown,
)
from esbench.core.settings import MOST
from esbench.core.user_code import import_object
from esbench.engine.engine import Engine
from esbench.experiment.trials import Trial
from esbench.grids.stored_spec import target_reason
from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True)
class Stop:
    """Returned by a callback to end training; ``reason`` is stored in the result.

    UsageError if the reason is no text.

    >>> def solved(record):
    ...     return Stop("solved") if record.center_return >= 475 else None
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise UsageError(f"Stop({shown(self.reason)}): expected the reason as text")


Callback: TypeAlias = Callable[[GenerationRecord], Stop | None]


def call_checked(callback: Callback, record: GenerationRecord) -> Stop | None:
    """What a callback returns for a record; UserCodeError if it is neither ``Stop`` nor None."""
    with contextlib.chdir("."):  # user code may change the current folder
        found = callback(record)
    if found is not None and not isinstance(found, Stop):
        raise UserCodeError(
            f"the callback {getattr(callback, '__qualname__', callback)} returned {found!r}; "
            "expected None or esbench.Stop(reason)"
        )
    return found


@final
@dataclass(frozen=True)
class ImportedCallback:
    """The function "package.file:function", which every process imports for itself.

    UsageError if there is none.
    """

    name: str

    def __post_init__(self) -> None:
        if ":" not in self.name or not callable(import_object("callback", self.name)):
            raise UsageError(f"callback {self.name!r}: expected package.file:function")

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """Call the function."""
        stop: Stop | None = import_object("callback", self.name)(record)
        return stop


@final
class TargetReturn:
    """Stops when the mean return of the center over ``window`` generations reaches a target.

    Use a new one for each training run. A resumed run must first call it with the earlier records,
    as ``Trainer`` does.

    UsageError if the target is not finite or the window is below 1.

    >>> TargetReturn(475.0, window=3).target
    475.0
    """

    def __init__(self, target: float, window: int = 5) -> None:
        require_finite("target", target)
        require_integer("window", window, 1, MOST)
        self.target = target
        self.window = window
        self._recent: list[float] = []

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """``Stop`` if the target is reached, otherwise None."""
        self._recent = [*self._recent, record.center_return][-self.window :]
        mean = sum(self._recent) / len(self._recent)
        if len(self._recent) == self.window and mean >= self.target:
            return Stop(f"{self.reason}mean {mean:.1f})")
        return None

    @property
    def reason(self) -> str:
        """How the reason of a stop at this target begins."""
        return target_reason(self.target)


Outcome: TypeAlias = Literal["done", "skipped", "failed", "elsewhere"]


class Watcher(Protocol):
    """Receives the events of trials, for example to display the progress."""

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts, or is resumed after generation ``resumed_at``."""

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        """Some episodes of a generation, or of the scoring, have ended; a few times per second."""

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Training has ended; the held-out episodes begin."""

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """A trial is done, was done before, failed, or runs in another process."""

    def trial_died(self, trial: Trial, cause: str) -> None:
        """The process of a trial died; another process resumes the trial."""

    def trial_silent(self, trial: Trial, seconds: float) -> None:
        """No episode of a trial, or of its first check, has ended for this long."""


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


@contextlib.contextmanager
def episode_limit(engine: Engine, seconds: float | None) -> Iterator[None]:
    """Raise TrainingError in the block if no episode ends within this time; None is no limit.

    It is raised again every second, and in the end, since user code may swallow it or make another
    error of it. Trials in processes of their own have ``Limits`` instead.

    Raises:
        UsageError: the limit is not a positive number, or this is not the main thread.
    """
    limits = Limits(episode=seconds)
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("episode_timeout outside the main thread: expected None")

    exceeded: list[str] = []

    def expire(number: int, frame: object) -> None:
        exceeded.append(limits.exceeded(seconds, 0.0))
        raise TrainingError(exceeded[0])

    def begin(*_: int) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)

    handler = signal.signal(signal.SIGALRM, expire)
    left, told = signal.setitimer(signal.ITIMER_REAL, 0.0), engine.progress
    engine.progress = begin
    try:
        begin()
        yield
    except Exception as error:
        if exceeded:
            raise TrainingError(exceeded[0]) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        engine.progress = told
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *left)
    if exceeded:
        raise TrainingError(exceeded[0])


@final
class Clock:
    """The time of a trial, or of its check, in the processes that run it.

    ``check`` is called every ``TICK`` seconds while there is one, so other time is no part of it.
    """

    def __init__(self) -> None:
        self._running, self._heard = RunningTime(), 0.0
        self._hinted = False

    def note_progress(self) -> None:
        """A process has begun the trial, an episode has ended, or the trial has come further."""
        self._heard = self._running()

    def check(self, trial: Trial, limits: Limits, watcher: Watcher) -> str:
        """The exceeded limit as a sentence, or an empty one; also gives the hint, once."""
        total = self._running()
        silent = total - self._heard
        if silent >= HINT_SECONDS and not self._hinted:
            self._hinted = True
            watcher.trial_silent(trial, HINT_SECONDS)
        return limits.exceeded(silent, total)
