"""Results of episodes: returns, lengths, observation moments and behaviours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from esbench.arrays import Matrix, Vector
from esbench.policies.normalization import Moments, ObservationStatistics
from esbench.rollouts.jobs import CENTER, Task


@final
class EpisodeResult(NamedTuple):
    """The result of one episode.

    Attributes:
        task: the episode.
        total: the undiscounted return without shift; NaN if an action or reward was not finite.
        length: the number of steps.
        moments: count, sum and sum of squares of the observations about the mean of the
            normaliser, or None if not gathered.
        behavior: the behaviour, [D], or None if not recorded.
    """

    task: Task
    total: float
    length: int
    moments: Moments | None
    behavior: Vector | None = None


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """The results of many episodes, in task order.

    Attributes:
        returns: [members, episodes], NaN where an action or reward was not finite.
        lengths: [members, episodes] in steps.
        center_returns, center_lengths: [episodes]; empty if the centre did not play.
        moments: of the observations of each member's episodes; empty if not gathered.
        behaviors: [members, D], the mean over a member's episodes; D = 0 if not recorded.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    center_returns: npt.NDArray[np.float64]
    center_lengths: npt.NDArray[np.int64]
    moments: list[Moments]
    behaviors: Matrix

    def joined(self, more: Episodes) -> Episodes:
        """These episodes followed by those of further members."""
        return Episodes(
            np.concatenate([self.returns, more.returns]),
            np.concatenate([self.lengths, more.lengths]),
            np.concatenate([self.center_returns, more.center_returns]),
            np.concatenate([self.center_lengths, more.center_lengths]),
            self.moments + more.moments,
            np.concatenate([self.behaviors, more.behaviors]),
        )

    def merge_into(self, statistics: ObservationStatistics, shift: Vector) -> None:
        """Add the observations to running statistics, in member order.

        Episodes with a return or an observation that is not finite are left out. The order does
        not depend on the order of arrival, so the bits do not either.
        """
        for total, moments in zip(self.returns.ravel().tolist(), self.moments, strict=True):
            if np.isfinite(total) and np.isfinite(moments[2]).all():
                statistics.merge(moments, shift)


def collect(tasks: Sequence[Task], results: dict[Task, EpisodeResult]) -> Episodes:
    """The results of ``tasks`` as arrays, in the order of ``tasks``."""
    ordered = [results[task] for task in tasks]
    members = [r for r in ordered if r.task.member != CENTER]
    center = [r for r in ordered if r.task.member == CENTER]
    episodes = 1 + max((task.episode for task in tasks), default=0)
    return Episodes(
        returns=np.array([r.total for r in members]).reshape(-1, episodes),
        lengths=np.array([r.length for r in members], dtype=np.int64).reshape(-1, episodes),
        center_returns=np.array([r.total for r in center]),
        center_lengths=np.array([r.length for r in center], dtype=np.int64),
        moments=[r.moments for r in members if r.moments is not None],
        behaviors=_mean_behaviors([r.behavior for r in members], episodes),
    )


def _mean_behaviors(behaviors: list[Vector | None], episodes: int) -> Matrix:
    """The mean behaviour of each member, [members, D]; episodes are added in order."""
    given = [behavior for behavior in behaviors if behavior is not None]
    rows = np.array(given).reshape(len(behaviors), -1) if given else np.empty((len(behaviors), 0))
    total = np.zeros((len(rows) // episodes, rows.shape[1]))
    for episode in range(episodes):
        total += rows[episode::episodes]
    return total / episodes
