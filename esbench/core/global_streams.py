"""The random generators that a process has once: those of random, numpy.random and torch.

They are replaced for a while by one thread at a time.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

# Held while code draws from the generators, which are restored afterwards.
STREAMS: Final = threading.RLock()


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed the global generators inside the block, and restore them afterwards.

    That of torch is left alone if torch is not imported.
    """
    with STREAMS:
        torch = sys.modules.get("torch")
        before = random.getstate(), np.random.get_state()  # noqa: NPY002, code of others draws from it
        of_torch = None if torch is None else torch.get_rng_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        if torch is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            if torch is not None:
                torch.set_rng_state(of_torch)


@contextmanager
def torch_stream() -> Iterator[None]:
    """A block that may seed torch's global generator and draw from it."""
    import torch

    with STREAMS, torch.random.fork_rng(devices=[]):
        yield
