"""Processes that run trials side by side, each with workers of its own.

The main process sends a trial to every idle process and passes the events of the trials on to the
watcher. Trials share nothing, so the results equal those of one trial after the other.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, TypeAlias, final

from esbench.errors import DamagedTrialError, EsbenchError, TrainingError, UsageError
from esbench.escape import printable
from esbench.rollouts.child_process import Child, Parent, ParentGoneError, end, wait_for
from esbench.rollouts.interrupts import interrupts_blocked
from esbench.rollouts.worker_pool import MAX_DEATHS, PATIENCE, WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import ImportedCallback
from esbench.training.limits import HINT_SECONDS, UNLIMITED, Limits
from esbench.training.run_trial import (
    GridWatcher,
    Outcome,
    attempt,
    check_each,
    check_spec,
    run_trial,
)
from esbench.training.trial_messages import (
    Away,
    Event,
    MessageRecorder,
    Relay,
    SpecCheck,
    SpecChecked,
)
from esbench.training.trials import Trial

POLL_SECONDS: Final = 0.5  # between two looks at the clocks of silent trials

TrialArguments: TypeAlias = tuple[int, int, Sequence[ImportedCallback]]
"""Of a trial process: workers, slots of each, and callbacks."""


@final
@dataclass(eq=False)
class UnfinishedTrial:
    """A trial that has not ended, and the deaths of the processes that ran it."""

    trial: Trial
    generation: int = 0  # the latest
    deaths: int = 0  # since that generation
    losses: int = 0  # deaths in all

    def advance(self, record: GenerationRecord) -> None:
        """Forget the deaths if a generation is new, not computed again."""
        if record.generation > self.generation:
            self.generation, self.deaths = record.generation, 0

    def store_cause(self, cause: str) -> str:
        """Store with a failed trial what its last process died of; returns the text."""
        text = f"its process died {self.deaths} times without a new generation, last by {cause}"
        self.trial.folder.fail(f"{text}\n")
        return text


@final
class _Clock:
    """The time of a trial, or of its check, in its process."""

    def __init__(self) -> None:
        self._started = self._heard = time.monotonic()
        self._hinted = False

    def hear(self) -> None:
        """An episode has ended, or the trial has come further."""
        self._heard = time.monotonic()

    def look(self, trial: Trial, limits: Limits, watcher: GridWatcher) -> str:
        """The exceeded limit as a sentence, or an empty one; also gives the hint, once."""
        silent, total = (time.monotonic() - since for since in (self._heard, self._started))
        if silent >= HINT_SECONDS and not self._hinted:
            self._hinted = True
            watcher.trial_silent(trial, HINT_SECONDS)
        return limits.exceeded(silent, total)


@final
@dataclass(eq=False)
class _TrialProcess:
    child: Child
    run: UnfinishedTrial | None = None
    clock: _Clock = field(default_factory=_Clock)


@final
class TrialProcesses:
    """Processes that run one trial at a time each; a context manager."""

    def __init__(
        self,
        count: int,
        workers: int,
        slots: int,
        callbacks: Sequence[ImportedCallback] = (),
        limits: Limits = UNLIMITED,
    ) -> None:
        """Start ``count`` processes with ``workers`` workers of ``slots`` slots each."""
        self._arguments: TrialArguments = workers, slots, callbacks
        self._limits = limits
        self._processes: list[_TrialProcess] = []
        try:
            for _ in range(count):
                with interrupts_blocked():
                    self._processes.append(_TrialProcess(self._start()))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> TrialProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes after they have saved their trials."""
        saving = [process for process in self._processes if process.run is not None]
        idle = [process for process in self._processes if process.run is None]
        try:
            end([process.child for process in idle], PATIENCE)
        finally:
            end([process.child for process in saving])

    def check(self, trials: Sequence[Trial], watcher: GridWatcher) -> None:
        """``check_each`` in a process, so that the main process loads no simulator.

        A process that dies or exceeds a limit is replaced; training reports why.
        """
        check_each(trials, partial(self._check, process=self._processes[0], watcher=watcher))

    def _check(self, trial: Trial, process: _TrialProcess, watcher: GridWatcher) -> None:
        process.child.send(SpecCheck.of(trial))
        clock = _Clock()
        while not wait_for([process.child], POLL_SECONDS):
            if clock.look(trial, self._limits, watcher):
                self._replace(process)
                return
        match process.child.receive():
            case None:
                process.child.require_guard()
                self._replace(process)
            case SpecChecked(error=EsbenchError() as error):
                raise error

    def run(
        self,
        trials: Sequence[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        """Run every trial once, in their order, as processes become idle.

        If the process of a trial dies, the trial is resumed in a new one. It fails after
        ``MAX_DEATHS`` deaths without a new generation, and when it exceeds a limit. ``ended`` is
        called with every trial that has ended, and the watcher with the other events.

        UsageError as in ``run_trial``; TrainingError, with its traceback, if a process failed.
        """
        pending = deque(trials)
        for process in self._processes:
            _give(process, pending)
        while running := {p.child: p for p in self._processes if p.run}:
            for child in wait_for(list(running), POLL_SECONDS):
                running[child].clock.hear()
                self._handle(running[child], child.receive(), pending, watcher, ended)
            for process in running.values():
                trial = process.run and process.run.trial
                if trial and (why := process.clock.look(trial, self._limits, watcher)):
                    self._replace(process)
                    trial.folder.fail(f"{why}\n")
                    ended(trial, "failed", why)
                    _give(process, pending)

    def _handle(
        self,
        process: _TrialProcess,
        reply: Event | EsbenchError | None,
        pending: deque[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        run = process.run
        assert run is not None, "only processes with a trial send messages"
        match reply:
            case Event("trial_ended", arguments):
                ended(run.trial, *arguments)
                _give(process, pending)
            case Event(name, arguments):
                if name == "generation_done":
                    run.advance(*arguments)
                getattr(watcher, name)(run.trial, *arguments)
            case None:
                process.child.require_guard()
                cause = process.child.cause_of_death()
                run.deaths += 1
                self._replace(process)
                if run.deaths < MAX_DEATHS:
                    watcher.trial_died(run.trial, cause)
                    process.child.send(run.trial)
                else:
                    ended(run.trial, "failed", run.store_cause(cause))
                    _give(process, pending)
            case EsbenchError():
                raise reply

    def _replace(self, process: _TrialProcess) -> None:
        """End a process that is dead or too late, after it has saved its trial, and start one."""
        with interrupts_blocked():
            before, process.child = process.child, self._start()
        end([before], PATIENCE)

    def _start(self) -> Child:
        return Child(trial_main, *self._arguments, daemon=False)  # it has workers


def _give(process: _TrialProcess, pending: deque[Trial]) -> None:
    process.run = UnfinishedTrial(pending.popleft()) if pending else None
    process.clock = _Clock()
    if process.run is not None:
        process.child.send(process.run.trial)


def trial_main(
    parent: Parent, workers: int, slots: int, callbacks: Sequence[ImportedCallback]
) -> None:
    """Run or check the received trials until the parent ends this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.suppress(KeyboardInterrupt), WorkerPool(workers, slots) as pool:
        pool.start()
        while True:
            try:
                match parent.receive():
                    case Trial() as trial:
                        outcome = run_trial(trial, pool, Relay(parent.send), callbacks)
                        parent.send(Event("trial_ended", outcome))
                    case Away(trial):
                        _run_away(trial, parent, pool, callbacks)
                    case SpecCheck() as work:
                        parent.send(SpecChecked(work.spec.hash, _found(work, pool)))
            except (KeyboardInterrupt, ParentGoneError):
                raise
            except BaseException as error:  # of own code, which may raise anything
                parent.send(_sendable(error))


def _found(work: SpecCheck, pool: WorkerPool) -> EsbenchError | None:
    """The error that a check has found, if any."""
    try:
        check_spec(work.spec, work.is_new, pool)
    except (KeyboardInterrupt, ParentGoneError):
        raise
    except BaseException as error:  # of own code, which may raise anything
        return _sendable(error)
    return None


def _sendable(error: BaseException) -> EsbenchError:
    """An error that every process can load; its message is the traceback of an unexpected one."""
    match error:
        case UsageError():
            return type(error)(str(error))
        case TrainingError():
            return TrainingError(str(error))
        case _:
            return TrainingError(printable("".join(traceback.format_exception(error))))


def _run_away(
    trial: Trial, parent: Parent, pool: WorkerPool, callbacks: Sequence[ImportedCallback]
) -> None:
    """Run a trial whose folder only the other end of the messages can reach."""
    with MessageRecorder(parent) as recorder:
        try:
            outcome = attempt(trial, pool, recorder, Relay(recorder.send), callbacks)
        except DamagedTrialError as error:  # as in ``run_trial``
            outcome = "failed", str(error)
        recorder.send(Event("trial_ended", outcome))


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the next one must not interrupt saving
    raise KeyboardInterrupt
