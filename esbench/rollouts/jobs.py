"""What is to be played: the environment and policy of a trial, and the episodes of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from esbench.algorithms.population import LowRankMember, Population
from esbench.arrays import Vector
from esbench.environments.backends.base import BACKENDS, Backend
from esbench.environments.backends.select import backend_name
from esbench.environments.behaviors.base import Behavior, behavior_class
from esbench.errors import UsageError
from esbench.grids.trial_spec import EnvironmentSpec, EpisodeSeeds, PolicySpec
from esbench.policies.base import POLICIES, Policy
from esbench.policies.normalization import Normalizer
from esbench.policies.spaces import Actions, Array, Observations, Space
from esbench.seeding import Purpose, episode_seed, stream
from esbench.settings import parse

CENTER = -1  # the "member" that is the unperturbed policy


class Task(NamedTuple):
    """One episode to play: which member (or ``CENTER``), and which of its episodes."""

    member: int
    episode: int


def member_tasks(members: range, episodes: int) -> list[Task]:
    """Return the episodes of a range of members, in member order."""
    return [Task(member, episode) for member in members for episode in range(episodes)]


@final
@dataclass(frozen=True, eq=False)
class Job:
    """The episodes of one generation, or of one evaluation: a recipe that travels to workers.

    Attributes:
        seed: the trial's seed.
        generation: names the random streams, with ``purpose``.
        purpose: TRAINING_EPISODE, PROBE_EPISODE, or EVALUATION_EPISODE for the held-out ones.
        population: the members' recipe; None if only the centre plays.
        center: [P], the unperturbed policy.
        episodes: episodes a member.
        normalizer: frozen observation normaliser, or None.
        gather: gather the observations' moments of the members' episodes.
        characterize: gather the behaviours of the members' episodes.
        max_steps: cut episodes after so many steps; None leaves the environment's own limit.
        action_noise: deviation of the noise on continuous actions.
        episode_seeds: who shares environment seeds with whom.
    """

    seed: int
    generation: int
    purpose: Purpose
    population: Population | None
    center: Vector
    episodes: int
    normalizer: Normalizer | None = None
    gather: bool = False
    characterize: bool = False
    max_steps: int | None = None
    action_noise: float = 0.0
    episode_seeds: EpisodeSeeds = "fresh"

    def parameters(self, member: int) -> Vector:
        """Return the parameters [P] of a member or the centre."""
        if member == CENTER or self.population is None:
            return self.center
        return self.population.member(member)

    def low_rank(self, member: int) -> LowRankMember | None:
        """Return a member as centre and factors of low rank, if that is what it is."""
        if member == CENTER or self.population is None:
            return None
        return self.population.low_rank(member)

    def environment_seed(self, task: Task) -> int:
        """Return the seed of an episode's environment."""
        if self.purpose is not Purpose.TRAINING_EPISODE:  # all play the same episodes
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
        """Return the action noise of an episode."""
        return stream(
            self.seed, Purpose.ACTION_NOISE, self.generation, task.member + 1, task.episode
        )


@final
@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """What virtual batch normalisation takes its statistics of; equal if the observations are.

    Attributes:
        observations: [R, inputs], before they are normalised.
    """

    observations: Array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReferenceBatch):
            return NotImplemented
        mine, others = self.observations, other.observations
        return mine is others or (mine.dtype == others.dtype and np.array_equal(mine, others))

    __hash__ = None  # type: ignore[assignment]


@final
@dataclass(frozen=True)
class Setup:
    """What a worker needs to know once for each trial: the environment and the policy.

    Attributes:
        environment, policy: of the trial.
        reference_batch: which a policy with virtual batch normalisation needs to play.
    """

    environment: EnvironmentSpec
    policy: PolicySpec
    reference_batch: ReferenceBatch | None = None

    def make_backend(self, slots: int) -> Backend:
        """Return the environment's slots."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return backend(self.environment.id, self.environment.kwargs, slots)

    def useful_slots(self, most: int) -> int:
        """Return how many slots are worth having in a worker that has room for ``most``."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return min(most, backend.most_slots or most)

    @property
    def backend_name(self) -> str:
        """The name of the backend that plays the environment."""
        spec = self.environment
        return backend_name(spec.backend, spec.id, spec.kwargs)

    def make_behavior(self) -> Behavior:
        """Return a recorder of episodes for one slot.

        Raises:
            UsageError: an unknown behaviour or setting, or one that cannot serve the environment.
        """
        spec = self.environment
        cls = behavior_class(spec.behavior)
        settings = parse(cls.Settings, spec.behavior_settings, f"behavior {spec.behavior}")
        return cls(settings, spec.id)

    def make_policy(self, observations: Space, actions: Space) -> Policy:
        """Return the policy that maps one space to the other.

        Raises:
            UsageError: the policy cannot serve the spaces.
        """
        name = self.environment.id
        cls: type[Policy] = POLICIES.get(self.policy.template)
        settings = parse(cls.Settings, self.policy.settings, f"policy {self.policy.template}")
        inputs, outputs = Observations(observations, name).size, Actions(actions, name).size
        if len(observations.shape or ()) >= 3:
            what = f"{name}: its observations are images {observations.shape}; the policy"
            if not cls.takes_images:
                raise UsageError(
                    f"{what} {self.policy.template!r} takes vectors (use small_conv, openai_conv, "
                    "nature_conv or conv_lstm, or give a torch.nn.Module of your own)"
                )
            if cls.most_pixels is not None and inputs > cls.most_pixels:
                raise UsageError(
                    f"{what} {self.policy.template!r} takes at most {cls.most_pixels} numbers "
                    "(play such as esbench/Pong-v5, or give a torch.nn.Module of your own)"
                )
        return cls(settings, inputs, outputs, observations.shape or None)
