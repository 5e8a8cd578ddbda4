"""Decides which trials run side by side, and with how many workers each.

A trial on all workers leaves them idle during its updates and at the end of each generation.
Therefore as many trials as divide the workers run at once; the remaining ones run one after the
other on all workers. The results do not depend on the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from esbench.errors import UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.units import counted

FEW_STEPS: Final = 200_000  # of all trials: too few to start more processes for


@final
@dataclass(frozen=True)
class Schedule:
    """How trials share the workers."""

    trials: int
    workers: int
    at_once: int
    side_by_side: int  # the first ones; the others follow one after the other on all workers
    reason: str  # why trials run one after the other, if they do

    @property
    def workers_each(self) -> int:
        """The number of workers of a trial that runs beside others."""
        return self.workers // self.at_once

    @property
    def words(self) -> str:
        """The schedule and its reason as text."""
        everybody = "all workers" if self.workers > 1 else "one worker"
        if self.at_once == 1:
            text = f"one trial after the other on {everybody}"
            return text if self.trials < 2 or self.workers < 2 else f"{text}, {self.reason}"
        each = "one worker" if self.workers_each == 1 else f"{self.workers_each} workers"
        text = f"{self.at_once} trials side by side with {each} each"
        rest = self.trials - self.side_by_side
        return f"{text}; the last {'one' if rest == 1 else rest} on {everybody}" if rest else text


@final
@dataclass(frozen=True)
class ClusterMode:
    """How a grid uses several nodes."""

    trials_on_nodes: bool  # otherwise, all nodes play the population of one trial after the other
    reason: str

    @property
    def words(self) -> str:
        """The mode and its reason as text."""
        trials = "each trial on one node", "each population across all nodes, one trial at a time"
        return f"{trials[not self.trials_on_nodes]}, {self.reason}"


def cluster_mode(specs: Sequence[TrialSpec], nodes: int) -> ClusterMode:
    """Decides how nodes share the trials that are not done; the results do not depend on it."""
    trials = len(specs)
    if any(spec.init_from is not None for spec in specs):
        return ClusterMode(False, "because init_from names a folder that other nodes cannot read")
    counts = f"{counted(trials, 'unfinished trial')} on {counted(nodes, 'node')}"
    if trials > nodes:
        return ClusterMode(True, f"because there are more trials than nodes ({counts})")
    return ClusterMode(False, f"because there are not more trials than nodes ({counts})")


def schedule(steps: Sequence[int], workers: int, at_once: int | None = None) -> Schedule:
    """The schedule of trials that are not done, whose budgets are ``steps``.

    By default, as many trials run ``at_once`` as divide the workers.

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
        return Schedule(trials, workers, at_once, trials if at_once > 1 else 0, "as requested")
    if sum(steps) < FEW_STEPS:
        return Schedule(trials, workers, 1, 0, "because the budgets are small")
    divisors = (n for n in range(2, min(trials, workers) + 1) if workers % n == 0)
    most = max(divisors, default=1)
    reason = f"because {trials} trials cannot share {workers} workers evenly"
    return Schedule(trials, workers, most, trials // most * most if most > 1 else 0, reason)
