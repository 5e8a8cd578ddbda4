"""Jobs for workers: the episodes of one generation or of one evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np

from esbench.algorithms.population import LowRankMember, Population
from esbench.core.arrays import Vector
from esbench.core.seeding import Purpose, episode_seed, stream
from esbench.grids.trial_spec import EpisodeSeeds
from esbench.policies.normalization import Normalizer

CENTER: Final = -1  # member number of the unperturbed policy


@final
class Task(NamedTuple):
    """One episode to play: the number of a member, or ``CENTER``, and of its episode."""

    member: int
    episode: int


def member_tasks(members: range, episodes: int) -> list[Task]:
    """The episodes of a range of members, in member order."""
    return [Task(member, episode) for member in members for episode in range(episodes)]


@final
@dataclass(frozen=True, eq=False)
class Job:
    """The episodes of one generation or of one evaluation; sent to workers."""

    seed: int  # of the trial
    generation: int  # selects the random streams, together with the purpose
    purpose: Purpose  # a training, probe or evaluation episode
    population: Population | None  # None if only the center plays
    center: Vector  # the parameters of the unperturbed policy, [P]
    episodes: int  # per member
    normalizer: Normalizer | None = None
    gather: bool = False  # the moments of the members' observations
    characterize: bool = False  # record the behaviors of the members
    max_steps: int | None = None  # per episode; None for the limit of the environment alone
    action_noise: float = 0.0  # standard deviation, on continuous actions
    episode_seeds: EpisodeSeeds = "fresh"  # which members share environment seeds

    def parameters(self, member: int) -> Vector:
        """The parameters of a member or of the center, [P]."""
        if member == CENTER or self.population is None:
            return self.center
        return self.population.member(member)

    def low_rank(self, member: int) -> LowRankMember | None:
        """A member as center and low-rank factors, or None if it has no such form."""
        if member == CENTER or self.population is None:
            return None
        return self.population.low_rank(member)

    def environment_seed(self, task: Task) -> int:
        """The environment seed of an episode."""
        if self.purpose is not Purpose.TRAINING_EPISODE:  # all members play the same episodes
            return episode_seed(self.seed, self.purpose, self.generation, task.episode)
        if self.episode_seeds == "shared":
            return episode_seed(self.seed, self.purpose, self.generation, 0, task.episode)
        if task.member == CENTER or self.population is None:
            return episode_seed(self.seed, Purpose.CENTER_EPISODE, self.generation, task.episode)
        owner = task.member
        if self.episode_seeds == "pair":
            owner = self.population.row(task.member)
        return episode_seed(self.seed, self.purpose, self.generation, owner, task.episode)

    def noise_stream(self, task: Task) -> np.random.Generator:
        """The stream of the action noise of an episode."""
        return stream(
            self.seed, Purpose.ACTION_NOISE, self.generation, task.member + 1, task.episode
        )
