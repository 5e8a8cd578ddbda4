"""Standard streams, signals, limits, settings that threads share, and the end of the process."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NoReturn, TextIO, final

from esbench.core.clock import within
from esbench.core.errors import LIMITS, LimitError

STANDARD: Final = (0, 1, 2)
SPARE: Final = 64  # descriptors for short uses
# Held by a thread that changes environment variables for a while, or copies them.
ENVIRON: Final = threading.RLock()
PATIENCE: Final = 5.0  # seconds for the threads and child processes that user code has left


@final
class _Stream(io.FileIO):
    """A standard stream; after an error, everything is dropped and the error is kept."""

    error: OSError | None = None

    def write(self, data: object) -> int:
        """Write bytes, or drop them after an error."""
        content = memoryview(data).cast("B")  # type: ignore[arg-type]
        try:
            return super().write(content)
        except OSError as error:
            self.error = error
            _discard(self.fileno())
            return len(content)


def reserve_descriptors(more: int) -> None:
    """Raise the soft limit of open files, if that is needed, so that this many more fit.

    LimitError if the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError):  # there is no such folder
        needed = sum(1 for _ in Path("/dev/fd").iterdir()) + more + SPARE
        if soft != resource.RLIM_INFINITY and soft < needed:
            if hard != resource.RLIM_INFINITY and hard < needed:
                raise LimitError(
                    f"{needed} open files are needed, at most {hard} allowed: {LIMITS}"
                )
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def occupy_streams() -> None:
    """Open ``/dev/null`` in the place of closed standard streams.

    Without this, the next file or pipe that is opened would be a standard stream. Call it before
    any file is opened.
    """
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            _discard(number)


def open_streams() -> None:
    """Occupy closed standard streams, and let standard output and standard error never fail.

    Streams that something else has replaced stay as they are.
    """
    occupy_streams()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None or _is_plain(stream, number):
            setattr(sys, name, _forgiving(stream, number))


def output_error() -> OSError | None:
    """The error of standard output, if something was lost that its reader still waits for.

    That is a full disk, for example, but no reader that has closed the stream.
    """
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.flush()
    raw = _raw(sys.stdout)
    error = raw.error if isinstance(raw, _Stream) else None
    return None if isinstance(error, BrokenPipeError) else error


def _is_plain(stream: TextIO, number: int) -> bool:
    """Whether a stream is the interpreter's own."""
    raw = _raw(stream)
    return type(raw) is io.FileIO and raw.fileno() == number


def _raw(stream: TextIO) -> object:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)  # an unbuffered stream has no buffer between


def _forgiving(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.flush()
    raw = _Stream(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors="backslashreplace",  # for names that are not valid Unicode
        line_buffering=number == 2 or raw.isatty(),
    )


def _discard(number: int) -> None:
    """Open ``/dev/null`` as the stream of this number."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)


_interrupts: list[int] = []  # that ``interrupt`` has handled


def interrupt(number: int, _: object) -> NoReturn:
    """Handle a signal: raise KeyboardInterrupt, and remember it."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def is_interrupted() -> bool:
    """Whether ``interrupt`` was called; user code can swallow or replace what it raises."""
    return bool(_interrupts)


def end_if_interrupted() -> None:
    """Raises KeyboardInterrupt if ``interrupt`` was called."""
    if _interrupts:
        raise KeyboardInterrupt


def handle_interrupts() -> None:
    """Let Ctrl-C, unless it is ignored, and the termination signal interrupt this process."""
    _interrupts.clear()
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)


@contextlib.contextmanager
def interrupts_delayed() -> Iterator[None]:
    """Delay Ctrl-C, and a termination signal that Python handles, until the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    arrived: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    try:
        with contextlib.ExitStack() as restored:  # also if a signal arrives in between
            for number, handler in handlers.items():
                restored.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _: arrived.append(number))
            yield
    finally:
        if arrived:
            handlers[signal.Signals(arrived[0])](arrived[0], None)


@final
class Jointly:
    """A change of the process that several threads make together.

    The first one makes it and the last one undoes it. Each for itself would restore what another
    one has changed.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change = change
        self._lock = threading.RLock()
        self._made = contextlib.ExitStack()
        self._threads = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """A block with the change."""
        with self._lock:
            if not self._threads:
                self._made.enter_context(self._change())
            self._threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self._made.close()


def end_soon(code: int) -> None:
    """End this process with an exit code, unless it has ended after ``PATIENCE`` seconds.

    Call it last. Python itself waits for threads and child processes that are no daemons.
    """

    def end() -> None:
        for seconds in within(PATIENCE):
            time.sleep(seconds)
        os._exit(code)

    try:
        threading.Thread(target=end, name="end", daemon=True).start()
    except RuntimeError:  # there are too many
        os._exit(code)
