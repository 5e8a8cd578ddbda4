"""One thread for the numerical libraries of this process, as in a worker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_TURNS: Final = threading.RLock()


@contextlib.contextmanager
def one_thread(libraries: ThreadpoolController) -> Iterator[None]:
    """A block in which these libraries use one thread: with several, BLAS can round otherwise.

    The limit is a setting of the process, so blocks of several Python threads take turns.
    """
    with _TURNS, libraries.limit(limits=1):
        yield


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch to this thread, because idle torch threads spin on cores that workers need."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
