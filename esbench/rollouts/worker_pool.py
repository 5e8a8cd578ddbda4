"""A pool of local worker processes that play the episodes of a job.

There is one process per core, each with its own slots. A worker with free slots reports them with
its results and receives as many new episodes, or fewer towards the end of a generation, so that
all workers finish at about the same time. When no episode is left to begin, an idle worker takes
over half of the running episodes of another one, in the middle of the episode.

The pool knows the episodes of each worker. When a worker dies, a new one replaces it and plays
its episodes again, with the same seeds and therefore the same results.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.errors import EnvironmentFailedError, TrainingError, UsageError
from esbench.rollouts.child_process import Child, end, wait_for
from esbench.rollouts.jobs import Job, Setup, Task
from esbench.rollouts.player import Suspended
from esbench.rollouts.results import EpisodeResult, Episodes, collect
from esbench.rollouts.stopwatch import Stopwatch
from esbench.rollouts.worker import (
    Begin,
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
# The smallest number of episodes sent at once, if there are enough left. With a larger one, they
# could wait in the queue of one worker while another is idle.
PREFETCH: Final = 4
# Numerical libraries read these at import. Several threads per worker would compete for the cores
# and could change the order of a sum.
SINGLE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
_Reply: TypeAlias = Ready | Finished | Shared | Failed | None


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
    """A fixed number of worker processes that play jobs.

    Use it as a context manager, or call ``close``. The processes serve one trial after the other.

    Attributes:
        size: the number of workers.
        slots: the largest number of environments per worker.
        cpu_time_s: CPU time of all workers in jobs.
        watch: the seconds that workers spent on each part of a job.
        moved: the number of times that an episode continued in another worker.
    """

    def __init__(self, workers: int | None = None, slots: int = DEFAULT_SLOTS) -> None:
        """Prepare the pool; no process starts yet.

        Args:
            workers: the number of processes; by default one per core.
            slots: the largest number of environments per worker.

        Raises:
            UsageError: a number is below 1.
        """
        for name, value in (("workers", workers), ("slots", slots)):
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value}: expected at least 1")
        self.size = workers or usable_cores()
        self.slots = slots
        self.cpu_time_s = 0.0
        self.watch = Stopwatch()
        self.moved = 0
        self._workers: list[_Worker] = []
        self._configuration: Configure | None = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [worker.child.process.pid or 0 for worker in self._workers]

    def start(self) -> None:
        """Start the processes if none run; they load in the background.

        ``configure`` and ``play`` start them too.
        """
        if not self._workers:
            self._configuration = None  # of earlier processes
            self._start_all()

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Prepare every worker for a trial and wait until all have made their environments.

        Returns at once if they are prepared already, so trainers may share a pool in turns. Any
        exception, including Ctrl-C, ends all workers.

        Args:
            setup: the environment and policy of the trial.
            log: the file to which the output of workers is appended; by default it is dropped.

        Raises:
            EnvironmentFailedError: a worker cannot make the environment or the policy; carries the
                traceback.
        """
        wanted = Configure(setup, setup.useful_slots(self.slots), str(log or os.devnull))
        if wanted == self._configuration and self._workers:
            return
        self._configuration = wanted
        try:
            for worker in self._workers:
                worker.loading, worker.slots = worker.loading + 1, None
                worker.child.send(wanted)
            self._start_all()
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play every task once and return the results in task order.

        Any exception, including Ctrl-C, ends all workers; the next call starts new ones.

        Raises:
            EnvironmentFailedError: an environment raised an exception; carries the traceback.
            UsageError: the policy does not support the environment.
            TrainingError: workers died ``MAX_DEATHS`` times without a result.
        """
        assert self._configuration is not None, "configure first"
        self._start_all()
        try:
            return self._play(job, tasks, _width(len(tasks), self.size, self._useful_slots()))
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
        while len(results) < len(tasks) or any(worker.sharing for worker in self._workers):
            before = len(results)
            for worker in _heard(self._workers):
                message: _Reply = worker.child.receive()
                match message:
                    case None:
                        _require_guard(worker)
                        deaths += 1
                        lost = [task for task in tasks if task in worker.held]
                        if deaths >= MAX_DEATHS:
                            raise TrainingError(_describe_deaths(worker, deaths, lost))
                        pending.extendleft(reversed(lost))
                        self._replace(worker, Begin(job, width), pending)
                    case Finished():
                        self._take(worker, message, results)
                        worker.free = message.free or worker.free
                    case Shared():
                        self._move(worker, message.episodes, pending)
                    case Ready():  # it replaces a dead worker
                        worker.loading -= 1
                        worker.slots = message.slots
                    case Failed():
                        if message.usage:
                            raise UsageError(message.message)
                        raise EnvironmentFailedError(message.message, message.traceback)
            deaths = 0 if len(results) > before else deaths
            for worker in [w for w in self._workers if w.free and pending]:
                chunk = _chunk(len(pending), self.size, max(worker.free, PREFETCH))
                self._give(worker, pending, chunk)
            if not pending:
                self._even_out()
        return collect(tasks, results)

    def _await_ready(self) -> None:
        """Wait until the workers have loaded; ``play`` replaces those that die meanwhile."""
        while loading := [worker for worker in self._workers if worker.loading]:
            for worker in _heard(loading):
                message: _Reply = worker.child.receive()
                match message:
                    case Failed():  # not a usage error: the trainer has made the environment
                        raise EnvironmentFailedError(message.message, message.traceback)
                    case Finished():  # of the job before
                        self._take(worker, message, {})
                    case Ready():
                        worker.loading -= 1
                        worker.slots = message.slots
                    case None:
                        worker.loading = 0

    def close(self) -> None:
        """End every worker process at once."""
        workers, self._workers = self._workers, []
        end([worker.child for worker in workers], PATIENCE)

    def _start_all(self) -> None:
        if not self._workers:
            self._workers = [self._start() for _ in range(self.size)]

    def _useful_slots(self) -> int:
        """The smallest number of slots that a worker has reported, or the configured number."""
        assert self._configuration is not None
        reported = (worker.slots for worker in self._workers if worker.slots)
        return min(reported, default=self._configuration.slots)

    def _start(self) -> _Worker:
        with _environment_variables(SINGLE_THREAD):
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

        A busy worker may not read a large message before it sends one itself, which would block
        both. If there is no idle worker any more, the episodes are played from the start.
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

    def _take(self, worker: _Worker, message: Finished, results: dict[Task, EpisodeResult]) -> None:
        self.cpu_time_s += message.cpu_time_s
        self.watch.add(message.seconds)
        for result in message.results:
            worker.held.discard(result.task)
            results[result.task] = result


def _heard(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until some of the workers have sent a message or died, and return these."""
    owners = {worker.child: worker for worker in workers}
    return [owners[child] for child in wait_for(list(owners))]


def _width(tasks: int, workers: int, slots: int) -> int:
    """The number of episodes that a worker runs at once, at most ``slots``.

    Its share of the tasks is divided into rounds of equal size, so that no last episode runs alone.
    """
    share = -(-tasks // workers)
    rounds = max(1, -(-share // slots))
    return max(1, -(-share // rounds))


def _chunk(pending: int, workers: int, most: int) -> int:
    """The number of episodes to send at once: half a fair share, so that all end together."""
    return max(1, min(most, pending // (2 * workers)))


def _require_guard(dead: _Worker) -> None:
    """Raise if a worker ended because the user's script, which it imports, starts workers too."""
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
def _environment_variables(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
