"""A pool of local worker processes that play the episodes of a job.

A worker with free slots receives as many new episodes, or fewer towards the end of a generation,
so that all workers finish at about the same time. When no episode is left to begin, an idle worker
takes over half of the running episodes of another one. When a worker dies, a new one plays its
episodes again, with the same seeds and therefore the same results.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from esbench.errors import EnvironmentFailedError, TrainingError, UsageError
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.rollouts.child_process import Child, end, wait_for
from esbench.rollouts.jobs import Job, Setup, Task
from esbench.rollouts.player import Suspended
from esbench.rollouts.results import EpisodeResult, Episodes, collect
from esbench.rollouts.stopwatch import Stopwatch
from esbench.rollouts.worker import (
    Begin,
    Check,
    Configure,
    Failed,
    Finished,
    Ready,
    Share,
    Shared,
    Work,
    worker_main,
)

DEFAULT_SLOTS: Final = 72
MAX_DEATHS: Final = 3
UNGUARDED: Final = 78  # exit code of a worker whose main module starts workers
PATIENCE: Final = 5.0  # seconds from SIGTERM to SIGKILL
# The smallest number of episodes sent at once. More could wait in a queue while a worker is idle.
PREFETCH: Final = 4
# Numerical libraries read these at import. Several threads per worker would compete for the cores
# and could change the order of a sum.
SINGLE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


def usable_cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
@dataclass(eq=False)
class _Worker:
    child: Child
    held: set[Task] = field(default_factory=set)  # sent to it, without a result yet
    free: int = 0  # idle slots
    sharing: bool = False  # it has not answered ``Share`` yet
    can_share: bool = True
    loading: int = 0  # number of ``Configure`` messages that it has not answered yet
    slots: int | None = None  # as it has reported


@final
class WorkerPool:
    """A fixed number of worker processes that play jobs, for one trial after the other.

    Use it as a context manager, or call ``close``.

    Attributes:
        size, slots: the number of workers, and the largest number of environments per worker.
        cpu_time_s, watch: CPU time of all workers in jobs, and the seconds of each part of a job.
        moved: the number of times that an episode continued in another worker.
        progress: called during a job with the number of its episodes that are done, and of all.
    """

    def __init__(self, workers: int | None = None, slots: int = DEFAULT_SLOTS) -> None:
        """Prepare one worker per core by default; UsageError if a number is below 1."""
        for name, value in (("workers", workers), ("slots", slots)):
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value}: expected at least 1")
        self.size = workers or usable_cores()
        self.slots = slots
        self.cpu_time_s = 0.0
        self.watch = Stopwatch()
        self.moved = 0
        self.progress: Callable[[int, int], None] | None = None
        self._workers: list[_Worker] = []
        self._configuration: Configure | None = None
        self._checked: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [worker.child.process.pid or 0 for worker in self._workers]

    def start(self) -> None:
        """Start the processes if none run, as ``configure`` does; they load in the background."""
        if not self._workers:
            self._workers = [self._start() for _ in range(self.size)]

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Prepare every worker for a trial and wait until all have made their environments.

        Returns at once if they are prepared already, so trainers may share a pool in turns. Any
        exception, including Ctrl-C, ends all workers. Their output is appended to the file ``log``.

        Raises:
            EnvironmentFailedError: a worker cannot make the environment or the policy.
        """
        wanted = Configure(setup, setup.useful_slots(self.slots), str(log or os.devnull))
        if wanted == self._configuration:
            return
        self._configuration = wanted
        try:
            for worker in self._workers:
                worker.loading, worker.slots = worker.loading + 1, None
                worker.child.send(wanted)
            self.start()
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def check(self, environment: EnvironmentSpec) -> None:
        """Let one worker check the episodes of an environment, once per pool.

        Returns without an error if the worker dies, because training then reports it.

        Raises:
            UsageError: episodes do not end, or depend on more than their seeds.
        """
        key = environment.id, environment.kwargs
        if key in self._checked:
            return
        self.start()
        child = self._workers[0].child
        try:
            child.send(Check(environment))
            match child.receive():
                case Failed(_, text):
                    raise UsageError(text)
        except BaseException:
            self.close()
            raise
        self._checked.append(key)
        self._configuration = None  # that worker's log is another one now

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play every task once and return the results in task order.

        Any exception, including Ctrl-C, ends all workers; ``configure`` starts new ones.

        Raises:
            EnvironmentFailedError: an environment raised an exception.
            UsageError: the policy or the behaviour does not support the environment.
            TrainingError: workers died ``MAX_DEATHS`` times without a result.
        """
        assert self._configuration is not None, "configure first"
        slots = min((w.slots for w in self._workers if w.slots), default=self._configuration.slots)
        try:
            return self._play(job, tasks, _width(len(tasks), self.size, slots))
        except BaseException:
            self.close()
            raise

    def _play(self, job: Job, tasks: Sequence[Task], width: int) -> Episodes:
        pending, results, deaths = deque(tasks), dict[Task, EpisodeResult](), 0
        for worker in self._workers:
            worker.held.clear()
            worker.free, worker.can_share = width, True
            worker.child.send(Begin(job, width))
        for worker in self._workers:
            if pending:
                self._give(worker, pending, width)
        if self.progress is not None:
            self.progress(0, len(tasks))
        while len(results) < len(tasks) or any(worker.sharing for worker in self._workers):
            before = len(results)
            for worker, message in self._heard(self._workers, results):
                if message is not None:
                    self._move(worker, message.episodes, pending)
                    continue
                _require_guard(worker)
                deaths += 1
                lost = [task for task in tasks if task in worker.held]
                if deaths >= MAX_DEATHS:
                    raise TrainingError(_describe_deaths(worker, deaths, lost))
                pending.extendleft(reversed(lost))
                self._replace(worker, Begin(job, width), pending)
            deaths = 0 if len(results) > before else deaths
            if self.progress is not None and len(results) > before:
                self.progress(len(results), len(tasks))
            for worker in [w for w in self._workers if w.free and pending]:
                chunk = _chunk(len(pending), self.size, max(worker.free, PREFETCH))
                self._give(worker, pending, chunk)
            if not pending:
                self._even_out()
        return collect(tasks, results)

    def _await_ready(self) -> None:
        # A worker that dies meanwhile is replaced by ``play``.
        while loading := [worker for worker in self._workers if worker.loading]:
            for worker, _ in self._heard(loading, {}):
                worker.loading = 0

    def _heard(
        self, workers: Sequence[_Worker], results: dict[Task, EpisodeResult]
    ) -> Iterator[tuple[_Worker, Shared | None]]:
        """Wait for messages and add the results; yields shared episodes, and None for a death."""
        owners = {worker.child: worker for worker in workers}
        for child in wait_for(list(owners)):
            worker = owners[child]
            match child.receive():
                case Finished() as message:
                    self.cpu_time_s += message.cpu_time_s
                    self.watch.add(message.seconds)
                    worker.free = message.free or worker.free
                    for result in message.results:
                        worker.held.discard(result.task)
                        results[result.task] = result
                case Ready(slots):
                    worker.loading -= 1
                    worker.slots = slots
                case Failed(usage, text, traceback):
                    raise UsageError(text) if usage else EnvironmentFailedError(text, traceback)
                case message:
                    yield worker, message

    def close(self) -> None:
        """End every worker process at once."""
        workers, self._workers, self._configuration = self._workers, [], None
        end([worker.child for worker in workers], PATIENCE)

    def _start(self) -> _Worker:
        with _single_thread():
            try:
                child = Child(worker_main)
            except RuntimeError:  # this is a worker itself, which imports the user's script
                raise SystemExit(UNGUARDED) from None
        if self._configuration is not None:
            child.send(self._configuration)
        return _Worker(child, loading=int(self._configuration is not None))

    def _replace(self, dead: _Worker, begin: Begin, pending: deque[Task]) -> None:
        worker = self._start()
        self._workers[self._workers.index(dead)] = worker
        end([dead.child])
        worker.child.send(begin)
        self._give(worker, pending, _chunk(len(pending), self.size, begin.width))

    def _give(self, worker: _Worker, pending: deque[Task], count: int) -> None:
        tasks = [pending.popleft() for _ in range(min(count, len(pending)))]
        worker.held.update(tasks)
        worker.free = 0
        worker.child.send(Work(tasks))

    def _even_out(self) -> None:
        """Ask busy workers to give running episodes to idle ones."""
        idle = sum(not worker.held for worker in self._workers)
        for _ in range(idle - sum(worker.sharing for worker in self._workers)):
            busy = [w for w in self._workers if len(w.held) > 1 and w.can_share and not w.sharing]
            if not busy:
                return
            busiest = max(busy, key=lambda worker: len(worker.held))
            busiest.sharing = True
            busiest.child.send(Share())

    def _move(self, source: _Worker, episodes: list[Suspended], pending: deque[Task]) -> None:
        """Send the running episodes that a worker gave up to an idle worker.

        With none left, they are played from the start: a busy worker might not read a large message
        before it sends one itself, which would block both.
        """
        source.sharing, source.can_share = False, bool(episodes)
        tasks = [episode.task for episode in episodes]
        source.held.difference_update(tasks)
        idle = [worker for worker in self._workers if not worker.held and worker is not source]
        if not idle:
            pending.extendleft(reversed(tasks))
        elif tasks:
            target = idle[0]
            target.held.update(tasks)
            target.free, target.can_share = 0, True
            self.moved += len(tasks)
            target.child.send(Work(episodes))


def _width(tasks: int, workers: int, slots: int) -> int:
    """The size of the equal rounds of a worker's share; unequal, a last episode could run alone."""
    share = -(-tasks // workers)
    rounds = max(1, -(-share // slots))
    return max(1, -(-share // rounds))


def _chunk(pending: int, workers: int, most: int) -> int:
    """The number of episodes to send at once: half a fair share, so that all end together."""
    return max(1, min(most, pending // (2 * workers)))


def _require_guard(dead: _Worker) -> None:
    if dead.child.exit_code() == UNGUARDED:
        raise UsageError(
            "the worker processes import this script: put the training code below "
            "if __name__ == '__main__': (classes and registrations stay above it)"
        )


def _describe_deaths(worker: _Worker, deaths: int, lost: list[Task]) -> str:
    played = f"played {', '.join(map(str, lost[:3])) or 'nothing'}"
    activity = "loaded the environment" if worker.loading else played
    return (
        f"a worker died {deaths} times without reporting an episode, last by "
        f"{worker.child.cause_of_death()}, while it {activity}"
    )


@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
    """Set ``SINGLE_THREAD`` for the processes that start in the block."""
    before = {name: os.environ[name] for name in SINGLE_THREAD if name in os.environ}
    os.environ.update(SINGLE_THREAD)
    try:
        yield
    finally:
        for name in SINGLE_THREAD:
            del os.environ[name]
        os.environ.update(before)
