"""How a trainer evaluates the populations of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt


@final
@dataclass(frozen=True)
class Growth:
    """The growth of a population within one generation, by its initial size each time.

    It ends with these environment steps and episodes, or with ``size_max`` members.
    """

    num_interactions: int = 0
    min_episodes: int = 0
    size_max: int | None = None

    def next_size(
        self, size: int, step: int, lengths: npt.NDArray[np.int64], latest: npt.NDArray[np.int64]
    ) -> int:
        """The size to which the population grows now; ``size`` if the generation is complete.

        It began with ``step`` members and has ``size`` now. ``lengths`` [size, episodes] are the
        steps of all episodes, ``latest`` those of the members that were added last.
        """
        # Members that fail before their first step would never make an interaction.
        needs_steps = lengths.sum() < self.num_interactions and latest.any()
        if not needs_steps and lengths.size >= self.min_episodes:
            return size
        grown = size + step
        return grown if self.size_max is None else max(size, min(grown, self.size_max))


@final
@dataclass(frozen=True)
class EvaluationPlan:
    """How the trainer evaluates the population that ``ask`` returns next, and the center.

    This is the extension point for algorithms that need more than one evaluation per generation:
    they replace their attribute ``plan``. The default plan suits all others.

    Attributes:
        probe: whether the members are only evaluated between two generations. The steps count as
            training steps, the observations are not counted, and telling the returns does not
            end the generation. All members play the same episodes, without action noise.
        episodes: episodes per member; None for the environment's number.
        lineage: the observation statistics that the members use and, unless they are a probe,
            update. An algorithm that searches from several centers has one lineage per center.
        center_lineage: the observation statistics that ``center`` uses.
        center_is_member: whether a new center is a member of the latest population. It keeps the
            observation statistics that it has played with, as those of ``center_lineage``.
        growth: how the population grows within a generation.
    """

    probe: bool = False
    episodes: int | None = None
    lineage: int = 0
    center_lineage: int = 0
    center_is_member: bool = False
    growth: Growth = Growth()
