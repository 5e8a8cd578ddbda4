"""Measures the time that each part of a computation takes."""

from __future__ import annotations

import time
from typing import final


@final
class Stopwatch:
    """Adds up the seconds of each part between laps, in ``seconds``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begin a lap; the time since the last lap is not counted."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap or start to a part."""
        last, self._last = self._last, time.perf_counter()
        self.add({part: self._last - last})

    def add(self, seconds: dict[str, float]) -> None:
        """Add the seconds of another stopwatch."""
        for part, value in seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value

    def take(self) -> dict[str, float]:
        """Return the seconds so far and reset them."""
        taken, self.seconds = self.seconds, {}
        return taken
