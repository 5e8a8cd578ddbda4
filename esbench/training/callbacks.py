"""Callbacks of a trainer: each receives every generation record and may stop training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True)
class Stop:
    """Returned by a callback to end training; ``reason`` is stored in the result."""

    reason: str


Callback: TypeAlias = Callable[[GenerationRecord], Stop | None]
"""Called with every generation record, in order; returns ``Stop("reason")`` to end training."""


@final
class TargetReturn:
    """A callback that stops when the mean return of the centre reaches a target.

    Use a new one for each training run. A resumed run must first call it with the earlier records,
    as ``Trainer`` does.
    """

    def __init__(self, target: float, window: int = 5) -> None:
        """Stop when the mean over the last ``window`` generations reaches ``target``."""
        self.target = target
        self.window = window
        self._recent: list[float] = []

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """``Stop`` if the target is reached, otherwise None."""
        self._recent = [*self._recent, record.center_return][-self.window :]
        mean = sum(self._recent) / len(self._recent)
        if len(self._recent) == self.window and mean >= self.target:
            return Stop(f"the centre's return reached {self.target:g} (mean {mean:.1f})")
        return None
