"""Child processes that exchange messages with their parent over a pipe.

A child ignores Ctrl-C, because its parent decides what to do, and ends when its parent is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, final

from esbench.core.errors import UsageError
from esbench.core.process import end_soon, interrupts_blocked, occupy_streams, open_streams
from esbench.core.processor import SINGLE_THREAD

UNGUARDED: Final = 78  # exit code of a child whose main module starts children


@final
class ParentGoneError(BaseException):
    """The parent has closed the connection; not an error that an environment can raise."""


@final
class Parent:
    """The parent of this process, as the child sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrivals = select.poll()  # faster than Connection.poll
        self._arrivals.register(connection.fileno(), select.POLLIN)

    def send(self, message: object) -> None:
        """Send a message, which must be picklable."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise ParentGoneError from error

    def receive(self) -> Any:
        """Wait for the next message."""
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise ParentGoneError from error

    def wait(self) -> None:
        """Wait until ``receive`` returns at once."""
        self._arrivals.poll()

    def has_message(self) -> bool:
        """Whether ``receive`` returns at once."""
        return bool(self._arrivals.poll(0))


@final
class Child:
    """A child process, as its parent sees it.

    Attributes:
        death: a file descriptor that becomes readable when the child dies.
    """

    def __init__(self, main: Callable[..., None], *arguments: object, daemon: bool = True) -> None:
        """Start a process that runs ``main(parent, *arguments)``; all must be picklable.

        A daemon ends with this process and has no children itself.
        """
        occupy_streams()  # otherwise the pipe could be one of them
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_run_child, args=(theirs, main, arguments), daemon=daemon
        )
        with interrupts_blocked(), _importable_main():
            try:
                self.process.start()
            except RuntimeError:  # this is a child itself, which imports the user's script
                raise SystemExit(UNGUARDED) from None
            self.death = _death_of(self.process)
            ours = socket.socket(fileno=os.dup(self.connection.fileno()))
            pipe = ours, os.dup(self.death)
            threading.Thread(target=_shut_down, args=pipe, daemon=True).start()
        theirs.close()

    def send(self, message: object) -> None:
        """Send a message; ignored by a dead child, which ``receive`` reports."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Wait for the next message; None if the child is dead and has sent all that it could."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # it died between two messages, or in the middle of one
            return None

    def exit_code(self) -> int | None:
        """Wait until the child has died and return its exit code."""
        self.process.join()
        return self.process.exitcode

    def require_guard(self) -> None:
        """Raises UsageError if the child has died because the user's script starts processes."""
        if self.exit_code() == UNGUARDED:
            raise UsageError(
                "the worker processes import this script: put the training code below "
                "if __name__ == '__main__': (classes and registrations stay above it)"
            )

    def cause_of_death(self) -> str:
        """Wait until the child has died and describe its exit code."""
        code = self.exit_code()
        if code is None or code >= 0:
            return f"exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"signal {signal.Signals(-code).name}{memory}"


def require_main_process() -> None:
    """End a child that is running the user's script, which it should import; see ``require_guard``.

    A child that starts processes ends likewise, but a lock, say, would stop it with another error.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def wait_for(children: Sequence[Child], seconds: float | None = None) -> list[Child]:
    """Wait until some of the children have sent a message or died, and return these.

    With ``seconds``, none may have done so by then.
    """
    handles: dict[Any, Child] = {}
    for child in children:
        handles[child.connection] = handles[child.death] = child
    return list(dict.fromkeys(handles[handle] for handle in wait(list(handles), seconds)))


def end(children: Sequence[Child], patience: float | None = None) -> None:
    """Terminate children; those that still run after ``patience`` seconds each are killed."""
    try:
        for child in children:
            child.process.terminate()
        for child in children:
            wait([child.death], patience)
    finally:  # even if an interrupt ends the waiting
        for child in children:
            child.process.kill()
            child.process.join()
            child.process.close()
            child.connection.close()
            os.close(child.death)


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Set ``SINGLE_THREAD`` for the processes that start in the block."""
    before = {name: os.environ[name] for name in SINGLE_THREAD if name in os.environ}
    os.environ.update(SINGLE_THREAD)
    try:
        yield
    finally:
        for name in SINGLE_THREAD:
            del os.environ[name]
        os.environ.update(before)


def _run_child(
    connection: Connection, main: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    open_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = 1
    try:
        with contextlib.suppress(ParentGoneError):
            main(Parent(connection), *arguments)
        code = 0
    finally:
        end_soon(code)


@contextlib.contextmanager
def _importable_main() -> Iterator[None]:
    """A child imports the file of the main module; a script from standard input has none."""
    main = vars(sys.modules["__main__"])
    file = main.get("__file__")
    if file != "<stdin>":
        yield
        return
    del main["__file__"]
    try:
        yield
    finally:
        main["__file__"] = file


def _death_of(process: SpawnProcess) -> int:
    """A descriptor of a process itself: its pipes stay open while processes that it started run."""
    assert process.pid is not None, "start it first"
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # the kernel or its sandbox has none
        return os.dup(process.sentinel)


def _shut_down(connection: socket.socket, death: int) -> None:
    """Shut a pipe down when the child dies: processes that it started may hold the other end.

    What the child has sent can still be received.
    """
    with connection:
        wait([death])
        os.close(death)
        connection.shutdown(socket.SHUT_RDWR)


def _end_with_parent() -> None:
    """End this process at once when its parent is gone, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child process"
    wait([parent.sentinel])
    os._exit(1)
