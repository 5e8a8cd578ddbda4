"""The end of a process with user code, which can neither cause nor delay it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Final, NoReturn

PATIENCE: Final = 5.0  # seconds for the threads and child processes that user code has left
leave: Final = os._exit


@contextlib.contextmanager
def exit_is_an_error() -> Iterator[None]:
    """Let ``os._exit`` raise ``SystemExit`` in this process, so that user code cannot end it.

    Processes that user code forks are not affected, and neither is ``leave``.
    """
    owner = os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


def end_soon(code: int) -> None:
    """End this process with an exit code, unless it has ended after ``PATIENCE`` seconds.

    Call it last. Python itself waits for threads and child processes that are no daemons.
    """

    def end() -> None:
        time.sleep(PATIENCE)
        leave(code)

    threading.Thread(target=end, name="end", daemon=True).start()
