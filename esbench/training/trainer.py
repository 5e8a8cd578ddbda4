"""The one loop: ask, evaluate, tell, record; it stops, and goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np

from esbench.algorithms.base import ALGORITHMS, Algorithm
from esbench.algorithms.population import Population
from esbench.algorithms.settings import GrowingSettings
from esbench.algorithms.shaping import center_rank
from esbench.arrays import Shapes, Vector
from esbench.environments.simulator_log import silenced
from esbench.errors import UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer, ObservationStatistics
from esbench.policies.spaces import Actions
from esbench.rollouts.jobs import CENTER, Job, ReferenceBatch, Setup, Task, member_tasks
from esbench.rollouts.reference_batch import gather
from esbench.rollouts.results import Episodes
from esbench.rollouts.stopwatch import Stopwatch
from esbench.rollouts.worker_pool import WorkerPool, usable_cores
from esbench.seeding import Purpose, stream
from esbench.settings import parse
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Callback, Stop, TargetReturn
from esbench.training.diagnostics import Gauge

State = dict[str, Any]
CHECKPOINT_SECONDS: Final = 10.0


class Recorder(Protocol):
    """Where a trainer's rows and states go; the store's trial folder is one."""

    def append(self, record: GenerationRecord) -> None:
        """Keep one generation's row."""

    def checkpoint(self, state: State) -> None:
        """Keep the state after the rows so far."""


@final
@dataclass(frozen=True, eq=False)
class Score:
    """The final policy on held-out episodes of the unmodified environment.

    Attributes:
        returns: [episodes]; lengths: [episodes] in steps.
    """

    returns: Vector
    lengths: Vector

    @property
    def mean(self) -> float:
        """The score: the mean return."""
        return float(np.mean(self.returns))


@final
@dataclass(frozen=True)
class Progress:
    """Counters of a run so far; times leave out pauses and loading.

    Loading: the start of worker processes, their first environment and a policy's reference batch.
    """

    generation: int = 0
    env_steps: int = 0
    eval_env_steps: int = 0
    episodes: int = 0
    wall_time_s: float = 0.0
    cpu_time_s: float = 0.0


@final
class Trainer:
    """One trial: an algorithm, an environment, a policy and a seed.

    Use as a context manager, or call ``close``, if it made its own workers.

    Attributes:
        spec: what is trained.
        algorithm: the search.
        policy: the template; ``algorithm.center`` are its parameters.
        history: the records of the generations so far.
        stopped: the ``Stop`` that ended training early, also if that was before a resume.
        watch: the seconds spent to play, update and store.
    """

    def __init__(
        self,
        spec: TrialSpec,
        pool: WorkerPool | None = None,
        recorder: Recorder | None = None,
        log: Path | None = None,
        owns_pool: bool = False,
    ) -> None:
        """Prepare a trial; no process starts before it is needed.

        Args:
            spec: what to train.
            pool: worker processes to use; by default its own, one a core.
            recorder: keeps rows and checkpoints; by default they stay in memory.
            log: file for what environments print.
            owns_pool: whether ``close`` closes the given pool too.

        Raises:
            UsageError: the environment, the policy or a setting cannot be served.
        """
        self.spec = spec
        self.history: list[GenerationRecord] = []
        self.stopped: Stop | None = None
        self._owns_pool = owns_pool or pool is None
        self._pool = WorkerPool() if pool is None else pool
        self._recorder = recorder
        self._log = log
        setup = Setup(spec.environment, spec.policy)
        with silenced():
            backend = setup.make_backend(slots=1)
        self.policy = setup.make_policy(
            backend.single_observation_space, backend.single_action_space
        )
        continuous = Actions(backend.single_action_space, spec.environment.id).continuous
        backend.close()
        if spec.environment.action_noise and not continuous:
            raise UsageError(
                f"environment.action_noise = {spec.environment.action_noise}: "
                f"{spec.environment.id} has discrete actions, which take no noise; expected 0"
            )
        self._setup = setup
        generator = stream(spec.seed, Purpose.INITIALIZATION)
        self.algorithm = make_algorithm_from(
            spec, self.policy.initial_parameters(generator), self.policy.shapes
        )
        self._gauge = Gauge(self.algorithm.center)
        self._reward_shift = spec.environment.reward_shift + self.algorithm.settings.reward_shift
        if self.algorithm.needs_behaviors:
            setup.make_behavior()  # so that what cannot be served is known at once
        # Of each lineage; a new one starts where the meta-population has started.
        self._statistics: dict[int, ObservationStatistics] = {}
        self._progress = Progress()
        self._mean_length: float | None = None
        self._consistent = True
        self.watch = Stopwatch()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def center(self) -> Vector:
        """The parameters of the unperturbed policy, [P]."""
        return self.algorithm.center

    @property
    def setup(self) -> Setup:
        """What workers need to know, with the reference batch of a policy that wants one.

        That is gathered here when it is first asked for, unless a checkpoint has brought it.
        """
        if self.policy.reference_size and self._setup.reference_batch is None:
            batch = gather(self._setup, self.policy.reference_size, self.spec.seed)
            self._setup = replace(self._setup, reference_batch=batch)
        return self._setup

    @property
    def progress(self) -> Progress:
        """What has been done so far."""
        return self._progress

    def train(
        self, env_steps: int | None = None, callbacks: Sequence[Callback] = ()
    ) -> Stop | None:
        """Train until the budget is spent or a callback stops it.

        Args:
            env_steps: total training steps to reach, instead of the specification's budget; call
                again with a larger number to go on.
            callbacks: each sees every new generation's record and may return ``Stop``.

        Returns:
            The ``Stop`` that ended training early, or None.
        """
        budget = self.spec.budget
        limit = budget.env_steps if env_steps is None else env_steps
        target = None
        if budget.target_return is not None:
            target = TargetReturn(budget.target_return, budget.target_window)
            for record in self.history:
                if stop := target(record):
                    self.stopped = stop
                    return stop
        self.stopped = None
        every: list[Callback] = [*callbacks] if target is None else [target, *callbacks]
        saved = time.monotonic()
        for record in self._generations(limit):
            stops = [stop for stop in (callback(record) for callback in every) if stop]
            if stops:
                self.stopped = stops[0]
                self.save()
                return self.stopped
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                self.save()
                saved = time.monotonic()
        self.save()
        return None

    def evaluate(self, episodes: int | None = None) -> Score:
        """Score the centre on held-out episodes of the unmodified environment.

        Args:
            episodes: how many; the specification's number by default.
        """
        job = self.held_out_job(episodes)
        played = self._play(job, [Task(CENTER, episode) for episode in range(job.episodes)])
        return Score(played.center_returns, played.center_lengths.astype(np.float64))

    def held_out_job(self, episodes: int | None = None) -> Job:
        """Return what ``evaluate`` plays."""
        return Job(
            seed=self.spec.seed,
            generation=0,
            purpose=Purpose.EVALUATION_EPISODE,
            population=None,
            center=self.algorithm.center,
            episodes=self.spec.evaluation.episodes if episodes is None else episodes,
            normalizer=self._normalizer(self.algorithm.center_lineage),
        )

    def next_job(self) -> Job:
        """Return what the members of the next generation, or of the probe before it, play."""
        return self._job(self.algorithm.ask())

    def save(self) -> None:
        """Write a checkpoint of the last complete generation, if there is a recorder.

        An update that was interrupted has been undone, so that there always is one; called from
        within an update it writes nothing.
        """
        if self._recorder is not None and self._consistent:
            self.watch.start()
            self._recorder.checkpoint(self.state_dict())
            self.watch.lap("store")

    def state_dict(self) -> State:
        """Return everything that training needs to go on, bit for bit."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "statistics": {str(k): s.state_dict() for k, s in sorted(self._statistics.items())},
            "progress": vars(self._progress).copy(),
            "mean_length": self._mean_length,
            "gauge": self._gauge.state_dict(),
            "stopped": None if self.stopped is None else self.stopped.reason,
            **self._reference_state(),
        }

    def load_state_dict(self, state: State, history: Sequence[GenerationRecord] = ()) -> None:
        """Go on from ``state_dict``; ``history`` are the rows up to it.

        Raises:
            UsageError: the policy wants a reference batch, and the state has none that fits.
        """
        self._setup = replace(self._setup, reference_batch=self._reference_in(state))
        self.algorithm.load_state_dict(state["algorithm"])
        self._statistics = {}
        for lineage, statistics in state["statistics"].items():
            self._statistics_of(int(lineage)).load_state_dict(statistics)
        self._progress = Progress(**state["progress"])
        self._mean_length = state["mean_length"]
        self._gauge.load_state_dict(state.get("gauge", {}))  # checkpoints once had none
        self.stopped = None if state["stopped"] is None else Stop(state["stopped"])
        self.history = list(history)

    def close(self) -> None:
        """End the worker processes, if they are this trainer's own."""
        if self._owns_pool:
            self._pool.close()

    def _generations(self, limit: int) -> Iterator[GenerationRecord]:
        most = self.spec.budget.generations or math.inf
        while self._progress.env_steps < limit and self._progress.generation < most:
            self._pool.configure(self.setup, self._log)  # outside the time of training
            wall, cpu = time.perf_counter(), time.process_time() + self._pool.cpu_time_s
            self.watch.start()
            population, played = self._evaluate_population()
            self.watch.lap("play")
            with self._whole_update():
                record = self._learn(population, played)
                self.watch.lap("update")
                progress = replace(
                    self._progress,
                    wall_time_s=self._progress.wall_time_s + time.perf_counter() - wall,
                    cpu_time_s=self._progress.cpu_time_s
                    + (time.process_time() + self._pool.cpu_time_s - cpu),
                )
                self._progress = progress
                record = replace(
                    record, wall_time_s=progress.wall_time_s, cpu_time_s=progress.cpu_time_s
                )
                self.history.append(record)
                if self._recorder is not None:
                    self._recorder.append(record)
            self.watch.lap("store")
            yield record

    @contextlib.contextmanager
    def _whole_update(self) -> Iterator[None]:
        """Undo what the block has done if it raises, Ctrl-C in its middle included."""
        before, known = self.state_dict(), len(self.history)
        self._consistent = False
        try:
            yield
        except BaseException:
            self.load_state_dict(before, self.history[:known])
            raise
        finally:
            self._consistent = True

    def _evaluate_population(self) -> tuple[Population, Episodes]:
        """Play one generation; it grows until it has made its interactions and episodes."""
        population = self.algorithm.ask()
        while population.probe:
            self._answer(population)
            population = self.algorithm.ask()
        played = self._play_members(population, 0, self.spec.evaluation.center)
        settings = self.algorithm.settings
        if not isinstance(settings, GrowingSettings):
            return population, played
        most = settings.population_size_max or math.inf
        more, step = played, len(population)
        while len(population) < most and (
            # Members that all fail before their first step would never make an interaction.
            (played.lengths.sum() < settings.num_interactions and more.lengths.any())
            or played.lengths.size < settings.min_episodes
        ):
            size = len(population)
            population = population.extended(int(min(size + step, most)))
            more = self._play_members(population, size, with_center=False)
            played = played.joined(more)
        return population, played

    def _answer(self, probe: Population) -> None:
        """Play what an algorithm asks for between two generations; its steps are training steps."""
        played = self._play_members(probe, 0, with_center=False)
        with self._whole_update():
            self.algorithm.tell(probe, self._fitness(played), played.behaviors)
            self._progress = self._counted(played)

    def _job(self, population: Population) -> Job:
        environment = self.spec.environment
        normalizer = self._normalizer(population.lineage)
        return Job(
            seed=self.spec.seed,
            generation=self.algorithm.generation,
            purpose=Purpose.PROBE_EPISODE if population.probe else Purpose.TRAINING_EPISODE,
            population=population,
            center=self.algorithm.center,
            episodes=population.episodes or environment.episodes_per_member,
            normalizer=normalizer,
            gather=normalizer is not None and not population.probe,
            characterize=self.algorithm.needs_behaviors,
            max_steps=self._episode_cap(),
            action_noise=0.0 if population.probe else environment.action_noise,
            episode_seeds=environment.episode_seeds,
        )

    def _play_members(self, population: Population, first: int, with_center: bool) -> Episodes:
        job = self._job(population)
        tasks = member_tasks(range(first, len(population)), job.episodes)
        if not with_center:
            return self._play(job, tasks)
        center = [Task(CENTER, episode) for episode in range(job.episodes)]
        lineage = self.algorithm.center_lineage
        if job.normalizer is None or lineage == population.lineage:
            return self._play(job, [*center, *tasks])
        # The centre is of another lineage than the members, and has seen other observations.
        own = replace(job, normalizer=self._normalizer(lineage), gather=False)
        alone, played = self._play(own, center), self._play(job, tasks)
        return replace(
            played, center_returns=alone.center_returns, center_lengths=alone.center_lengths
        )

    def _play(self, job: Job, tasks: Sequence[Task]) -> Episodes:
        self._pool.configure(self.setup, self._log)
        return self._pool.play(job, tasks)

    def _reference_state(self) -> State:
        batch = self._setup.reference_batch
        return {} if batch is None else {"reference_batch": batch.observations}

    def _reference_in(self, state: State) -> ReferenceBatch | None:
        """Return a state's reference batch; one from before the first generation may lack it."""
        size, found = self.policy.reference_size, state.get("reference_batch")
        if not size or (found is None and not state["progress"]["generation"]):
            return None
        expected = (size, self.policy.num_inputs)
        if found is None or found.shape != expected:
            seen = "it has none" if found is None else f"it has one of shape {list(found.shape)}"
            raise UsageError(
                f"no reference batch of shape {list(expected)} in the trained state ({seen}), "
                "which the policy's virtual batch normalisation needs"
            )
        return ReferenceBatch(found)

    def _statistics_of(self, lineage: int) -> ObservationStatistics:
        if lineage not in self._statistics:
            self._statistics[lineage] = ObservationStatistics(self.policy.num_inputs)
        return self._statistics[lineage]

    def _normalizer(self, lineage: int) -> Normalizer | None:
        settings = self.policy.settings
        if not settings.normalize_observations:
            return None
        return self._statistics_of(lineage).normalizer(settings.observation_clip)

    def _episode_cap(self) -> int | None:
        cap = self.spec.environment.max_episode_steps
        if cap == "adaptive":  # twice the mean length, as in OpenAI-ES
            return None if self._mean_length is None else max(1, math.ceil(2 * self._mean_length))
        return cap

    def _fitness(self, played: Episodes) -> Vector:
        """Return what an algorithm is told of each member: the mean return, shifted."""
        return _row_means(played.returns - self._reward_shift * played.lengths)

    def _counted(self, played: Episodes) -> Progress:
        """Return the progress with these episodes counted."""
        done = self._progress
        return replace(
            done,
            env_steps=done.env_steps + int(played.lengths.sum()),
            eval_env_steps=done.eval_env_steps + int(played.center_lengths.sum()),
            episodes=done.episodes + played.lengths.size,
        )

    def _learn(self, population: Population, played: Episodes) -> GenerationRecord:
        """Tell the algorithm, update the statistics and return the row, without its times."""
        returns = _row_means(played.returns)
        fitness = self._fitness(played)
        cap = self._episode_cap()
        before = self.algorithm.center
        normalizer = self._normalizer(population.lineage)
        threads = min(self._pool.size, usable_cores())  # the workers wait meanwhile
        told = replace(population, threads=threads)
        self.algorithm.tell(told, fitness, played.behaviors)
        if normalizer is not None:
            played.merge_into(self._statistics_of(population.lineage), normalizer.mean)
        self._mean_length = float(played.lengths.mean())
        progress = self._counted(played)
        self._progress = replace(progress, generation=progress.generation + 1)
        center_return = center_fitness = rank = math.nan
        if played.center_returns.size:
            shifts = self._reward_shift * played.center_lengths
            center_return = float(_row_means(played.center_returns[None, :])[0])
            center_fitness = float(_row_means((played.center_returns - shifts)[None, :])[0])
            rank = center_rank(center_fitness, fitness)
        measures = self._gauge.measure(
            told,
            fitness,
            centers=(before, self.algorithm.center),
            normalizers=(normalizer, self._normalizer(population.lineage)),
            ranked=not self.algorithm.needs_behaviors,
        )
        finite = returns[np.isfinite(returns)]
        return GenerationRecord(
            **vars(self._progress),
            population_size=len(population),
            population_return_mean=float(finite.mean()),
            population_return_std=float(finite.std()),
            population_return_min=float(finite.min()),
            population_return_max=float(finite.max()),
            center_return=center_return,
            center_rank=rank,
            center_rank_fraction=(rank - 1) / len(population),
            non_finite=int(returns.size - finite.size),
            episode_length_mean=self._mean_length,
            max_episode_steps=cap,
            sigma=self.algorithm.sigma,
            digest=digest(self.algorithm.center, played),
            **vars(measures),
        )


def make_algorithm_from(spec: TrialSpec, center: Vector, shapes: Shapes) -> Algorithm[Any]:
    """Return the algorithm of a specification, at ``center`` [P]."""
    cls: type[Algorithm[Any]] = ALGORITHMS.get(spec.algorithm.name)
    settings = parse(cls.Settings, spec.algorithm.settings, f"algorithm {spec.algorithm.name}")
    return cls(settings, center, spec.seed, shapes)


def digest(center: Vector, played: Episodes) -> str:
    """Return SHA-256 over the centre and all returns in member order, as little-endian float64."""
    parts = (center, played.returns, played.center_returns)
    return hashlib.sha256(b"".join(p.astype("<f8").tobytes() for p in parts)).hexdigest()


def _row_means(values: Vector) -> Vector:
    """Return the mean of each row, added from left to right; a row that is not finite gives NaN."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total
