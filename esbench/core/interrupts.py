"""Holds Ctrl-C back while a change that must be complete is being made."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker


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


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread and in the processes that start in the block."""
    # Starting the tracker would unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
