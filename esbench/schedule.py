"""Which trials run side by side, and on how many workers each.

A trial on all workers wastes the time in which they wait for its last episodes, and for its update;
trials side by side fill each other's gaps. So as many trials run at a time as the workers can be
divided among, and what is left in the end, which would leave workers without a trial, runs one
after the other on all of them. The results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from esbench.errors import UsageError


@final
@dataclass(frozen=True)
class Schedule:
    """How some trials share the workers.

    Attributes:
        trials, workers: how many there are.
        at_once: trials at a time; 1 if they run one after the other.
        side_by_side: how many of the trials run so, the first ones; the others follow, one after
            the other on all workers.
        asked_for: whether ``at_once`` is somebody's choice.
    """

    trials: int
    workers: int
    at_once: int
    side_by_side: int
    asked_for: bool = False

    @property
    def workers_each(self) -> int:
        """The workers of a trial that runs beside others."""
        return self.workers // self.at_once

    @property
    def words(self) -> str:
        """The choice and its reason in a sentence."""
        everybody = "all workers" if self.workers > 1 else "one worker"
        if self.at_once == 1:
            sentence = f"one trial after the other on {everybody}"
            if self.trials < 2 or self.workers < 2:
                return sentence
            shared = f"which {self.trials} trials cannot share evenly"
            return f"{sentence}, {'as asked for' if self.asked_for else shared}"
        each = "a worker each" if self.workers_each == 1 else f"{self.workers_each} workers each"
        sentence = f"{self.at_once} trials at a time on {each}, which fill each other's gaps"
        rest = self.trials - self.side_by_side
        if rest:
            sentence += f"; the last {'one' if rest == 1 else rest} on {everybody}"
        return sentence


def schedule(trials: int, workers: int, at_once: int | None = None) -> Schedule:
    """Return how ``trials`` that are not done share ``workers``.

    Args:
        trials: how many there are.
        workers: worker processes.
        at_once: trials at a time, for all of them; by default as many as divide the workers.

    Raises:
        UsageError: ``at_once`` is below 1 or above the number of workers.
    """
    if at_once is not None:
        if not 1 <= at_once <= workers:
            raise UsageError(
                f"at_once = {at_once}: expected at least 1, and at most the number of workers, "
                f"{workers}"
            )
        at_once = max(1, min(at_once, trials))
        beside = 0 if at_once == 1 else trials
        return Schedule(trials, workers, at_once, beside, asked_for=True)
    divisors = (n for n in range(2, min(trials, workers) + 1) if workers % n == 0)
    most = max(divisors, default=1)
    return Schedule(trials, workers, most, 0 if most == 1 else trials // most * most)
