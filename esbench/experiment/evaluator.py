"""Plays the episodes of a trial with its observation statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.base import Algorithm
from esbench.core.arrays import State, Vector
from esbench.core.errors import UsageError, require_integer
from esbench.core.population import EvaluationPlan, Population, SampledPopulation
from esbench.core.seeding import Purpose
from esbench.core.settings import MOST_EPISODES
from esbench.engine.engine import Engine
from esbench.engine.jobs import CENTER, Episodes, Job, Task, member_tasks
from esbench.engine.setup import ReferenceBatch, Setup
from esbench.environments.simulator_log import silenced
from esbench.experiment.final_policy import HeldOutScore
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer, ObservationStatistics
from esbench.policies.spaces import Actions

INITIAL_LINEAGE: Final = -1  # the key of the statistics with which every lineage begins


def held_out_job(
    spec: TrialSpec, center: Vector, normalizer: Normalizer | None, episodes: int | None = None
) -> Job:
    """The held-out episodes of a policy; by default as many as specified."""
    return Job(
        seed=spec.seed,
        generation=0,
        purpose=Purpose.EVALUATION_EPISODE,
        population=None,
        center=center,
        episodes=spec.evaluation.episodes if episodes is None else episodes,
        normalizer=normalizer,
    )


def score(pool: Engine, job: Job, first: int = 0) -> HeldOutScore:
    """Let a prepared engine play the episodes of a center from number ``first`` on."""
    played = pool.play(job, [Task(CENTER, number) for number in range(first, job.episodes)])
    return HeldOutScore(played.center_returns, played.center_lengths.astype(np.float64))


@final
class Evaluator:
    """Evaluates the populations and the center of one trial, with ``setup`` and its ``policy``.

    UsageError if these cannot be made, or a node of a cluster has other user code.
    """

    def __init__(self, spec: TrialSpec, pool: Engine, log: Path | None) -> None:
        self._spec = spec
        self._pool = pool
        self._log = log
        assert spec.policy is not None, "a search has a policy template"
        self.setup = Setup(spec.environment, spec.policy)
        with silenced():
            backend = self.setup.make_backend(slots=1)
        with closing(backend):
            spaces = backend.single_observation_space, backend.single_action_space
            self.policy = self.setup.make_policy(*spaces)
            continuous = Actions(spaces[1], spec.environment.id).continuous
        if spec.environment.action_noise and not continuous:
            raise UsageError(
                f"environment.action_noise = {spec.environment.action_noise}: "
                f"{spec.environment.id} has discrete actions, which take no noise; expected 0"
            )
        pool.compare_code(spec)
        self._statistics: dict[int, ObservationStatistics] = {}  # of each lineage
        self._mean_length: float | None = None

    def gathered_setup(self) -> Setup:
        """What workers need to know; gathers the reference batch if the policy needs one."""
        if self.policy.reference_size and self.setup.reference_batch is None:
            size, seed = self.policy.reference_size, self._spec.seed
            self.setup = self.setup.with_reference_batch(size, seed)
        return self.setup

    def episode_cap(self, env_steps: int) -> int | None:
        """The limit of training episodes after ``env_steps`` training steps, or None [steps]."""
        cap = self._spec.environment.max_episode_steps
        if isinstance(cap, tuple):
            return next(limit for start, limit in reversed(cap) if start <= env_steps)
        if cap == "adaptive":  # twice the mean length, as in OpenAI-ES
            return None if self._mean_length is None else max(1, math.ceil(2 * self._mean_length))
        return cap

    def prepare(self) -> None:
        """Wait until the workers are ready for this trial."""
        self._pool.configure(self.gathered_setup(), self._log)

    def population_job(
        self, algorithm: Algorithm[Any], population: Population, env_steps: int
    ) -> Job:
        """The episodes of a population after ``env_steps`` steps, by the plan of the algorithm."""
        environment, plan = self._spec.environment, algorithm.plan
        normalizer = self.normalizer(plan.lineage)
        return Job(
            seed=self._spec.seed,
            generation=algorithm.generation,
            purpose=Purpose.PROBE_EPISODE if plan.probe else Purpose.TRAINING_EPISODE,
            population=population,
            center=algorithm.center,
            episodes=plan.episodes or environment.episodes_per_member,
            normalizer=normalizer,
            gather=normalizer is not None and not plan.probe,
            characterize=algorithm.needs_behaviors,
            max_steps=self.episode_cap(env_steps),
            action_noise=0.0 if plan.probe else environment.action_noise,
            episode_seeds=environment.episode_seeds,
        )

    def held_out_job(self, algorithm: Algorithm[Any], episodes: int | None = None) -> Job:
        """The held-out episodes of the center; by default as many as specified."""
        if episodes is not None:
            require_integer("episodes", episodes, 1, MOST_EPISODES)
        normalizer = self.normalizer(algorithm.plan.center_lineage)
        return held_out_job(self._spec, algorithm.averaged_center, normalizer, episodes)

    def score(self, job: Job, first: int = 0) -> HeldOutScore:
        """Play the episodes of a center from number ``first`` on."""
        self.prepare()
        return score(self._pool, job, first)

    def play(self, algorithm: Algorithm[Any], env_steps: int) -> tuple[Population, Episodes]:
        """Play the population that the algorithm asks for, and the center unless it is a probe.

        ``env_steps`` is the number of training steps so far. Returns the population, with all
        members that it has grown by, and its episodes.
        """
        population, plan = algorithm.ask(), algorithm.plan
        with_center = self._spec.evaluation.center and not plan.probe
        job = self.population_job(algorithm, population, env_steps)
        played = latest = self._play_members(job, plan, 0, with_center)
        step = len(population)
        while not plan.probe:
            size = len(population)
            grown = plan.growth.next_size(size, step, played.lengths, latest.lengths)
            if grown == size:
                break
            population = population.extended(grown)
            job = replace(job, population=population)
            latest = self._play_members(job, plan, size, with_center=False)
            played = played.joined(latest)
        return population, played

    def keep_statistics(self, plan: EvaluationPlan) -> None:
        """Let the center keep the statistics that the members have played with."""
        if self.policy.settings.normalize_observations:
            statistics = self._statistics_of(plan.lineage).state_dict()
            self._statistics_of(plan.center_lineage).load_state_dict(statistics)

    def learn(self, played: Episodes, lineage: int) -> None:
        """Count the episodes of a generation into the statistics of a lineage."""
        normalizer = self.normalizer(lineage)
        if normalizer is not None:
            played.merge_into(self._statistics_of(lineage), normalizer.mean)
        self._mean_length = float(played.lengths.mean())

    def normalizer(self, lineage: int) -> Normalizer | None:
        """The observation normalizer of a lineage, or None if the policy does not use one."""
        settings = self.policy.settings
        if not settings.normalize_observations:
            return None
        return self._statistics_of(lineage).normalizer(settings.observation_clip)

    def state_dict(self) -> State:
        """The statistics, the mean episode length and the reference batch, if any."""
        batch = self.setup.reference_batch
        return {
            "statistics": {str(k): s.state_dict() for k, s in sorted(self._statistics.items())},
            "mean_length": self._mean_length,
            **({} if batch is None else {"reference_batch": batch.observations}),
        }

    def load_state_dict(self, state: State, generation: int) -> None:
        """Restore what ``state_dict`` returned; UsageError if it lacks a needed reference batch."""
        batch = self._reference_batch_in(state, generation)
        self.setup = replace(self.setup, reference_batch=batch)
        self._statistics = {}
        for lineage, statistics in state["statistics"].items():
            self._statistics_of(int(lineage)).load_state_dict(statistics)
        self._mean_length = state["mean_length"]

    def begin_with(self, state: State, lineage: int) -> None:
        """Start with the statistics that a lineage has in the state of another trained trial."""
        found = state["statistics"].get(str(lineage))
        statistics = {} if found is None else {str(INITIAL_LINEAGE): found}
        self.load_state_dict(state | {"statistics": statistics, "mean_length": None}, generation=1)

    def _reference_batch_in(self, state: State, generation: int) -> ReferenceBatch | None:
        # A state may lack it before the first generation.
        size, found = self.policy.reference_size, state.get("reference_batch")
        if not size or (found is None and not generation):
            return None
        expected = (size, self.policy.num_inputs)
        if found is None or found.shape != expected:
            seen = "it has none" if found is None else f"it has one of shape {list(found.shape)}"
            raise UsageError(
                f"no reference batch of shape {list(expected)} in the trained state ({seen}), "
                "which the policy's virtual batch normalization needs"
            )
        return ReferenceBatch(found)

    def _statistics_of(self, lineage: int) -> ObservationStatistics:
        if lineage not in self._statistics:
            made = self._statistics[lineage] = ObservationStatistics(self.policy.num_inputs)
            if (initial := self._statistics.get(INITIAL_LINEAGE)) is not None:
                made.load_state_dict(initial.state_dict())
        return self._statistics[lineage]

    def _play_members(
        self, job: Job, plan: EvaluationPlan, first: int, with_center: bool
    ) -> Episodes:
        tasks = member_tasks(range(first, len(job.population or ())), job.episodes)
        if not with_center:
            return self._play(job, tasks)
        center = [Task(CENTER, episode) for episode in range(job.episodes)]
        kept = plan.center_is_member
        if plan.center_lineage == plan.lineage or (kept and job.normalizer is None):
            return self._play(job, [*center, *tasks])
        # The center uses the observation statistics of its own lineage.
        own = replace(job, normalizer=self.normalizer(plan.center_lineage), gather=False)
        alone = self._play(own, center)
        # Unless the center was a member, the members lie around another policy, their parent, which
        # plays too, for its rank.
        if not kept and isinstance(job.population, SampledPopulation):
            job = replace(job, center=job.population.center)
        played = self._play(job, tasks if kept else [*center, *tasks])
        ranked = alone if kept else played
        return replace(
            played,
            center_returns=alone.center_returns,
            center_lengths=alone.center_lengths,
            ranked_training_returns=ranked.ranked_training_returns,
            ranked_lengths=ranked.ranked_lengths,
            eval_steps=alone.eval_steps + played.eval_steps,
        )

    def _play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        self.prepare()
        return self._pool.play(job, tasks)
