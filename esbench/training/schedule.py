"""Which trials run side by side, and on how many workers each.

A trial on all workers wastes the time in which they wait for its last episodes, and for its update;
trials side by side fill each other's gaps. So as many trials run at a time as the workers can be
divided among, and what is left in the end, which would leave workers without a trial, runs one
after the other on all of them. The results are the same.

Measured in turn on two cores: `esbench run quick`, 900,000 steps, takes 48 and 50 s side by side,
and 60 and 61 s one after the other; four trials of CartPole with 20,000 steps each take 15 and 18 s
side by side, for the processes have to start, and 13 and 14 s one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from esbench.errors import UsageError

FEW_STEPS: Final = 200_000  # of all trials: they are over before more processes have started


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
        few_steps: whether there are too few steps for it to matter.
    """

    trials: int
    workers: int
    at_once: int
    side_by_side: int
    asked_for: bool = False
    few_steps: bool = False

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
            if self.asked_for:
                return f"{sentence}, as asked for"
            if self.few_steps:
                return f"{sentence}, because there are few steps to make"
            return f"{sentence}, which {self.trials} trials cannot share evenly"
        each = "a worker each" if self.workers_each == 1 else f"{self.workers_each} workers each"
        sentence = f"{self.at_once} trials at a time on {each}, which fill each other's gaps"
        rest = self.trials - self.side_by_side
        if rest:
            sentence += f"; the last {'one' if rest == 1 else rest} on {everybody}"
        return sentence


def schedule(steps: Sequence[int], workers: int, at_once: int | None = None) -> Schedule:
    """Return how trials that are not done share ``workers``.

    Args:
        steps: the budget of each trial.
        workers: worker processes.
        at_once: trials at a time, for all of them; by default as many as divide the workers.

    Raises:
        UsageError: ``at_once`` is below 1 or above the number of workers.
    """
    trials = len(steps)
    if at_once is not None:
        if not 1 <= at_once <= workers:
            raise UsageError(
                f"at_once = {at_once}: expected at least 1, and at most the number of workers, "
                f"{workers}"
            )
        at_once = max(1, min(at_once, trials))
        beside = 0 if at_once == 1 else trials
        return Schedule(trials, workers, at_once, beside, asked_for=True)
    if sum(steps) < FEW_STEPS:
        return Schedule(trials, workers, 1, 0, few_steps=True)
    divisors = (n for n in range(2, min(trials, workers) + 1) if workers % n == 0)
    most = max(divisors, default=1)
    return Schedule(trials, workers, most, 0 if most == 1 else trials // most * most)
