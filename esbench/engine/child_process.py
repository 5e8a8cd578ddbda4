"""Child processes that exchange messages with their parent over a pipe.

A child ignores Ctrl-C, because its parent decides what to do, and ends when its parent is gone. It
leads a group of processes, which holds those that user code starts in it, and they end with it.

A child starts with a safe path: without the current folder, in which a file may have the name of a
module of Python. Then it has the path of its parent, with Python's own modules first.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import process, spawn
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, final

import esbench
from esbench.core import user_code
from esbench.core.clock import join
from esbench.core.errors import LIMITS, LimitError, UsageError, limit_error
from esbench.core.linux import death_of
from esbench.core.process import (
    ENVIRON,
    PATIENCE,
    end_soon,
    occupy_streams,
    open_streams,
    reserve_descriptors,
)

# The package is loaded from its file, because the path of the child may have another one.
START: Final = """
import sys
from importlib import util
spec = util.spec_from_file_location("esbench", {package!r})
sys.modules["esbench"] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from esbench.engine.child_process import run_child
run_child({descriptor})
"""
SAME_HASHES: Final = {"PYTHONHASHSEED": "0"}  # sets of strings have one order in all children
DESCRIPTORS: Final = 2  # of a child, in its parent
GRACE: Final = 1.0  # seconds from SIGTERM to SIGKILL, for the processes that a child has left
SEND_SECONDS: Final = 60  # until a child that does not read a message is killed
UNGUARDED: Final = 78  # exit code of a child whose main module starts children
LIMITED: Final = 71  # exit code of a child that a limit of the machine has kept from starting


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
        owner: the process that has started it.
        watcher: ends when the child and what it started have ended.
    """

    def __init__(
        self,
        main: Callable[..., None],
        *arguments: object,
        variables: Mapping[str, str] | None = None,
        imports_main: bool = True,
    ) -> None:
        """Start a process that runs ``main(parent, *arguments)``; all must be picklable.

        It has the environment variables of this process, ``SAME_HASHES`` and ``variables``, and
        ``imports_main``, the user's script, unless that is not wanted.

        LimitError if the machine refuses a further process.
        """
        self.owner = os.getpid()
        occupy_streams()  # otherwise the pipe could be one of them
        preparation, call = _preparation(imports_main), pickle.dumps((main, arguments))
        with ENVIRON:
            environment = {**os.environ, **SAME_HASHES, **(variables or {})}
        try:
            self._start(main.__name__, environment)
        except (OSError, RuntimeError) as error:
            raise limit_error(error, "start a process") or error from None
        self.send((self.owner, main.__module__, preparation, call))

    def _start(self, name: str, environment: Mapping[str, str]) -> None:
        reserve_descriptors(DESCRIPTORS)
        with contextlib.ExitStack() as failed:
            self.connection, theirs = multiprocessing.Pipe()
            failed.enter_context(self.connection)
            ours = failed.enter_context(socket.socket(fileno=os.dup(self.connection.fileno())))
            limit = struct.pack("ll", SEND_SECONDS, 0)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            with theirs:
                code = START.format(package=esbench.__file__, descriptor=theirs.fileno())
                flags = [*subprocess._args_from_interpreter_flags(), "-P"]  # type: ignore[attr-defined]
                self.process = subprocess.Popen(
                    [spawn.get_executable(), *flags, "-c", code, name],  # for ps
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            failed.enter_context(self.process)
            failed.callback(self.process.kill)
            self.watcher = threading.Thread(target=_watch, args=(self.process, ours), daemon=True)
            self.watcher.start()
            failed.pop_all()

    def send(self, message: object) -> None:
        """Send a message; ignored by a dead child, which ``receive`` reports.

        UsageError in a process that this one has forked.
        """
        if os.getpid() != self.owner:
            raise UsageError(
                "this trainer has the worker processes of the process that made it; expected "
                "one that is made in the process that trains"
            )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                self.connection.send(message)
            except BlockingIOError:
                self.process.kill()

    def receive(self) -> Any:
        """Wait for the next message; None if the child is dead and has sent all that it could."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # it died between two messages, or in the middle of one
            return None

    def exit_code(self) -> int:
        """Wait until the child and what it started have ended and return its exit code.

        A child that has closed its pipe, but does not end, is killed.
        """
        if not join([self.watcher], PATIENCE):
            self.process.kill()
            join([self.watcher], PATIENCE)
        code = self.process.returncode
        return -signal.SIGKILL if code is None else code

    def require_start(self) -> None:
        """Raises UsageError if a dead child could not start, so that another one cannot either.

        That is because the user's script starts processes, or because of a limit of the machine.
        """
        if self.exit_code() == LIMITED:
            raise LimitError(f"a process could not start: {LIMITS}")
        if self.exit_code() == UNGUARDED:
            raise UsageError(
                "the worker processes import this script: put the training code below "
                "if __name__ == '__main__': (classes and registrations stay above it)"
            )

    def cause_of_death(self) -> str:
        """Wait until the child has died and describe its exit code."""
        code = self.exit_code()
        if code >= 0:
            return f"exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"signal {signal.Signals(-code).name}{memory}"


def require_main_process() -> None:
    """End a child that is running the user's script, which it should import; see ``require_start``.

    A child that starts processes ends likewise, but a lock, say, would stop it with another error.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def wait_for(children: Sequence[Child], seconds: float | None = None) -> list[Child]:
    """Wait until some of the children have sent a message or died, and return these.

    With ``seconds``, none may have done so by then.
    """
    owners: dict[Any, Child] = {child.connection: child for child in children}
    return [owners[each] for each in wait(list(owners), seconds)]


def end(children: Sequence[Child]) -> None:
    """Terminate children; those that still run after ``PATIENCE`` seconds are killed.

    Those of another process are left to it.
    """
    children = [child for child in children if child.owner == os.getpid()]
    watchers = [child.watcher for child in children]
    try:
        for child in children:
            child.process.terminate()
        join(watchers, PATIENCE)
    finally:  # even if an interrupt ends the waiting
        for child in children:
            child.process.kill()
        join(watchers, PATIENCE)
        for child in children:
            child.connection.close()


def terminate(child: Child) -> None:
    """Terminate a child, whose messages are still received; kill it after ``PATIENCE`` seconds."""
    child.process.terminate()
    if not join([child.watcher], PATIENCE):
        child.process.kill()


def run_child(descriptor: int) -> None:
    """Do the work of a child; called first of all in its process."""
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    open_streams()
    parent, code = Parent(Connection(descriptor)), 1
    try:
        try:
            number, module, preparation, call = parent.receive()
            threading.Thread(target=_end_with_parent, args=(number,), daemon=True).start()
            _prepare(number, module, preparation)
            main, arguments = pickle.loads(call)  # noqa: S301
        except Exception as error:
            if limit_error(error) is None:
                raise
            code = LIMITED
        else:
            main(parent, *arguments)
            code = 0
    except ParentGoneError:
        os.killpg(0, signal.SIGKILL)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_soon(code)


def _preparation(imports_main: bool) -> dict[str, Any]:
    """What a child needs to import the modules of this process."""
    try:
        found = spawn.get_preparation_data("esbench")
    except RuntimeError:  # this is a child itself, which imports the user's script
        raise SystemExit(UNGUARDED) from None
    del found["authkey"]  # which only multiprocessing may send
    found["user_code"] = user_code.FOLDERS, user_code.TRUSTED
    if not imports_main or getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
        found.pop("init_main_from_path", None)
        found.pop("init_main_from_name", None)
    return found


def _prepare(parent: int, module: str, preparation: dict[str, Any]) -> None:
    """Make user code importable; its script is imported as multiprocessing does it."""
    if module.startswith("esbench."):  # with the safe path
        importlib.import_module(module)
    folders, trusted = preparation.pop("user_code")
    user_code.FOLDERS[:] = folders
    user_code.TRUSTED.update(trusted)
    library = str(Path(os.__file__).parent)
    preparation["sys_path"].sort(key=lambda path: path not in {library, f"{library}/lib-dynload"})
    current: Any = process.current_process()
    # User code may ask multiprocessing whether it runs in a child.
    told = process._ParentProcess("MainProcess", parent, death_of(parent))  # type: ignore[attr-defined]
    process._parent_process = told  # type: ignore[attr-defined]
    current._inheriting = True
    try:
        spawn.prepare(preparation)
    finally:
        del current._inheriting


def _watch(child: subprocess.Popen[bytes], connection: socket.socket) -> None:
    """Wait until a child dies, and end the processes that it started.

    They may hold the other end of its pipe, which is therefore shut down. What the child has sent
    can still be received.
    """
    child.wait()
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    with connection:
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # none is left
        for _ in range(50):
            os.killpg(child.pid, 0)
            time.sleep(GRACE / 50)
        os.killpg(child.pid, signal.SIGKILL)


def _end_with_parent(parent: int) -> None:
    """End this process and what it has started at once when its parent is gone."""
    death = death_of(parent)
    while os.getppid() == parent:
        wait([death], 1.0)
    os.killpg(0, signal.SIGKILL)
