"""Holds Ctrl-C back while a change that must be complete is being made."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator
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
    with _blocked(handlers):
        for number in handlers:
            signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        with _blocked(handlers):
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if arrived:
            handlers[signal.Signals(arrived[0])](arrived[0], None)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread and in the processes that start in the block."""
    # Starting the tracker would unblock the signal.
    resource_tracker.ensure_running()
    with _blocked({signal.SIGINT}):
        yield


@contextlib.contextmanager
def _blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
