"""Processes that run trials side by side, each with workers of its own.

The grid's process hands a trial to every lane that is free and relays what happens to whoever
watches. Trials share nothing, so their results are those of one after the other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

from esbench.errors import EsbenchError, TrainingError, UsageError
from esbench.rollouts.worker import end_with_parent, interrupts_held
from esbench.rollouts.worker_pool import MAX_DEATHS, WorkerPool, cause_of_death
from esbench.store.generation_record import GenerationRecord
from esbench.training.run_trial import GridWatcher, Outcome, check_trials, run_trial
from esbench.training.trials import Trial

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


class _Event(NamedTuple):
    """From a lane: something that a watcher is told of its trial."""

    name: str
    arguments: tuple[Any, ...]


class _Ended(NamedTuple):
    """From a lane: its trial is over."""

    outcome: Outcome
    detail: str


class _Checked(NamedTuple):
    """From a lane: all trials can be served."""


class _Died(NamedTuple):
    """Of a lane that sends no more: what it died of."""

    cause: str


class _Broke(NamedTuple):
    """From a lane: what ends the grid."""

    usage: bool
    message: str


@dataclass(eq=False)
class _Lane:
    process: SpawnProcess
    connection: Connection
    trial: Trial | None = None
    generation: int = 0  # the trial's last that was seen
    deaths: int = 0  # of processes that ran it, since that one


@final
class Lanes:
    """Some processes that each run one trial at a time; a context manager."""

    def __init__(self, count: int, workers: int, slots: int) -> None:
        """Start ``count`` processes with ``workers`` of ``slots`` each; they load meanwhile."""
        self._lanes: list[_Lane] = []
        self._arguments = workers, slots
        try:
            for _ in range(count):
                with interrupts_held():
                    self._lanes.append(_Lane(*self._start()))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes; a running trial is saved first."""
        try:
            for lane in self._lanes:
                lane.process.terminate()
            for lane in self._lanes:
                lane.process.join()
        finally:  # somebody is impatient
            for lane in self._lanes:
                lane.process.kill()
                lane.connection.close()

    def _start(self) -> tuple[SpawnProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_main, args=(theirs, *self._arguments))
        process.start()
        theirs.close()
        return process, ours

    def check(self, trials: Sequence[Trial]) -> None:
        """Have one of the processes do ``check_trials``, so that this one loads no simulator.

        Raises:
            UsageError: an environment, its spaces, a policy or a setting cannot be served.
            TrainingError: the process died, or met a defect, whose traceback is the message.
        """
        lane = self._lanes[0]
        _send(lane, list(trials))
        match _receive(lane):
            case _Died(cause):
                raise TrainingError(f"the process that checked the trials died ({cause})")
            case _Broke(usage, message):
                raise UsageError(message) if usage else TrainingError(message)

    def run(
        self,
        trials: Sequence[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        """Run every trial once, in their order as lanes come free.

        A trial whose process dies goes on in a new one, where it was saved; after ``MAX_DEATHS``
        without a new generation between them it has failed.

        Args:
            trials: what to run.
            watcher: is told what happens.
            ended: is called with every trial that is over.

        Raises:
            UsageError: a trial cannot be served; see ``run_trial``.
            TrainingError: a lane met a defect, whose traceback is the message.
        """
        pending = deque(trials)
        for lane in self._lanes:
            _give(lane, pending)
        while running := {lane.connection: lane for lane in self._lanes if lane.trial}:
            for connection in wait(list(running)):
                lane = running[connection]  # type: ignore[index]
                trial = lane.trial
                assert trial is not None
                match _receive(lane):
                    case _Event(name, arguments):
                        if name == "generation_done":
                            _advance(lane, *arguments)
                        getattr(watcher, name)(trial, *arguments)
                    case _Ended(outcome, detail):
                        ended(trial, outcome, detail)
                        _give(lane, pending)
                    case _Died(cause):
                        lane.deaths += 1
                        with interrupts_held():
                            lane.process, lane.connection = self._start()
                        if lane.deaths < MAX_DEATHS:
                            watcher.trial_died(trial, cause)
                            _send(lane, trial)
                        else:
                            ended(trial, "failed", _bury(trial, lane.deaths, cause))
                            _give(lane, pending)
                    case _Broke(usage, message):
                        raise UsageError(message) if usage else TrainingError(message)


def _give(lane: _Lane, pending: deque[Trial]) -> None:
    """Give a lane that has none the next trial, if there is one."""
    lane.trial = pending.popleft() if pending else None
    lane.generation = lane.deaths = 0
    if lane.trial is not None:
        _send(lane, lane.trial)


def _send(lane: _Lane, message: Trial | list[Trial]) -> None:
    with contextlib.suppress(BrokenPipeError):  # its death is noticed when it is listened to
        lane.connection.send(message)


def _advance(lane: _Lane, record: GenerationRecord) -> None:
    """Forget deaths once a trial gets further; a generation that is computed again does not."""
    if record.generation > lane.generation:
        lane.generation, lane.deaths = record.generation, 0


def _bury(trial: Trial, deaths: int, cause: str) -> str:
    """Keep what a trial has died of, and return it."""
    how = f"{deaths} times without a new generation, last by {cause}"
    words = f"the process that ran it died {how}"
    trial.folder.fail(f"{words}\n")
    return words


def _receive(lane: _Lane) -> _Event | _Ended | _Checked | _Died | _Broke:
    try:
        message: _Event | _Ended | _Checked | _Broke = lane.connection.recv()
    except (EOFError, OSError):
        lane.connection.close()
        lane.process.join()
        return _Died(cause_of_death(lane.process.exitcode))
    return message


@final
class _Relay:
    """The watcher of a lane: passes everything on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """Pass it on."""
        self.send(_Event("trial_started", (resumed_at,)))

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """Pass it on."""
        self.send(_Event("generation_done", (record,)))

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Pass it on."""
        self.send(_Event("scoring_started", (episodes,)))

    def trial_ended(self, trial: Trial, outcome: Outcome, detail: str) -> None:
        """Pass it on."""
        self.send(_Ended(outcome, detail))

    def send(self, message: _Event | _Ended | _Checked | _Broke) -> None:
        """Send a message to the grid's process."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise _ParentGoneError from error

    def receive(self) -> Trial | list[Trial]:
        """Wait for a trial to run, or for trials to check."""
        try:
            message: Trial | list[Trial] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _ParentGoneError from error
        return message


class _ParentGoneError(BaseException):
    """The grid's process has closed the connection: no failure of the running trial."""


def _main(connection: Connection, workers: int, slots: int) -> None:
    """Run the trials that are sent until this process is told to end, or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the grid's process decides
    signal.signal(signal.SIGTERM, _interrupt)
    end_with_parent()
    relay = _Relay(connection)
    ends = (KeyboardInterrupt, _ParentGoneError)
    with contextlib.suppress(*ends), WorkerPool(workers, slots) as pool:
        pool.start()
        while True:
            try:
                match relay.receive():
                    case Trial() as trial:
                        relay.trial_ended(trial, *run_trial(trial, pool, relay, ()))
                    case trials:
                        check_trials(trials)
                        relay.send(_Checked())
            except EsbenchError as error:
                relay.send(_Broke(isinstance(error, UsageError), str(error)))
            except Exception:
                relay.send(_Broke(False, traceback.format_exc()))


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows is saving
    raise KeyboardInterrupt
