"""The final policy of a seed as plain arrays: taken from its trainer, and made again to play."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import numpy as np

from esbench.core.arrays import State
from esbench.core.errors import require_integer
from esbench.core.settings import MOST_EPISODES
from esbench.core.user_code import require_trusted
from esbench.engine.engine import Engine
from esbench.engine.setup import ReferenceBatch, Setup
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.evaluator import held_out_job, score
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.search_trainer import SearchTrainer, StartingPolicy
from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy
from esbench.experiment.trainer import Trainer
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer
from esbench.results.entries import LeftOut
from esbench.results.policy_files import STATISTICS, WEIGHTS, Arrays, Published, size_of

MOST_PARAMS: Final = 50_000  # of a published policy: 200 kB per seed
ABSENT: Final = np.empty(0)


def arrays_of(trainer: Trainer) -> Arrays | LeftOut:
    """The final policy of a trial as arrays, or why it is left out."""
    if isinstance(trainer, SearchTrainer):
        found = _of_search(trainer)
    else:
        assert isinstance(trainer, AgentTrainer)
        weights = trainer.weights()
        if weights is None:
            return LeftOut.NO_WEIGHTS
        found = weights
    return found if size_of(found) <= MOST_PARAMS else LeftOut.TOO_LARGE


def _of_search(trainer: SearchTrainer) -> Arrays:
    job, setup = trainer.held_out_job(), trainer.gathered_setup()
    found: Arrays = {"parameters": job.center.astype(np.float32)}
    if job.normalizer is not None:
        found |= {"mean": job.normalizer.mean, "scale": job.normalizer.scale}
    if setup.reference_batch is not None:
        found["reference"] = setup.reference_batch.observations
    return found


class PublishedPolicy(ABC):
    """The final policy of a seed, from its specification and its arrays."""

    policy: TrainedPolicy | TrainedAgent

    @abstractmethod
    def play(self, pool: Engine, episodes: int | None = None) -> HeldOutScore:
        """Play held-out episodes, by default as many as specified."""


def published_policy(spec: TrialSpec, arrays: Arrays, generation: int = 0) -> PublishedPolicy:
    """The final policy after a number of generations; UsageError if the arrays do not fit."""
    if spec.is_agent:
        return PublishedAgent(spec, arrays, generation)
    return PublishedSearch(spec, arrays, generation)


def load_published(found: Published, trusted: bool = False) -> PublishedPolicy:
    """The policy of a row; UsageError if the row names code that is not trusted."""
    require_trusted([found.entry.spec], found.entry.name, trusted)
    spec = found.entry.to_cell().trial_spec(found.seed)
    return published_policy(spec, found.arrays, found.generation)


@final
class PublishedSearch(PublishedPolicy):
    """The final policy of a search."""

    policy: TrainedPolicy

    def __init__(self, spec: TrialSpec, arrays: Arrays, generation: int) -> None:
        assert spec.policy is not None, "a search has a policy template"
        normalizer, batch = None, arrays.get("reference")
        if spec.policy.settings.normalize_observations:
            clip = spec.policy.settings.observation_clip
            mean, scale = (arrays.get(name, ABSENT) for name in ("mean", "scale"))
            normalizer = Normalizer(mean, scale, clip)
        self._spec, self._normalizer = spec, normalizer
        self.setup = Setup(
            spec.environment, spec.policy, None if batch is None else ReferenceBatch(batch)
        )
        self.center = arrays["parameters"].astype(np.float64)
        job = held_out_job(spec, self.center, normalizer)
        self.policy = TrainedPolicy(self.setup, job, generation)

    def as_start(self, env_steps: int) -> StartingPolicy:
        """The policy, for a trial to start from; its statistics count as many observations."""
        batch, normalizer = self.setup.reference_batch, self._normalizer
        state: State = {"statistics": {}}
        if normalizer is not None:
            squares = env_steps / normalizer.scale**2
            moments = {"count": float(env_steps), "mean": normalizer.mean, "squares": squares}
            state["statistics"]["0"] = moments
        if batch is not None:
            state["reference_batch"] = batch.observations
        return StartingPolicy(self._spec, self.policy.template, self.center, state, lineage=0)

    def play(self, pool: Engine, episodes: int | None = None) -> HeldOutScore:
        """As the base class says."""
        if episodes is not None:
            require_integer("episodes", episodes, 1, MOST_EPISODES)
        pool.configure(self.setup)
        return score(pool, held_out_job(self._spec, self.center, self._normalizer, episodes))


@final
class PublishedAgent(PublishedPolicy):
    """The final policy of an agent."""

    def __init__(self, spec: TrialSpec, arrays: Arrays, generation: int) -> None:
        acting = (WEIGHTS, STATISTICS)
        self._weights = {name: each for name, each in arrays.items() if name.startswith(acting)}
        self._spec, self._generation = spec, generation
        with AgentTrainer(spec) as trainer:
            trainer.load_weights(self._weights, generation)
            self.policy = trainer.policy()

    def play(self, pool: Engine, episodes: int | None = None) -> HeldOutScore:
        """As the base class says."""
        with AgentTrainer(self._spec, pool) as trainer:
            trainer.load_weights(self._weights, self._generation)
            return trainer.evaluate(episodes)
