"""Local worker processes: the trainer hands out episodes, workers play them.

One process a core, spawned, each with its own slots. Work is pulled: a worker that has free slots
says so together with what it has finished, and gets as many episodes, or fewer as the generation
ends, so that the workers end together. When there are none left, a worker without any takes over
half of those that run in another, in the middle of the episode. The pool knows which episodes each
worker holds: when one dies (killed, out of memory) a new one takes its place and those episodes are
played again, with the same seeds and hence the same results.

Measured with two workers and 256 untrained members, the share of their time in which they wait, if
episodes end in the worker where they began and if they may move (two to three rounds each):
HalfCheetah-v5 3 to 5 % and 1 to 2 %, Walker2d-v5 6 to 7 and 3, Hopper-v5 14 to 15 and 3 to 5,
Humanoid-v5 3 and 1.7. With episodes that wait in a worker's queue for slots it was 7.8 % on
HalfCheetah-v5.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from esbench.errors import EnvironmentFailedError, TrainingError, UsageError
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
    interrupts_held,
    worker_main,
)

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

DEFAULT_SLOTS: Final = 72
MAX_DEATHS: Final = 3
UNGUARDED: Final = 78  # exit code of a worker whose main module starts workers
# Episodes handed out at once where fewer slots are free. More would wait in a queue for slots that
# take long to end, while another worker runs out of episodes.
PREFETCH: Final = 4
# Libraries that read these at import start one thread instead of one a core: threads of several
# workers would spin against each other, and could change the bits of a sum.
SINGLE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


def usable_cores() -> int:
    """Return the number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection
    held: set[Task] = field(default_factory=set)
    free: int = 0  # slots for which it asked for more, and got no answer yet
    sharing: bool = False  # it was asked to give up episodes, and has not answered yet
    can_share: bool = True
    loading: int = 0  # how often it is still to answer that it is ready for a trial
    slots: int | None = None  # what it answered that it has


@final
class WorkerPool:
    """A fixed number of worker processes that play the jobs they are given.

    Use as a context manager, or call ``close``. Processes are kept from trial to trial.
    """

    def __init__(self, workers: int | None = None, slots: int = DEFAULT_SLOTS) -> None:
        """Plan ``workers`` processes (one a core by default) of up to ``slots`` environments each.

        Raises:
            UsageError: a number is below 1.
        """
        for name, value in (("workers", workers), ("slots", slots)):
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value}: expected at least 1")
        self.size = workers or usable_cores()
        self.slots = slots
        self.cpu_time_s = 0.0  # of all workers, in jobs
        self.watch = Stopwatch()  # the parts of their time
        self.moved = 0  # how often an episode went on in another worker
        self._workers: list[_Worker] = []
        self._configuration: Configure | None = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [worker.process.pid for worker in self._workers if worker.process.pid]

    def start(self) -> None:
        """Start the processes, if there are none: they load while the caller does something else.

        ``configure`` and ``play`` do so too.
        """
        if not self._workers:
            self._configuration = None  # of earlier processes
            self._start_all()

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Make every worker ready for a trial; its output is appended to ``log`` (or dropped).

        Returns when they are and have made their first environment, so that nobody takes that for
        a part of training. Cheap if they are ready already: trainers may share a pool in turns.

        Raises:
            EnvironmentFailedError: a worker cannot make the environment, or a policy for it;
                carries its traceback.

        An exception, Ctrl-C too, ends all workers.
        """
        wanted = Configure(setup, setup.useful_slots(self.slots), str(log or os.devnull))
        if wanted == self._configuration and self._workers:
            return
        self._configuration = wanted
        try:
            for worker in self._workers:
                worker.loading, worker.slots = worker.loading + 1, None
                self._send(worker, wanted)
            self._start_all()
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play every task once and return the results in task order.

        Raises:
            EnvironmentFailedError: an environment raised; carries its traceback.
            UsageError: the policy cannot serve the environment.
            TrainingError: workers kept dying on these episodes.

        An exception, Ctrl-C too, ends all workers; the next call starts new ones.
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
            self._send(worker, Begin(job, width))
        for worker in self._workers:
            if pending:
                self._give(worker, pending, width)
        while len(results) < len(tasks) or any(worker.sharing for worker in self._workers):
            before = len(results)
            for worker in _heard(self._workers):
                message = _receive(worker)
                match message:
                    case None:
                        _require_guard(worker)
                        deaths += 1
                        lost = [task for task in tasks if task in worker.held]
                        if deaths >= MAX_DEATHS:
                            raise TrainingError(_obituary(worker, deaths, lost))
                        pending.extendleft(reversed(lost))
                        self._replace(worker, Begin(job, width), pending)
                    case Finished():
                        self._take(worker, message, results)
                        worker.free = message.free or worker.free
                    case Shared():
                        self._move(worker, message.episodes, pending)
                    case Ready():  # it has taken another's place
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
        """Wait for the workers to load; one that dies meanwhile is replaced when it is to play."""
        while loading := [worker for worker in self._workers if worker.loading]:
            for worker in _heard(loading):
                match _receive(worker):
                    case Failed() as message:  # whoever trains has made one: no fault of the input
                        raise EnvironmentFailedError(message.message, message.traceback)
                    case Finished() as message:  # the end of what it did before
                        self._take(worker, message, {})
                    case Ready(slots):
                        worker.loading -= 1
                        worker.slots = slots
                    case None:
                        worker.loading = 0

    def close(self) -> None:
        """End every worker process, whatever it is doing."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()

    def _start_all(self) -> None:
        if not self._workers:
            self._workers = [self._start() for _ in range(self.size)]

    def _useful_slots(self) -> int:
        """Return how many slots all workers have, of those that have said so."""
        assert self._configuration is not None
        said = (worker.slots for worker in self._workers if worker.slots)
        return min(said, default=self._configuration.slots)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=worker_main, args=(theirs,), daemon=True)
        with _environment(SINGLE_THREAD), interrupts_held():
            try:
                process.start()
            except RuntimeError:  # this is a worker itself, which imports the person's script
                raise SystemExit(UNGUARDED) from None
        theirs.close()
        if self._configuration is not None:
            ours.send(self._configuration)
        return _Worker(process, ours, loading=int(self._configuration is not None))

    def _replace(self, dead: _Worker, begin: Begin, pending: deque[Task]) -> None:
        dead.connection.close()
        dead.process.join()
        dead.process.close()
        worker = self._start()
        self._workers[self._workers.index(dead)] = worker
        self._send(worker, begin)
        self._give(worker, pending, _chunk(len(pending), self.size, begin.width))

    def _send(self, worker: _Worker, message: Configure | Begin | Work | Share) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(message)  # a dead worker is noticed by its sentinel

    def _give(self, worker: _Worker, pending: deque[Task], count: int) -> None:
        tasks = [pending.popleft() for _ in range(min(count, len(pending)))]
        worker.held.update(tasks)
        worker.free = 0
        self._send(worker, Work(tasks))

    def _even_out(self) -> None:
        """Ask workers for some of their running episodes, for those that have none left."""
        idle = sum(not worker.held for worker in self._workers)
        for _ in range(idle - sum(worker.sharing for worker in self._workers)):
            busy = [w for w in self._workers if len(w.held) > 1 and w.can_share and not w.sharing]
            if not busy:
                return
            busiest = max(busy, key=lambda worker: len(worker.held))
            busiest.sharing = True
            self._send(busiest, Share())

    def _move(self, source: _Worker, episodes: list[Suspended], pending: deque[Task]) -> None:
        """Hand the running episodes of one worker to one that has none left.

        Only such a worker surely reads what it is sent, however much. If a death has given work to
        all of them, the episodes are played from the start.
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
            self._send(target, Work(episodes))

    def _take(self, worker: _Worker, message: Finished, results: dict[Task, EpisodeResult]) -> None:
        self.cpu_time_s += message.cpu_time_s
        self.watch.add(message.seconds)
        for result in message.results:
            worker.held.discard(result.task)
            results[result.task] = result


def _heard(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until some of the workers have sent something, or died."""
    handles: dict[Any, _Worker] = {}
    for worker in workers:
        handles[worker.connection] = worker
        handles[worker.process.sentinel] = worker
    return list({id(handles[h]): handles[h] for h in wait(list(handles))}.values())


def _receive(worker: _Worker) -> Ready | Finished | Shared | Failed | None:
    """Return a worker's next message, or None if it is dead and has sent all it could."""
    try:
        message: Ready | Finished | Shared | Failed = worker.connection.recv()
    except (EOFError, OSError):  # it died between two messages, or in the middle of one
        return None
    return message


def _width(tasks: int, workers: int, slots: int) -> int:
    """Return how many episodes a worker runs at once, at most ``slots``.

    As many as make whole rounds of its share: with 33 for 32 slots, the last would run alone.
    """
    share = -(-tasks // workers)
    rounds = max(1, -(-share // slots))
    return max(1, -(-share // rounds))


def _chunk(pending: int, workers: int, most: int) -> int:
    """Return how many episodes to hand out: half a fair share, so that the tail stays short."""
    return max(1, min(most, pending // (2 * workers)))


def _require_guard(dead: _Worker) -> None:
    """Raise if a worker ended because the script that it imports would train too."""
    dead.process.join(timeout=1)
    if dead.process.exitcode == UNGUARDED:
        raise UsageError(
            "the worker processes import this script: put what it does below "
            "if __name__ == '__main__': (classes and registrations stay above it)"
        )


def _obituary(worker: _Worker, deaths: int, lost: list[Task]) -> str:
    worker.process.join(timeout=1)
    cause = cause_of_death(worker.process.exitcode)
    played = f"played {', '.join(map(str, lost[:3])) or 'nothing'}"
    doing = "loaded the environment" if worker.loading else played
    how = f"{deaths} times without reporting an episode, last by {cause}"
    return f"a worker died {how}, while it {doing}"


def cause_of_death(code: int | None) -> str:
    """Return what a process's exit code says of its end."""
    if code is None or code >= 0:
        return f"exit code {code}"
    memory = " (out of memory?)" if code == -signal.SIGKILL else ""
    return f"signal {signal.Signals(-code).name}{memory}"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
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
