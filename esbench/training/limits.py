"""How long trials may take: no part of their specification, as it changes no result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from esbench.errors import UsageError

HINT_SECONDS: Final = 60.0  # without an episode


@final
@dataclass(frozen=True)
class Limits:
    """The longest times of a trial, in seconds; None is no limit.

    Attributes:
        episode: without the end of an episode; loading and updates count too.
        trial: in this command; a trial that is resumed later has it again.

    Raises:
        UsageError: a limit is not a positive number.
    """

    episode: float | None = None
    trial: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            number = isinstance(seconds, int | float) and 0 < seconds < math.inf
            if not (number or seconds is None):
                raise UsageError(
                    f"{name}_timeout = {seconds!r}: expected a positive number of seconds"
                )

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self != UNLIMITED

    def exceeded(self, silent: float, total: float) -> str:
        """The limit that a trial exceeds, as a sentence; empty if it exceeds none.

        Args:
            silent: seconds since an episode ended.
            total: seconds since the trial started.
        """
        if self.trial is not None and total >= self.trial:
            return f"it was stopped after the trial timeout of {self.trial:g} s"
        if self.episode is not None and silent >= self.episode:
            return f"no episode ended within the episode timeout of {self.episode:g} s"
        return ""


UNLIMITED: Final = Limits()
