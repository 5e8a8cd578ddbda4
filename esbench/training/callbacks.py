"""Callbacks of a trainer: each sees every generation's record and may stop training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True)
class Stop:
    """A callback's answer that ends training; ``reason`` is kept in the result."""

    reason: str


Callback: TypeAlias = Callable[[GenerationRecord], Stop | None]
"""Sees every generation's record, in order; returns ``Stop("why")`` to end training."""


@final
class TargetReturn:
    """Early stopping on a target: the centre's mean return over the last generations.

    A callback; a new one is needed for each training run. Resumed runs must replay the records of
    the generations before, which ``Trainer`` does.
    """

    def __init__(self, target: float, window: int = 5) -> None:
        """Stop when the mean of ``window`` generations reaches ``target``."""
        self.target = target
        self.window = window
        self._recent: list[float] = []

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """Return ``Stop`` once the target is reached."""
        self._recent = [*self._recent, record.center_return][-self.window :]
        mean = sum(self._recent) / len(self._recent)
        if len(self._recent) == self.window and mean >= self.target:
            return Stop(f"the centre's return reached {self.target:g} (mean {mean:.1f})")
        return None
