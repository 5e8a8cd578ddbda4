"""The training loop: ask, evaluate, tell, record."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, final

from esbench.algorithms.base import ALGORITHMS, Algorithm, State
from esbench.algorithms.population import Population, drawing_threads
from esbench.arrays import Shapes, Vector
from esbench.errors import TrainingError
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.base import Policy
from esbench.rollouts.interrupts import interrupts_delayed
from esbench.rollouts.jobs import Job, Setup
from esbench.rollouts.results import Episodes
from esbench.rollouts.stopwatch import Stopwatch
from esbench.rollouts.worker_pool import WorkerPool, usable_cores
from esbench.seeding import Purpose, stream
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Callback, Stop, TargetReturn
from esbench.training.diagnostics import Gauge
from esbench.training.evaluator import Evaluator, HeldOutScore
from esbench.training.returns import digest, fitness_of, summary

CHECKPOINT_SECONDS: Final = 10.0


class Recorder(Protocol):
    """Stores the records and states of a trainer, as the store's trial folder does."""

    def append(self, record: GenerationRecord) -> None:
        """Store the record of one generation."""

    def checkpoint(self, state: State) -> None:
        """Store the state after the records so far."""


@final
@dataclass(frozen=True)
class Progress:
    """Counters of a run so far.

    The times exclude pauses and loading: the start of worker processes, their first environment
    and the reference batch of a policy.
    """

    generation: int = 0
    env_steps: int = 0
    eval_env_steps: int = 0
    episodes: int = 0
    wall_time_s: float = 0.0
    cpu_time_s: float = 0.0

    def with_episodes(self, played: Episodes) -> Progress:
        """The progress after these episodes."""
        return replace(
            self,
            env_steps=self.env_steps + int(played.lengths.sum()),
            eval_env_steps=self.eval_env_steps + int(played.center_lengths.sum()),
            episodes=self.episodes + played.lengths.size,
        )


@final
class Trainer:
    """One trial: an algorithm, an environment, a policy and a seed.

    Use it as a context manager, or call ``close``, if it owns its workers.

    Attributes:
        spec: the specification of the trial.
        algorithm: the search.
        history: the records of the generations so far.
        stopped: the ``Stop`` that ended training early, also if that was before a resume.
        watch: the seconds spent on playing, updating and storing.
    """

    def __init__(
        self,
        spec: TrialSpec,
        pool: WorkerPool | None = None,
        recorder: Recorder | None = None,
        log: Path | None = None,
        owns_pool: bool = False,
    ) -> None:
        """Prepare a trial; worker processes start when they are needed.

        Args:
            spec: the specification of the trial.
            pool: the worker processes; by default the trainer owns one per core.
            recorder: stores records and checkpoints; by default they stay in memory.
            log: the file for the output of environments.
            owns_pool: whether ``close`` also closes the given pool.

        Raises:
            UsageError: the environment, the policy or a setting is not supported.
        """
        self.spec = spec
        self.history: list[GenerationRecord] = []
        self.stopped: Stop | None = None
        self.watch = Stopwatch()
        self._owns_pool = owns_pool or pool is None
        self._pool = WorkerPool() if pool is None else pool
        self._recorder = recorder
        self._evaluator = Evaluator(spec, self._pool, log)
        generator = stream(spec.seed, Purpose.INITIALIZATION)
        self.algorithm = make_algorithm_from(
            spec, self.policy.initial_parameters(generator), self.policy.shapes
        )
        if self.algorithm.needs_behaviors:
            self._evaluator.check_behavior()
        self._reward_shift = spec.environment.reward_shift + self.algorithm.settings.reward_shift
        self._gauge = Gauge(self.algorithm.center)
        self._progress = Progress()
        self._consistent = True

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def policy(self) -> Policy:
        """The policy template, whose parameters are ``center``."""
        return self._evaluator.policy

    @property
    def center(self) -> Vector:
        """The parameters of the unperturbed policy, [P]."""
        return self.algorithm.center

    @property
    def setup(self) -> Setup:
        """What workers need to know, with the reference batch if the policy needs one."""
        return self._evaluator.setup

    @property
    def progress(self) -> Progress:
        """The counters of the run so far."""
        return self._progress

    def train(
        self, env_steps: int | None = None, callbacks: Sequence[Callback] = ()
    ) -> Stop | None:
        """Train until the budget is spent or a callback stops training.

        Args:
            env_steps: the total number of training steps to reach, in place of the budget of the
                specification. Call again with a larger number to continue.
            callbacks: called with the record of every new generation; may return ``Stop``.

        Returns:
            The ``Stop`` that ended training early, or None.

        Raises:
            TrainingError: all returns of a generation are not finite, or an earlier update failed.
        """
        budget = self.spec.budget
        every = list(callbacks)
        if budget.target_return is not None:
            target = TargetReturn(budget.target_return, budget.target_window)
            for record in self.history:
                if stop := target(record):
                    self.stopped = stop
                    return stop
            every.insert(0, target)
        self.stopped = None
        saved = time.monotonic()
        for record in self._generations(budget.env_steps if env_steps is None else env_steps):
            stops = [stop for stop in [callback(record) for callback in every] if stop]
            if stops:
                self.stopped = stops[0]
                break
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                self.save()
                saved = time.monotonic()
        self.save()
        return self.stopped

    def evaluate(self, episodes: int | None = None) -> HeldOutScore:
        """Score the centre on held-out episodes of the unmodified environment.

        Args:
            episodes: the number of episodes; by default that of the specification.
        """
        return self._evaluator.score(self.algorithm, episodes)

    def held_out_job(self, episodes: int | None = None) -> Job:
        """The episodes that ``evaluate`` plays."""
        return self._evaluator.held_out_job(self.algorithm, episodes)

    def next_job(self) -> Job:
        """The episodes of the population that is evaluated next."""
        return self._evaluator.population_job(self.algorithm, self.algorithm.ask())

    def save(self) -> None:
        """Write a checkpoint if there is a recorder and no update is incomplete."""
        if self._recorder is not None and self._consistent:
            self.watch.start()
            self._recorder.checkpoint(self.state_dict())
            self.watch.lap("store")

    def state_dict(self) -> State:
        """A copy of everything that is needed to continue with the same bits."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "progress": vars(self._progress).copy(),
            "gauge": self._gauge.state_dict(),
            "stopped": None if self.stopped is None else self.stopped.reason,
            **self._evaluator.state_dict(),
        }

    def load_state_dict(self, state: State, history: Sequence[GenerationRecord] = ()) -> None:
        """Restore what ``state_dict`` returned.

        Args:
            state: the state.
            history: the records of the generations before it.

        Raises:
            UsageError: the state lacks the reference batch that the policy needs.
        """
        self._evaluator.load_state_dict(state, state["progress"]["generation"])
        self.algorithm.load_state_dict(state["algorithm"])
        self._progress = Progress(**state["progress"])
        self._gauge.load_state_dict(state["gauge"])
        self.stopped = None if state["stopped"] is None else Stop(state["stopped"])
        self.history = list(history)
        self._consistent = True

    def close(self) -> None:
        """End the worker processes if the trainer owns them."""
        if self._owns_pool:
            self._pool.close()

    def _generations(self, limit: int) -> Iterator[GenerationRecord]:
        if not self._consistent:
            raise TrainingError("an update has failed; load a state or start the trial again")
        most = self.spec.budget.generations or math.inf
        while self._progress.env_steps < limit and self._progress.generation < most:
            self._evaluator.prepare()  # loading is not part of the time of training
            before = self._progress
            wall, cpu = time.perf_counter(), time.process_time() + self._pool.cpu_time_s
            self.watch.start()
            population, played = self._play()
            self.watch.lap("play")
            with self._update():
                record = self._learn(population, played)
                self.watch.lap("update")
                wall = before.wall_time_s + time.perf_counter() - wall
                cpu = before.cpu_time_s + (time.process_time() + self._pool.cpu_time_s - cpu)
                self._progress = replace(self._progress, wall_time_s=wall, cpu_time_s=cpu)
                record = replace(record, wall_time_s=wall, cpu_time_s=cpu)
                self.history.append(record)
                if self._recorder is not None:
                    self._recorder.append(record)
            self.watch.lap("store")
            yield record

    @contextlib.contextmanager
    def _update(self) -> Iterator[None]:
        """Complete the block before an interrupt; an error in it leaves no state to save."""
        with interrupts_delayed():
            self._consistent = False
            yield
            self._consistent = True

    def _play(self) -> tuple[Population, Episodes]:
        """Evaluate the population of a generation, and the probes before it."""
        while self.algorithm.plan.probe:
            probe, played = self._evaluator.play(self.algorithm)
            with self._update():
                fitness = fitness_of(played, self._reward_shift)
                self.algorithm.tell(probe, fitness, played.behaviors)
                self._progress = self._progress.with_episodes(played)
        return self._evaluator.play(self.algorithm)

    def _learn(self, population: Population, played: Episodes) -> GenerationRecord:
        """Tell the algorithm, update the statistics and return the record, without its times."""
        algorithm, evaluator = self.algorithm, self._evaluator
        fitness = fitness_of(played, self._reward_shift)
        lineage, cap = algorithm.plan.lineage, evaluator.episode_cap
        center, normalizer = algorithm.center, evaluator.normalizer(lineage)
        with drawing_threads(min(self._pool.size, usable_cores())):  # the workers are idle
            algorithm.tell(population, fitness, played.behaviors)
            evaluator.learn(played, lineage)
            measures = self._gauge.measure(
                population,
                fitness,
                centers=(center, algorithm.center),
                normalizers=(normalizer, evaluator.normalizer(lineage)),
                ranked=not algorithm.needs_behaviors,
            )
        progress = self._progress.with_episodes(played)
        self._progress = replace(progress, generation=progress.generation + 1)
        return GenerationRecord(
            **vars(self._progress),
            **summary(played, fitness, self._reward_shift),
            max_episode_steps=cap,
            sigma=algorithm.sigma,
            digest=digest(algorithm.center, played),
            **vars(measures),
        )


def make_algorithm_from(spec: TrialSpec, center: Vector, shapes: Shapes) -> Algorithm[Any]:
    """The algorithm of a specification, with the initial centre [P]."""
    cls: type[Algorithm[Any]] = ALGORITHMS.get(spec.algorithm.name)
    return cls(spec.algorithm.settings, center, spec.seed, shapes)
