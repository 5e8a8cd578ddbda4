"""Jobs for workers: the environment and policy of a trial, and the episodes of a generation."""

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

CENTER = -1  # member number of the unperturbed policy


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
    """The episodes of one generation or of one evaluation; sent to workers.

    Attributes:
        seed: the seed of the trial.
        generation: selects the random streams, together with ``purpose``.
        purpose: TRAINING_EPISODE, PROBE_EPISODE, or EVALUATION_EPISODE for held-out episodes.
        population: the members; None if only the centre plays.
        center: the parameters of the unperturbed policy, [P].
        episodes: the number of episodes per member.
        normalizer: the frozen observation normaliser, or None.
        gather: whether to gather the moments of the members' observations.
        characterize: whether to record the behaviours of the members.
        max_steps: the largest length of an episode; None for the limit of the environment alone.
        action_noise: the standard deviation of the noise on continuous actions.
        episode_seeds: which members share environment seeds.
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
        """The parameters [P] of a member or of the centre."""
        if member == CENTER or self.population is None:
            return self.center
        return self.population.member(member)

    def low_rank(self, member: int) -> LowRankMember | None:
        """A member as centre and low-rank factors, or None if it has no such form."""
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


@final
@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """The observations from which virtual batch normalisation computes its statistics.

    Attributes:
        observations: [R, inputs], not normalised.
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
    """The environment and policy of a trial; sent to workers once per trial.

    Attributes:
        environment, policy: the specifications.
        reference_batch: required to play with virtual batch normalisation, otherwise None.
    """

    environment: EnvironmentSpec
    policy: PolicySpec
    reference_batch: ReferenceBatch | None = None

    def make_backend(self, slots: int) -> Backend:
        """A backend with up to ``slots`` environments."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return backend(self.environment.id, self.environment.kwargs, slots)

    def useful_slots(self, most: int) -> int:
        """The number of slots, at most ``most``, that the backend can use in one worker."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return min(most, backend.most_slots or most)

    @property
    def backend_name(self) -> str:
        """The name of the backend that runs the environment."""
        spec = self.environment
        return backend_name(spec.backend, spec.id, spec.kwargs)

    def make_behavior(self) -> Behavior:
        """A behaviour recorder for one slot.

        Raises:
            UsageError: the behaviour does not support the environment.
        """
        spec = self.environment
        cls = behavior_class(spec.behavior)
        return cls(spec.behavior_settings, spec.id)

    def make_policy(self, observations: Space, actions: Space) -> Policy:
        """The policy that maps observations to actions.

        Raises:
            UsageError: the policy does not support the spaces.
        """
        name = self.environment.id
        cls: type[Policy] = POLICIES.get(self.policy.template)
        inputs, outputs = Observations(observations, name).size, Actions(actions, name).size
        if len(observations.shape or ()) >= 3:
            seen = f"{name}: the observations are images of shape {observations.shape}; the policy"
            if not cls.takes_images:
                raise UsageError(
                    f"{seen} {self.policy.template!r} expects vectors (use small_conv, "
                    "openai_conv, nature_conv or conv_lstm, or your own torch.nn.Module)"
                )
            if cls.most_pixels is not None and inputs > cls.most_pixels:
                raise UsageError(
                    f"{seen} {self.policy.template!r} takes at most {cls.most_pixels} numbers "
                    "(use a preprocessed environment such as esbench/Pong-v5, or your own "
                    "torch.nn.Module)"
                )
        return cls(self.policy.settings, inputs, outputs, observations.shape or None)
