"""Processes that run trials side by side, each with workers of its own.

The main process sends a trial to every idle process and passes the events of the trials on to the
watcher. Trials share nothing, so the results equal those of one trial after the other.
"""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, final

from esbench.errors import DamagedTrialError, EsbenchError, TrainingError, UsageError
from esbench.rollouts.child_process import Child, Parent, end, wait_for
from esbench.rollouts.interrupts import interrupts_blocked
from esbench.rollouts.worker_pool import MAX_DEATHS, WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import ImportedCallback
from esbench.training.run_trial import (
    GridWatcher,
    Outcome,
    attempt,
    check_specs,
    run_trial,
    unchecked,
)
from esbench.training.trial_messages import Away, Event, MessageRecorder, Relay
from esbench.training.trials import Trial

TrialArguments: TypeAlias = tuple[int, int, Sequence[ImportedCallback]]
"""Of a trial process: workers, slots of each, and callbacks."""


@final
@dataclass(eq=False)
class UnfinishedTrial:
    """A trial that has not ended, and the deaths of the processes that ran it."""

    trial: Trial
    generation: int = 0  # the latest
    deaths: int = 0  # since that generation

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
@dataclass(eq=False)
class _TrialProcess:
    child: Child
    run: UnfinishedTrial | None = None


@final
class TrialProcesses:
    """Processes that run one trial at a time each; a context manager."""

    def __init__(
        self, count: int, workers: int, slots: int, callbacks: Sequence[ImportedCallback] = ()
    ) -> None:
        """Start ``count`` processes with ``workers`` workers of ``slots`` slots each."""
        self._arguments: TrialArguments = workers, slots, callbacks
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
        end([process.child for process in self._processes])

    def check(self, trials: Sequence[Trial]) -> None:
        """Call ``check_trials`` in a process, so that the main process loads no simulator.

        TrainingError if the process died, or failed; the message is its traceback.
        """
        child = self._processes[0].child
        child.send(unchecked(trials))
        match child.receive():
            case None:
                cause = child.cause_of_death()
                raise TrainingError(f"the process that checked the trials died ({cause})")
            case EsbenchError() as error:
                raise error

    def run(
        self,
        trials: Sequence[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        """Run every trial once, in their order, as processes become idle.

        If the process of a trial dies, the trial is resumed in a new one. It fails after
        ``MAX_DEATHS`` deaths without a new generation. ``ended`` is called with every trial that
        has ended, and the watcher with the other events.

        UsageError as in ``run_trial``; TrainingError, with its traceback, if a process failed.
        """
        pending = deque(trials)
        for process in self._processes:
            _give(process, pending)
        while running := {p.child: p for p in self._processes if p.run}:
            for child in wait_for(list(running)):
                self._handle(running[child], child.receive(), pending, watcher, ended)

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
                cause = process.child.cause_of_death()
                run.deaths += 1
                with interrupts_blocked():
                    dead, process.child = process.child, self._start()
                end([dead])
                if run.deaths < MAX_DEATHS:
                    watcher.trial_died(run.trial, cause)
                    process.child.send(run.trial)
                else:
                    ended(run.trial, "failed", run.store_cause(cause))
                    _give(process, pending)
            case EsbenchError():
                raise reply

    def _start(self) -> Child:
        return Child(trial_main, *self._arguments, daemon=False)  # it has workers


def _give(process: _TrialProcess, pending: deque[Trial]) -> None:
    process.run = UnfinishedTrial(pending.popleft()) if pending else None
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
                    case specs:
                        check_specs(specs, pool)
                        parent.send(Event("checked"))
            except UsageError as error:
                parent.send(UsageError(str(error)))
            except TrainingError as error:
                parent.send(TrainingError(str(error)))
            except Exception:
                parent.send(TrainingError(traceback.format_exc()))


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
