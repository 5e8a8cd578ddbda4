"""Plays episodes on one node of a cluster, with a pool of workers, for a coordinator elsewhere."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from esbench.core.errors import (
    USER_CODE_ERRORS,
    EnvironmentFailedError,
    EsbenchError,
    TrainingError,
    UsageError,
    error_text,
)
from esbench.core.escape import printable
from esbench.engine.jobs import EpisodeResult, Job, Task
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool

REPORT_SECONDS: Final = 0.5  # a node reports at least this often while it plays
STEP_SECONDS: Final = 0.02  # the longest time until it notices that a job was abandoned


@final
class Exchange(NamedTuple):
    """To a node: episodes of a job to play, and episodes that it need not play any more."""

    number: int  # of the job; later jobs have larger numbers
    tasks: Sequence[Task]
    dropped: Sequence[Task]
    total: int  # the number of episodes of the job that this node will play, about
    ahead: bool  # whether more episodes will follow


@final
class Configured(NamedTuple):
    """From a node: its workers are prepared for a trial."""


@final
class Report(NamedTuple):
    """From a node: new results, the number of episodes that no worker has, and the time spent.

    ``busy_s`` is the time from the arrival of the message to this answer.
    """

    number: int
    results: Sequence[EpisodeResult]
    queued: int
    cpu_time_s: float
    seconds: dict[str, float]
    busy_s: float


@final
class NodePlayer:
    """Answers exchanges, one after the other, also by an error that ends the trial.

    ``abandon`` may be called by another thread.
    """

    def __init__(self) -> None:
        self._pool: WorkerPool | None = None
        self._number = -1  # of the job that the workers play
        self._abandoned = -1  # this job and those before it are over
        self._cpu_time_s = 0.0

    def configure(self, setup: Setup, log: str, workers: int) -> Configured | EsbenchError:
        """Prepare the workers for a trial; their number is that of the first call."""
        try:
            self._pool = self._pool or WorkerPool(workers)
            self._pool.configure(setup, Path(log))
        except USER_CODE_ERRORS as error:  # reported; the node goes on
            return _sendable(error)
        return Configured()

    def exchange(self, message: Exchange, job: bytes | None = None) -> Report | EsbenchError:
        """Play episodes until there is something to report.

        That is when workers need more episodes and ``message.ahead`` promises some, when there are
        results and no queue, and after ``REPORT_SECONDS``. The first message of a job comes with
        the pickled job.
        """
        try:
            return self._exchange(message, job)
        except USER_CODE_ERRORS as error:
            self.close()
            return _sendable(error)

    def abandon(self, number: int) -> None:
        """Play no more episodes of job ``number`` and those before it."""
        self._abandoned = max(self._abandoned, number)

    def close(self) -> None:
        """End the workers."""
        self._number = -1
        if self._pool is not None:
            self._pool.close()

    def _exchange(self, message: Exchange, pickled: bytes | None) -> Report:
        pool, number = self._pool, message.number
        assert pool is not None, "configure first"
        results: list[EpisodeResult] = []
        started = time.monotonic()
        if number > self._abandoned:
            if pickled is not None:
                job: Job = pickle.loads(pickled)  # noqa: S301
                pool.begin(job, message.tasks, message.total)
                self._number = number
            else:
                pool.drop(message.dropped)
                pool.add(message.tasks)
            end = time.monotonic() + REPORT_SECONDS  # from here, since jobs may take long to load
            while number > self._abandoned and time.monotonic() < end and not pool.is_idle:
                if not pool.queued and (results or message.ahead):
                    break
                results += pool.step(message.ahead, STEP_SECONDS)
        spent, self._cpu_time_s = pool.cpu_time_s - self._cpu_time_s, pool.cpu_time_s
        busy_s = time.monotonic() - started
        return Report(number, results, pool.queued, spent, pool.watch.take(), busy_s)


def _sendable(error: BaseException) -> EsbenchError:
    match error:
        case UsageError():
            return UsageError(str(error))
        case TrainingError():
            return error
        case _:  # a defect, or code that cannot be unpickled here
            return EnvironmentFailedError(error_text(error), printable(traceback.format_exc()))
