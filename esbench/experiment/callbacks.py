"""Callbacks of a trainer: called with every generation record, in order; may stop training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from esbench.core.errors import UsageError, UserCodeError, require_finite, require_integer, shown
from esbench.core.registry import import_object
from esbench.core.settings import MOST
from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True)
class Stop:
    """Returned by a callback to end training; ``reason`` is stored in the result.

    UsageError if the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise UsageError(f"Stop({shown(self.reason)}): expected the reason as text")


Callback: TypeAlias = Callable[[GenerationRecord], Stop | None]


def call_checked(callback: Callback, record: GenerationRecord) -> Stop | None:
    """What a callback returns for a record; UserCodeError if it is neither ``Stop`` nor None."""
    with contextlib.chdir("."):  # user code may change the current folder
        found = callback(record)
    if found is not None and not isinstance(found, Stop):
        raise UserCodeError(
            f"the callback {getattr(callback, '__qualname__', callback)} returned {found!r}; "
            "expected None or esbench.Stop(reason)"
        )
    return found


@final
@dataclass(frozen=True)
class ImportedCallback:
    """The function "package.file:function", which every process imports for itself.

    UsageError if there is none.
    """

    name: str

    def __post_init__(self) -> None:
        if ":" not in self.name or not callable(import_object("callback", self.name)):
            raise UsageError(f"callback {self.name!r}: expected package.file:function")

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """Call the function."""
        return call_checked(import_object("callback", self.name), record)


@final
class TargetReturn:
    """Stops when the mean return of the center over ``window`` generations reaches a target.

    Use a new one for each training run. A resumed run must first call it with the earlier records,
    as ``Trainer`` does.

    UsageError if the target is not finite or the window is below 1.
    """

    def __init__(self, target: float, window: int = 5) -> None:
        require_finite("target", target)
        require_integer("window", window, 1, MOST)
        self.target = target
        self.window = window
        self._recent: list[float] = []

    def __call__(self, record: GenerationRecord) -> Stop | None:
        """``Stop`` if the target is reached, otherwise None."""
        self._recent = [*self._recent, record.center_return][-self.window :]
        mean = sum(self._recent) / len(self._recent)
        if len(self._recent) == self.window and mean >= self.target:
            return Stop(f"{self._reason} (mean {mean:.1f})")
        return None

    def stopped(self, reason: str) -> bool:
        """Whether this is the reason of a stop at this target."""
        return reason.startswith(f"{self._reason} (")

    @property
    def _reason(self) -> str:
        return f"the center's return reached {self.target:g}"
