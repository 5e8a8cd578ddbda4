"""The messages between a process that runs trials and the one that displays and stores them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, final

from esbench.core.arrays import State
from esbench.core.errors import EsbenchError
from esbench.core.json_text import Json
from esbench.core.process import interrupts_delayed
from esbench.engine.child_process import Parent
from esbench.experiment.trial_recorder import Start
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec
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
    """A call of a ``FolderRecorder``. If ``asked``, its result or error is sent back."""

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
    """A watcher that sends the events of a trial to another process."""

    def __init__(self, send: Callable[[WatcherCall], None]) -> None:
        self._send = send

    def trial_started(self, trial: Trial, resumed_at: int) -> None:
        """A trial starts, or is resumed after generation ``resumed_at``."""
        self._send(WatcherCall("trial_started", (resumed_at,)))

    def generation_done(self, trial: Trial, record: GenerationRecord) -> None:
        """A generation was recorded."""
        self._send(WatcherCall("generation_done", (record,)))

    def episodes_done(self, trial: Trial, done: int, total: int) -> None:
        """Some episodes have ended."""
        self._send(WatcherCall("episodes_done", (done, total)))

    def scoring_started(self, trial: Trial, episodes: int) -> None:
        """Training has ended."""
        self._send(WatcherCall("scoring_started", (episodes,)))


@final
class MessageRecorder:
    """A ``TrialRecorder`` that sends everything to the process that has the trial's folder.

    A context manager. Every call but ``append`` waits until the other process has stored it.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._temporary = TemporaryDirectory(prefix="esbench-")
        self.folder = Path(self._temporary.name)
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
        log = self.folder / "log.txt"
        if log.exists():
            with log.open("rb") as file:
                file.seek(self._logged)
                new = file.read()
            self._logged += len(new)
            self.send(Recorded("log", (new,), asked=False))
