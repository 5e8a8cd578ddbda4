"""A pool of local worker processes that play the episodes of a job.

A worker with free slots receives as many new episodes, or fewer toward the end of a generation,
so that all workers finish at about the same time. When no episode is left to begin, an idle worker
takes over half of the running episodes of another one. When a worker dies, a new one plays its
episodes again, with the same seeds and therefore the same results.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from esbench.core.clock import TICK, within
from esbench.core.cores import usable_cores
from esbench.core.errors import (
    LIMITS,
    EsbenchError,
    LimitError,
    TrainingError,
    UsageError,
    memory_is_limited,
    require_integer,
)
from esbench.core.files import shorten_log
from esbench.core.json_text import Json
from esbench.core.process import PATIENCE, reserve_descriptors
from esbench.core.processor import SINGLE_THREAD
from esbench.engine.child_process import DESCRIPTORS, Child, end, wait_for
from esbench.engine.engine import Engine, Question
from esbench.engine.jobs import EpisodeResult, Episodes, Job, Task, collect
from esbench.engine.player import Suspended
from esbench.engine.setup import Setup, require_importable
from esbench.engine.worker import (
    Answer,
    Ask,
    Begin,
    Configure,
    Finished,
    Halt,
    Halted,
    Ready,
    Share,
    Shared,
    Work,
    worker_main,
)
from esbench.grids.trial_spec import EnvironmentSpec, TrialSpec

MAX_DEATHS: Final = 3
DEFAULT_SLOTS: Final = 72
WORKERS_PER_CORE: Final = 8  # for environments that wait, such as those with a server
FEW_WORKERS: Final = 64  # allowed on every machine
# The smallest number of episodes sent at once. More could wait in a queue while a worker is idle.
PREFETCH: Final = 4


def round_size(tasks: int, workers: int, slots: int) -> int:
    """The size of the equal rounds in which a worker plays its share.

    With rounds of unequal size, one last episode could run alone.
    """
    share = -(-tasks // workers)
    rounds = max(1, -(-share // slots))
    return max(1, -(-share // rounds))


def portion(pending: int, workers: int, most: int) -> int:
    """The number of episodes to send at once: half a fair share, so that all end together."""
    return max(1, min(most, pending // (2 * workers)))


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
    deaths: int = 0  # in its place, since the last result of any worker


@final
class WorkerPool(Engine):
    """A fixed number of worker processes on this machine.

    Attributes:
        moved: the number of times that an episode continued in another worker.
    """

    def __init__(
        self, workers: int | None = None, slots: int = DEFAULT_SLOTS, imports_main: bool = True
    ) -> None:
        """Prepare one worker per core by default; UsageError for a wrong number.

        ``imports_main`` is whether workers import the user's script.
        """
        if workers is not None:
            most = max(FEW_WORKERS, WORKERS_PER_CORE * usable_cores())
            require_integer("workers", workers, 1, most, ", the most on this machine")
        self._size = workers or usable_cores()
        super().__init__(slots)
        self._imports_main = imports_main
        self.moved = 0
        self._workers: list[_Worker] = []
        self._configuration: Configure | None = None
        self._begin: Begin | None = None
        self._looked = -math.inf  # when the size of the log was last looked at [s]
        self._pending: deque[Task] = deque()

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._size

    @property
    def nodes(self) -> Json:
        """Empty."""
        return {}

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [worker.child.process.pid for worker in self._workers]

    def machines(self) -> None:
        """None."""

    def compare_code(self, spec: TrialSpec) -> None:
        """There is only this machine."""

    def opener(self) -> Callable[[], Engine]:
        """A pool of as many workers."""
        return partial(WorkerPool, self._size, self.slots)

    def start(self) -> None:
        """Start the processes if none run, as ``configure`` does; they load in the background."""
        reserve_descriptors(DESCRIPTORS * (self.size - len(self._workers)))
        while len(self._workers) < self.size:  # so ``close`` ends those that have started
            self._workers.append(self._start())

    def configure(self, setup: Setup, log: Path | None = None) -> None:
        """Prepare every worker for a trial and wait until all have made their environments."""
        wanted = Configure(setup, setup.useful_slots(self.slots), str(log or os.devnull))
        if wanted == self._configuration:
            return
        require_importable(setup.environment, setup.policy)
        self._configuration = wanted
        try:
            self._halt()
            for worker in self._workers:
                worker.loading, worker.slots = worker.loading + 1, None
                worker.child.send(wanted)
            self.start()
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        """Play the tasks, and return their results in order.

        Raises:
            TrainingError: the replacements of one worker died ``MAX_DEATHS`` times in a row
                without a result.
        """
        results = dict[Task, EpisodeResult]()
        try:
            self.begin(job, tasks, len(tasks))
            if self.progress is not None:
                self.progress(0, len(tasks))
            while len(results) < len(tasks) or any(worker.sharing for worker in self._workers):
                found = self.step()
                results |= {result.task: result for result in found}
                if self.progress is not None and found:
                    self.progress(len(results), len(tasks))
            return collect(tasks, results)
        except BaseException:
            self.close()
            raise

    def begin(self, job: Job, tasks: Sequence[Task], total: int) -> None:
        """Begin with the first episodes of a job; this pool plays at most ``total`` of them.

        Episodes of the last job that still run are dropped. The caller closes the pool if this, or
        ``step``, raises an exception.
        """
        assert self._configuration is not None, "configure first"
        self._halt()
        slots = min((w.slots for w in self._workers if w.slots), default=self._configuration.slots)
        begin = self._begin = Begin(job, round_size(total, self.size, slots))
        self._pending = deque(tasks)
        for worker in self._workers:
            worker.held.clear()
            worker.deaths = 0
            worker.free, worker.can_share = begin.width, True
            worker.child.send(begin)
        for worker in self._workers:
            if self._pending:
                self._give(worker, begin.width)

    def add(self, tasks: Sequence[Task]) -> None:
        """Queue further episodes of the job."""
        self._pending.extend(tasks)
        self._hand_out()

    def drop(self, tasks: Iterable[Task]) -> None:
        """Take episodes out of the queue, if no worker has them."""
        unwanted = set(tasks)
        self._pending = deque(task for task in self._pending if task not in unwanted)

    @property
    def queued(self) -> int:
        """The number of episodes that no worker has received yet."""
        return len(self._pending)

    @property
    def is_idle(self) -> bool:
        """Whether no episode is queued or with a worker."""
        return not self._pending and not any(worker.held for worker in self._workers)

    def step(self, ahead: bool = False, seconds: float | None = None) -> list[EpisodeResult]:
        """Wait for messages, at most ``seconds``, and return the results; raises as ``play``.

        ``ahead`` is whether more episodes will be added, so that no running one needs to move.
        """
        results: list[EpisodeResult] = []
        for worker, message in self._heard(self._workers, results, seconds):
            if message is not None:
                self._move(worker, message.episodes)
                continue
            worker.child.require_start()
            worker.deaths += 1
            lost = sorted(worker.held)
            if worker.deaths >= MAX_DEATHS:
                died = _describe_deaths(worker, lost)
                limited = worker.loading and memory_is_limited()
                raise LimitError(f"{died}: {LIMITS}") if limited else TrainingError(died)
            self._pending.extendleft(reversed(lost))
            self._replace(worker)
        for worker in self._workers if results else ():
            worker.deaths = 0
        self._hand_out()
        if not self._pending and not ahead:
            self._even_out()
        return results

    def _hand_out(self) -> None:
        for worker in [w for w in self._workers if w.free and self._pending]:
            self._give(worker, portion(len(self._pending), self.size, max(worker.free, PREFETCH)))

    def ask(self, questions: Sequence[Question], environment: EnvironmentSpec) -> list[Any]:
        """As the base class says; a worker that has died is replaced."""
        require_importable(environment)
        extra: list[_Worker] = []
        try:
            self._halt()
            self._configuration = None  # the log of these workers becomes another one
            self.start()
            while len(self._workers) + len(extra) < len(questions):
                extra.append(self._start())
            asked = [*self._workers, *extra][: len(questions)]
            for worker, question in zip(asked, questions, strict=True):
                worker.child.send(Ask(question, environment))
            return [self._answer(worker) for worker in asked]
        except BaseException:
            self.close()
            raise
        finally:
            end([worker.child for worker in extra])

    def _answer(self, worker: _Worker) -> Any:
        while not isinstance(message := worker.child.receive(), Answer | EsbenchError | None):
            if isinstance(message, Ready):  # it was replaced after its last episode
                worker.loading -= 1
        if isinstance(message, EsbenchError):
            raise UsageError(str(message))
        if message is not None:
            return message.value
        worker.child.require_start()
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = self._start()
            end([worker.child])
        return None

    def _halt(self) -> None:
        """Stop workers that still play episodes of a job that has ended without them."""
        playing = {
            worker.child: worker for worker in self._workers if worker.held or worker.sharing
        }
        for child in playing:
            child.send(Halt())
        for seconds in within(PATIENCE):
            if not playing:
                return
            for child in wait_for(list(playing), seconds):
                worker = playing[child]
                match child.receive():
                    case Ready(slots):  # a replacement, which has received episodes at once
                        worker.loading, worker.slots = worker.loading - 1, slots
                    case EsbenchError() as error if worker.loading:
                        raise error
                    case Halted() | None:  # ``step`` replaces a dead one
                        del playing[child]
                        worker.held, worker.sharing = set(), False
        for child, worker in playing.items():  # ``step`` replaces it
            child.process.kill()
            worker.held, worker.sharing = set(), False

    def _await_ready(self) -> None:
        # A worker that dies meanwhile is replaced by ``play``.
        while loading := [worker for worker in self._workers if worker.loading]:
            for worker, _ in self._heard(loading, []):
                worker.loading = 0

    def _heard(
        self, workers: Sequence[_Worker], results: list[EpisodeResult], seconds: float | None = None
    ) -> Iterator[tuple[_Worker, Shared | None]]:
        """Wait for messages and add the results; yields shared episodes, and None for a death."""
        owners = {worker.child: worker for worker in workers}
        self._limit_log()
        for child in wait_for(list(owners), TICK if seconds is None else min(seconds, TICK)):
            worker = owners[child]
            match child.receive():
                case Finished() as message:
                    self.cpu_time_s += message.cpu_time_s
                    self.watch.add(message.seconds)
                    worker.free = message.free or worker.free
                    worker.held.difference_update(result.task for result in message.results)
                    results += message.results
                case Ready(slots):
                    worker.loading -= 1
                    worker.slots = slots
                case EsbenchError() as error:
                    raise error
                case message:
                    yield worker, message

    def _limit_log(self) -> None:
        if self._configuration is not None and time.monotonic() - self._looked >= TICK:
            self._looked = time.monotonic()
            shorten_log(self._configuration.log)

    def close(self) -> None:
        """End every worker process at once."""
        workers, self._workers, self._configuration = self._workers, [], None
        end([worker.child for worker in workers])

    def _start(self) -> _Worker:
        child = Child(worker_main, variables=SINGLE_THREAD, imports_main=self._imports_main)
        if self._configuration is not None:
            child.send(self._configuration)
        return _Worker(child, loading=int(self._configuration is not None))

    def _replace(self, dead: _Worker) -> None:
        worker = self._start()
        worker.deaths = dead.deaths
        self._workers[self._workers.index(dead)] = worker
        end([dead.child])
        assert self._begin is not None, "begin first"
        worker.child.send(self._begin)
        self._give(worker, portion(len(self._pending), self.size, self._begin.width))

    def _give(self, worker: _Worker, count: int) -> None:
        tasks = [self._pending.popleft() for _ in range(min(count, len(self._pending)))]
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

    def _move(self, source: _Worker, episodes: list[Suspended]) -> None:
        """Send the running episodes that a worker gave up to an idle worker.

        With none left, they are played from the start: a busy worker might not read a large message
        before it sends one itself, which would block both.
        """
        source.sharing, source.can_share = False, bool(episodes)
        tasks = [episode.task for episode in episodes]
        source.held.difference_update(tasks)
        idle = [worker for worker in self._workers if not worker.held and worker is not source]
        if not idle:
            self._pending.extendleft(reversed(tasks))
        elif tasks:
            target = idle[0]
            target.held.update(tasks)
            target.free, target.can_share = 0, True
            self.moved += len(tasks)
            target.child.send(Work(episodes))


def _describe_deaths(worker: _Worker, lost: list[Task]) -> str:
    played = f"played {', '.join(map(str, lost[:3])) or 'nothing'}"
    activity = "loaded the environment" if worker.loading else played
    return (
        f"a worker died {worker.deaths} times without reporting an episode, last by "
        f"{worker.child.cause_of_death()}, while it {activity}"
    )
