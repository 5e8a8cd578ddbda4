"""Processes that run trials side by side, each with workers of its own.

The main process sends a trial to every idle process and passes the events of the trials on to the
watcher. Trials share nothing, so the results equal those of one trial after the other.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, final

from esbench.core.arrays import State
from esbench.core.errors import DamagedTrialError, EsbenchError, TrainingError, UsageError
from esbench.core.escape import printable
from esbench.core.json_text import Json
from esbench.core.process import interrupts_blocked, interrupts_delayed
from esbench.engine.child_process import Child, Parent, ParentGoneError, end, wait_for
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import MAX_DEATHS, PATIENCE
from esbench.experiment.run_trial import attempt, check_each, check_spec, run_trial
from esbench.experiment.trials import Start, Trial
from esbench.experiment.watchers import (
    UNLIMITED,
    Clock,
    GridWatcher,
    ImportedCallback,
    Limits,
    Outcome,
)
from esbench.grids.trial_spec import TrialSpec
from esbench.results.run import score_text
from esbench.store.generation_record import GenerationRecord


@final
class WatcherCall(NamedTuple):
    """A call of the ``GridWatcher``, made by the process of a trial."""

    name: str
    arguments: tuple[Any, ...] = ()


@final
class Notice(NamedTuple):
    """A sentence about the workers, such as that a node is gone."""

    text: str


@final
class Recorded(NamedTuple):
    """A call of ``Trial.begin`` or of its folder; if ``asked``, the result is sent back."""

    name: str
    arguments: tuple[Any, ...]
    asked: bool


@final
class Away(NamedTuple):
    """A trial to run where its folder is not."""

    trial: Trial


@final
class SpecCheck(NamedTuple):
    """What ``check_spec`` needs, to a trial process, which answers ``SpecChecked``."""

    spec: TrialSpec
    is_new: bool

    @classmethod
    def of(cls, trial: Trial) -> SpecCheck:
        """The check of a trial, whose folder this process can reach."""
        return cls(trial.spec, not trial.folder.has_begun)


@final
class SpecChecked(NamedTuple):
    """A check has ended."""

    hash: str  # of the specification
    error: EsbenchError | None


@final
class Relay:
    """A ``Watcher`` that sends the events of a trial to another process."""

    def __init__(self, send: Callable[[WatcherCall], None]) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda trial, *arguments: self._send(WatcherCall(name, arguments))


@final
class MessageRecorder:
    """Sends what a trial records to the process that has the trial's folder.

    A context manager. Every call but ``append`` waits until the other process has stored it.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._temporary = TemporaryDirectory(prefix="esbench-")
        self.path = Path(self._temporary.name)
        self._logged = 0  # bytes of the log that are sent
        self._records_members = False

    def __enter__(self) -> MessageRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def send(self, message: WatcherCall | Recorded) -> None:
        """Send a message whole, even if an interrupt arrives meanwhile."""
        with interrupts_delayed():
            self._parent.send(message)

    def begin(self, about: Json) -> Start:
        """Prepare the folder for new records, and resume; ``about`` gets the name of the host."""
        hardware = {**about["hardware"], "host": socket.gethostname()}
        start: Start = self._ask("begin", {**about, "hardware": hardware})
        self._records_members = start.records_members
        return start

    def append(self, record: GenerationRecord, members: Mapping[str, Any]) -> None:
        """Send one row, and the members' data if they are stored."""
        wanted = dict(members) if self._records_members else {}
        self.send(Recorded("append", (record, wanted), asked=False))

    def checkpoint(self, state: State) -> None:
        """Save the state after the rows so far, and the log."""
        self._send_log()
        self._ask("checkpoint", state)

    def keep(self, state: State) -> None:
        """Save the state as the latest checkpoint, and keep a copy of it."""
        self._ask("keep", state)

    def record_nodes(self, nodes: Json) -> None:
        """Store what ``Engine.nodes`` says."""
        self._ask("record_nodes", nodes)

    def finish(self, result: Json) -> None:
        """Store the result, and the log; the trial is done."""
        self._send_log()
        self._ask("finish", result)

    def fail(self, traceback: str) -> None:
        """Store the error of a failed trial, and the log."""
        self._send_log()
        self._ask("fail", traceback)

    def _ask(self, name: str, argument: Any) -> Any:
        self.send(Recorded(name, (argument,), asked=True))
        self._parent.wait()
        with interrupts_delayed():
            answer = self._parent.receive()
        if isinstance(answer, EsbenchError):
            raise answer
        return answer

    def _send_log(self) -> None:
        log = self.path / "log.txt"
        if log.exists():
            with log.open("rb") as file:
                file.seek(self._logged)
                new = file.read()
            self._logged += len(new)
            self.send(Recorded("append_log", (new,), asked=False))


POLL_SECONDS: Final = 0.5  # between two looks at the clocks of silent trials

TrialArguments: TypeAlias = tuple[Callable[[], Engine], Sequence[ImportedCallback]]
"""Of a trial process: what opens its engine, and callbacks."""


@final
@dataclass(eq=False)
class UnfinishedTrial:
    """A trial that has not ended, and the deaths of the processes that ran it."""

    trial: Trial
    generation: int = 0  # the latest
    deaths: int = 0  # since that generation
    losses: int = 0  # deaths in all
    clock: Clock = field(default_factory=Clock)

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
        self,
        count: int,
        open_engine: Callable[[], Engine],
        callbacks: Sequence[ImportedCallback] = (),
        limits: Limits = UNLIMITED,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start ``count`` processes with an engine each, whose notices are passed on."""
        self._arguments: TrialArguments = open_engine, callbacks
        self._limits, self._notice = limits, notice
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
        clock = Clock()
        while True:
            if not wait_for([process.child], POLL_SECONDS):
                if clock.check(trial, self._limits, watcher):
                    self._replace(process)
                    return
                continue
            match process.child.receive():
                case None:
                    process.child.require_guard()
                    self._replace(process)
                    return
                case Notice(text):
                    self._notice(text)
                case SpecChecked(error=EsbenchError() as error) | (EsbenchError() as error):
                    raise error
                case _:
                    return

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
                self._handle(running[child], child.receive(), pending, watcher, ended)
            for process in running.values():
                run = process.run
                if run and (why := run.clock.check(run.trial, self._limits, watcher)):
                    self._replace(process)
                    if run.trial.is_done:  # it has ended at the last moment
                        ended(run.trial, "done", score_text(run.trial.folder.result()))
                    else:
                        run.trial.folder.fail(f"{why}\n")
                        ended(run.trial, "failed", why)
                    _give(process, pending)

    def _handle(
        self,
        process: _TrialProcess,
        reply: WatcherCall | Notice | EsbenchError | None,
        pending: deque[Trial],
        watcher: GridWatcher,
        ended: Callable[[Trial, Outcome, str], None],
    ) -> None:
        run = process.run
        assert run is not None, "only processes with a trial send messages"
        run.clock.note_progress()
        match reply:
            case Notice(text):
                self._notice(text)
            case WatcherCall("trial_ended", arguments):
                ended(run.trial, *arguments)
                _give(process, pending)
            case WatcherCall(name, arguments):
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
    if process.run is not None:
        process.child.send(process.run.trial)


def trial_main(
    parent: Parent, open_engine: Callable[[], Engine], callbacks: Sequence[ImportedCallback]
) -> None:
    """Run or check the received trials until the parent ends this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as opened:
        try:
            pool = opened.enter_context(open_engine())
        except EsbenchError as error:  # of a cluster that has changed
            parent.send(_sendable(error))
            return
        pool.notice = lambda text: parent.send(Notice(text))
        pool.start()
        while True:
            try:
                match parent.receive():
                    case Trial() as trial:
                        outcome = run_trial(trial, pool, Relay(parent.send), callbacks)
                        parent.send(WatcherCall("trial_ended", outcome))
                    case Away(trial):
                        _run_away(trial, parent, pool, callbacks)
                    case SpecCheck() as work:
                        parent.send(SpecChecked(work.spec.hash, _found(work, pool)))
            except (KeyboardInterrupt, ParentGoneError):
                raise
            except BaseException as error:  # of user code, which may raise anything
                parent.send(_sendable(error))


def _found(work: SpecCheck, pool: Engine) -> EsbenchError | None:
    """The error that a check has found, if any."""
    try:
        check_spec(work.spec, work.is_new, pool)
    except (KeyboardInterrupt, ParentGoneError):
        raise
    except BaseException as error:  # of user code, which may raise anything
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
    trial: Trial, parent: Parent, pool: Engine, callbacks: Sequence[ImportedCallback]
) -> None:
    """Run a trial whose folder only the other end of the messages can reach."""
    with MessageRecorder(parent) as recorder:
        try:
            outcome = attempt(
                trial, pool, recorder, recorder.begin, Relay(recorder.send), callbacks
            )
        except DamagedTrialError as error:  # as in ``run_trial``
            recorder.fail(f"{error}\n")
            outcome = "failed", str(error)
        recorder.send(WatcherCall("trial_ended", outcome))


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the next one must not interrupt saving
    raise KeyboardInterrupt
