"""The processes of one machine that run one trial at a time each, and their messages."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn, TypeAlias, final

from esbench.core.clock import join
from esbench.core.errors import EsbenchError, TrainingError, UsageError, limit_error
from esbench.core.escape import printable
from esbench.core.json_text import Json
from esbench.core.process import PATIENCE, interrupt, interrupts_delayed, is_interrupted
from esbench.engine.child_process import Child, Parent, ParentGoneError, end, terminate
from esbench.engine.engine import Engine
from esbench.experiment.run_trial import attempt, check_spec, run_trial
from esbench.experiment.trials import Start, Trial
from esbench.experiment.watchers import ImportedCallback
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord

TrialArguments: TypeAlias = tuple[Callable[[], Engine], Sequence[ImportedCallback]]
"""Of a trial process: what opens its engine, and callbacks."""


@final
class Away(NamedTuple):
    """Work: a trial whose folder the process cannot reach. A ``Trial`` is work, too."""

    trial: Trial


@final
class SpecCheck(NamedTuple):
    """Work: what ``check_spec`` needs; the answer is ``SpecChecked`` or an error."""

    spec: TrialSpec
    is_new: bool


@final
class SpecChecked(NamedTuple):
    """A check has found nothing."""


@final
class WatcherCall(NamedTuple):
    """A call of the ``Watcher``, made by the process of a trial."""

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
class Died(NamedTuple):
    """A trial process has died, or did not start."""

    cause: str


@final
class Relay:
    """A ``Watcher`` that sends the events of a trial to another process."""

    def __init__(self, send: Callable[[WatcherCall], None]) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda trial, *arguments: self._send(WatcherCall(name, arguments))


@final
class RemoteFolder:
    """Stands for the folder of a trial that another process has; a context manager.

    Every call but ``append`` waits until the other process has stored it, and the log so far.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._temporary = TemporaryDirectory(prefix="esbench-")
        self.path = Path(self._temporary.name)
        self._records_members = False

    def __enter__(self) -> RemoteFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        return partial(self._ask, name)

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

    def _ask(self, name: str, argument: Any) -> Any:
        log = self.path / "log.txt"
        if log.exists():
            self.send(Recorded("append_log", (log.read_bytes(),), asked=False))
            os.truncate(log, 0)
        self.send(Recorded(name, (argument,), asked=True))
        self._parent.wait()
        with interrupts_delayed():
            answer = self._parent.receive()
        if isinstance(answer, EsbenchError):
            raise answer
        return answer


def trial_main(
    parent: Parent, open_engine: Callable[[], Engine], callbacks: Sequence[ImportedCallback]
) -> None:
    """Do the received work until the parent ends this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as opened:
        try:
            pool = opened.enter_context(open_engine())
            pool.notice = lambda text: parent.send(Notice(text))
            pool.start()
        except EsbenchError as error:  # of a cluster that has changed, or a limit of the machine
            parent.send(_sendable(error))
            return
        while not is_interrupted():
            try:
                match parent.receive():
                    case Trial() as trial:
                        outcome = run_trial(trial, pool, Relay(parent.send), callbacks)
                        parent.send(WatcherCall("trial_ended", outcome))
                    case Away(trial):
                        with RemoteFolder(parent) as folder:
                            relay = Relay(folder.send)
                            outcome = attempt(trial, pool, folder, folder.begin, relay, callbacks)
                            folder.send(WatcherCall("trial_ended", outcome))
                    case SpecCheck(spec, is_new):
                        check_spec(spec, is_new, pool)
                        parent.send(SpecChecked())
            except (KeyboardInterrupt, ParentGoneError):
                raise
            except BaseException as error:  # of user code, which may raise anything
                parent.send(_sendable(error))


def _sendable(error: BaseException) -> EsbenchError:
    """An error that every process can load; its message is the traceback of an unexpected one."""
    error = limit_error(error) or error
    match error:
        case UsageError():
            return type(error)(str(error))
        case TrainingError():
            return TrainingError(str(error))
        case _:
            return TrainingError(printable("".join(traceback.format_exception(error))))


def _interrupt(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the next one must not interrupt saving
    interrupt(number, frame)


@final
class TrialServer:
    """The trial processes of a machine, in numbered places. Its methods are thread-safe.

    Every message is passed on once and in order, with the number of its place. The last one of a
    process is ``Died``.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._threads: list[threading.Thread] = []
        self._deaths: Counter[int] = Counter()  # messages of ``Died`` by place
        self._lock = threading.Lock()
        self._stopped = False

    def assign(self, place: int, deaths: int, arguments: TrialArguments, work: object) -> None:
        """Send work to the process of a place, which starts with ``arguments`` if there is none.

        ``deaths`` are those of the place that the sender knows of. If there are more, the work is
        dropped: the sender will take it for work of the process that has died, and send it again.
        """
        try:
            with self._lock:
                if deaths < self._deaths[place]:
                    return
                if self._stopped:
                    raise TrainingError("the trials are being stopped")
                if place not in self._children:
                    child = Child(trial_main, *arguments)
                    thread = threading.Thread(target=self._pass_on, args=(place, child))
                    thread.daemon = True
                    try:
                        thread.start()
                    except RuntimeError:
                        end([child])
                        raise
                    self._children[place] = child
                    self._threads.append(thread)
                self._children[place].send(work)
        except Exception as error:
            if limit := limit_error(error):
                self._arrived.put((place, limit))
                return
            with self._lock:
                self._deaths[place] += 1
            self._arrived.put((place, Died(f"{type(error).__name__}: {error}")))

    def answer(self, place: int, answer: object) -> None:
        """Send the answer to a message to the process of a place, if it still runs."""
        with self._lock:
            if place in self._children:
                self._children[place].send(answer)

    def receive(self, seconds: float | None = None) -> list[tuple[int, Any]]:
        """Wait for messages, at most so long, and return all that have arrived."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._arrived.get(timeout=seconds))
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def end(self, place: int) -> None:
        """Let the process of a place, if any, save its trial and end; kill it if it does not."""
        with self._lock:
            if child := self._children.get(place):
                threading.Thread(target=terminate, args=(child,), daemon=True).start()

    def stop(self) -> None:
        """Let every process save its trial and end."""
        with self._lock:
            self._stopped = True
            for child in self._children.values():
                child.process.terminate()

    def close(self) -> None:
        """Wait until every process has ended; kill those that do not."""
        self.stop()
        try:
            join(self._threads, PATIENCE)
        finally:
            for place, child in list(self._children.items()):
                self._kill(place, child)
            join(self._threads, PATIENCE)

    def _kill(self, place: int, child: Child) -> None:
        with self._lock:
            if self._children.get(place) is child:
                child.process.kill()

    def _pass_on(self, place: int, child: Child) -> None:
        while (message := child.receive()) is not None:
            self._arrived.put((place, message))
        try:
            child.require_start()
        except UsageError as error:
            self._arrived.put((place, error))
        died = Died(child.cause_of_death())
        with self._lock:
            del self._children[place]
            self._deaths[place] += 1
            end([child])
        self._arrived.put((place, died))
