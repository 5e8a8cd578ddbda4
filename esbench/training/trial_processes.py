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
from typing import Any, NamedTuple, NoReturn, final

from esbench.errors import EsbenchError, TrainingError, UsageError
from esbench.rollouts.child_process import Child, Parent, end, wait_for
from esbench.rollouts.interrupts import interrupts_blocked
from esbench.rollouts.worker_pool import MAX_DEATHS, WorkerPool
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import ImportedCallback
from esbench.training.run_trial import GridWatcher, Outcome, check_trials, run_trial
from esbench.training.trials import Trial


@final
class _Event(NamedTuple):
    """From a trial process, which otherwise sends the error that ends the grid."""

    name: str
    arguments: tuple[Any, ...] = ()


@final
@dataclass(eq=False)
class _TrialProcess:
    child: Child
    trial: Trial | None = None
    generation: int = 0  # the latest of the trial
    deaths: int = 0  # of processes since that generation


@final
class TrialProcesses:
    """Processes that run one trial at a time each; a context manager."""

    def __init__(
        self, count: int, workers: int, slots: int, callbacks: Sequence[ImportedCallback] = ()
    ) -> None:
        """Start ``count`` processes with ``workers`` workers of ``slots`` slots each."""
        self._arguments = workers, slots, callbacks
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
        child.send(list(trials))
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
        while running := {p.child: p for p in self._processes if p.trial}:
            for child in wait_for(list(running)):
                self._handle(running[child], child.receive(), pending, watcher, ended)

    def _handle(
        self,
        process: _TrialProcess,
        reply: _Event | EsbenchError | None,
        pending: deque[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        trial = process.trial
        assert trial is not None, "only processes with a trial send messages"
        match reply:
            case _Event("trial_ended", arguments):
                ended(trial, *arguments)
                _give(process, pending)
            case _Event(name, arguments):
                if name == "generation_done":
                    _advance(process, *arguments)
                getattr(watcher, name)(trial, *arguments)
            case None:
                cause = process.child.cause_of_death()
                process.deaths += 1
                with interrupts_blocked():
                    dead, process.child = process.child, self._start()
                end([dead])
                if process.deaths < MAX_DEATHS:
                    watcher.trial_died(trial, cause)
                    process.child.send(trial)
                else:
                    ended(trial, "failed", _store_cause(trial, process.deaths, cause))
                    _give(process, pending)
            case EsbenchError():
                raise reply

    def _start(self) -> Child:
        return Child(_main, *self._arguments, daemon=False)  # it has workers


def _give(process: _TrialProcess, pending: deque[Trial]) -> None:
    process.trial = pending.popleft() if pending else None
    process.generation = process.deaths = 0
    if process.trial is not None:
        process.child.send(process.trial)


def _advance(process: _TrialProcess, record: GenerationRecord) -> None:
    """Reset the number of deaths at a new generation, but not at one that is computed again."""
    if record.generation > process.generation:
        process.generation, process.deaths = record.generation, 0


def _store_cause(trial: Trial, deaths: int, cause: str) -> str:
    text = f"its process died {deaths} times without a new generation, last by {cause}"
    trial.folder.fail(f"{text}\n")
    return text


@final
class _Relay:
    """A watcher that sends the events of a trial to the main process."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        self._parent.send(_Event("trial_started", (resumed_at,)))

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        self._parent.send(_Event("generation_done", (record,)))

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        self._parent.send(_Event("episodes_done", (done, total)))

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        self._parent.send(_Event("scoring_started", (episodes,)))


def _main(parent: Parent, workers: int, slots: int, callbacks: Sequence[ImportedCallback]) -> None:
    """Run or check the received trials until the parent ends this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    relay = _Relay(parent)
    with contextlib.suppress(KeyboardInterrupt), WorkerPool(workers, slots) as pool:
        pool.start()
        while True:
            try:
                match parent.receive():
                    case Trial() as trial:
                        parent.send(_Event("trial_ended", run_trial(trial, pool, relay, callbacks)))
                    case trials:
                        check_trials(trials, pool)
                        parent.send(_Event("checked"))
            except UsageError as error:
                parent.send(UsageError(str(error)))
            except TrainingError as error:
                parent.send(TrainingError(str(error)))
            except Exception:
                parent.send(TrainingError(traceback.format_exc()))


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the next one must not interrupt saving
    raise KeyboardInterrupt
