"""Episodes for a population: slots, refill and per-episode seeds.

A ``Player`` owns S slots. When an episode ends, its slot takes the next pending one at once, so no
step is spent on a finished episode. What an episode does depends on its own seed, parameters and
observations only: neither the slot, nor the neighbours, nor the order leave a trace in the bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from esbench.backends.base import Backend
from esbench.backends.choice import backend_name
from esbench.behaviors.base import Behavior, SlotView, behavior_class
from esbench.errors import UsageError
from esbench.policies.base import Policy
from esbench.policies.normalization import Moments, Normalizer, ObservationStatistics
from esbench.policies.spaces import Actions, Observations, Space
from esbench.population import Matrix, Population, Vector
from esbench.registry import BACKENDS, POLICIES
from esbench.seeding import Purpose, episode_seed, stream
from esbench.settings import parse
from esbench.spec import EnvironmentSpec, EpisodeSeeds, PolicySpec
from esbench.stopwatch import Stopwatch

CENTER = -1  # the "member" that is the unperturbed policy


class Task(NamedTuple):
    """One episode to play: which member (or ``CENTER``), and which of its episodes."""

    member: int
    episode: int


class EpisodeResult(NamedTuple):
    """One episode as played: its undiscounted return, unshifted, and its length in steps.

    ``total`` is NaN if an action or a reward was not finite. ``moments`` are the observations'
    count, sum and sum of squares about the normaliser's mean, or None if they were not gathered;
    ``behavior`` is what characterises the episode, [D], or None.
    """

    task: Task
    total: float
    length: int
    moments: Moments | None
    behavior: Vector | None = None


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
@dataclass(frozen=True)
class Setup:
    """What a worker needs to know once for each trial: the environment and the policy."""

    environment: EnvironmentSpec
    policy: PolicySpec

    def make_backend(self, slots: int) -> Backend:
        """Return the environment's slots."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return backend(self.environment.id, self.environment.kwargs, slots)

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
        if len(observations.shape or ()) >= 3 and not cls.takes_images:
            raise UsageError(
                f"{name}: its observations are images {observations.shape}; the policy "
                f"{self.policy.template!r} takes vectors (give a torch.nn.Module of your own)"
            )
        return cls(settings, inputs, outputs)


@final
class Player:
    """Plays the episodes of one job after the other in S slots.

    Attributes:
        backend: its slots.
        policy: the template.
        watch: the seconds spent to sample, reset, observe, act, simulate and count.
    """

    def __init__(self, setup: Setup, slots: int) -> None:
        self.backend = setup.make_backend(slots)
        observations = self.backend.single_observation_space
        actions = self.backend.single_action_space
        self.policy = setup.make_policy(observations, actions)
        self._observations = Observations(observations, setup.environment.id)
        self._actions = Actions(actions, setup.environment.id)
        self._batch = self.policy.batch(slots)
        self._slots = self._width = slots
        self._used = self._running = 0  # the running episodes are in the slots below the first
        self._tasks: list[Task | None] = [None] * slots
        self._noise: list[np.random.Generator | None] = [None] * slots
        self._returns = np.zeros(slots)
        self._lengths = np.zeros(slots, dtype=np.int64)
        self._sums = np.zeros((slots, self._observations.size))
        self._squares = np.zeros((slots, self._observations.size))
        self._pending: deque[Task] = deque()
        self._job: Job | None = None
        self._setup = setup
        self.watch = Stopwatch()
        self._behaviors: list[Behavior] = []  # one a slot, made when they are first needed
        self._views = [SlotView(self.backend, slot) for slot in range(slots)]

    def begin(self, job: Job, width: int | None = None) -> None:
        """Make ready for the episodes of a job; whatever was running is dropped.

        Args:
            job: what is played.
            width: how many episodes to run at once; as many as there are slots by default.
        """
        self._job, self._used, self._running = job, 0, 0
        self._width = self._slots if width is None else min(width, self._slots)
        if job.characterize and not self._behaviors:
            self._behaviors = [self._setup.make_behavior() for _ in range(self._slots)]
        self._pending.clear()
        for slot in range(self._slots):
            self._tasks[slot] = None
            self.backend.retire(slot)
        if job.characterize:
            self.backend.expose()

    def add(self, tasks: Sequence[Task]) -> None:
        """Queue episodes."""
        self._pending.extend(tasks)

    @property
    def free(self) -> int:
        """How many slots are idle with no episode queued for them."""
        return max(0, self._width - self._running - len(self._pending))

    @property
    def busy(self) -> bool:
        """Whether an episode is running or queued."""
        return bool(self._pending) or self._used > 0

    def step(self) -> list[EpisodeResult]:
        """Fill idle slots, step every running episode once and return those that ended."""
        assert self._job is not None, "begin a job first"
        self.watch.start()
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is counted below
            self._fill(self._job)
            return self._step(self._job)

    def close(self) -> None:
        """Close the environments."""
        self.backend.close()

    def _step(self, job: Job) -> list[EpisodeResult]:
        used = self._used
        if used == 0:
            return []
        watch = self.watch
        inputs = self._observe(job, used)
        watch.lap("observe")
        live = None if self._running == used else np.flatnonzero(self.backend.live[:used]).tolist()
        outputs = self._batch.forward(inputs, live)
        finite = np.isfinite(outputs)
        sick = [] if finite.all() else self._retire_sick(np.logical_and.reduce(finite, axis=1))
        actions = self._act(job, outputs)
        watch.lap("act")
        _, rewards, terminated, truncated, _ = self.backend.step(actions)
        watch.lap("simulate")
        self._returns += rewards
        self._lengths[:used] += 1
        if job.characterize:
            self._record_step(used)
        ended = terminated[:used] | truncated[:used]
        if job.max_steps is not None:
            ended |= self._lengths[:used] >= job.max_steps
        finished = []
        if ended.any():
            finished = [
                self._finish(slot)
                for slot in np.flatnonzero(ended).tolist()
                if self._tasks[slot] is not None
            ]
        watch.lap("count")
        return sick + finished

    def _fill(self, job: Job) -> None:
        while self._pending and self._running < self._width:
            slot, task = self._tasks.index(None), self._pending.popleft()
            self._tasks[slot] = task
            self._used = max(self._used, slot + 1)
            self._running += 1
            self._batch.load(slot, job.parameters(task.member))
            self.watch.lap("sample")
            self.backend.start(slot, job.environment_seed(task))
            self.watch.lap("reset")
            self._noise[slot] = job.noise_stream(task) if job.action_noise else None
            self._returns[slot] = 0.0
            self._lengths[slot] = 0
            self._sums[slot] = 0.0
            self._squares[slot] = 0.0
            if job.characterize and task.member != CENTER:
                self._behaviors[slot].begin(self._views[slot])

    def _record_step(self, used: int) -> None:
        for slot, task in enumerate(self._tasks[:used]):
            if task is not None and task.member != CENTER:
                self._behaviors[slot].step(self._views[slot])

    def _observe(self, job: Job, used: int) -> npt.NDArray[np.float32]:
        """Return the policy's inputs [used, n] and count them into the episodes' moments."""
        observations = self._observations.encode(self.backend.observations[:used])
        if job.normalizer is None:
            return observations.astype(np.float32)
        normalizer = job.normalizer
        centred: Vector = observations - normalizer.mean
        if job.gather:
            self._sums[:used] += centred
            self._squares[:used] += centred * centred
        centred *= normalizer.scale
        np.maximum(centred, -normalizer.clip, out=centred)
        np.minimum(centred, normalizer.clip, out=centred)
        inputs: npt.NDArray[np.float32] = centred.astype(np.float32)
        return inputs

    def _act(self, job: Job, outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
        if job.action_noise:
            outputs = outputs.copy()
            for slot, generator in enumerate(self._noise[: len(outputs)]):
                if generator is not None and self._tasks[slot] is not None:
                    noise = generator.standard_normal(outputs[slot].shape)
                    noise *= job.action_noise
                    outputs[slot] += noise.astype(np.float32)
        return self._actions.decode(outputs)

    def _retire_sick(self, finite: npt.NDArray[np.bool_]) -> list[EpisodeResult]:
        """End the episodes whose next action is not finite, before the simulator sees it."""
        results = []
        for slot in np.flatnonzero(~finite).tolist():
            if self._tasks[slot] is not None:
                self._returns[slot] = np.nan
                results.append(self._finish(slot))
        return results

    def _finish(self, slot: int) -> EpisodeResult:
        task = self._tasks[slot]
        assert task is not None
        assert self._job is not None
        self._tasks[slot] = None
        self._running -= 1
        while self._used and self._tasks[self._used - 1] is None:
            self._used -= 1
        self.backend.retire(slot)
        total, length = float(self._returns[slot]), int(self._lengths[slot])
        moments: Moments | None = None
        if self._job.gather and task.member != CENTER:
            moments = (length, self._sums[slot].copy(), self._squares[slot].copy())
        behavior: Vector | None = None
        if self._job.characterize and task.member != CENTER:
            behavior = self._behaviors[slot].end(self._views[slot])
        total = total if np.isfinite(total) else float("nan")
        return EpisodeResult(task, total, length, moments, behavior)


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """What was played, in task order.

    Attributes:
        returns: [members, episodes], NaN where an action or reward was not finite.
        lengths: [members, episodes] in steps.
        center_returns, center_lengths: [episodes]; empty if the centre did not play.
        moments: of the members' episodes in member order; empty if not gathered.
        behaviors: [members, D], the mean over a member's episodes; D = 0 if not gathered.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    center_returns: npt.NDArray[np.float64]
    center_lengths: npt.NDArray[np.int64]
    moments: list[Moments]
    behaviors: Matrix

    def joined(self, more: Episodes) -> Episodes:
        """Return these episodes followed by those of further members."""
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

        Episodes with a return or an observation that is not finite are left out.

        The order is the members', however the results arrived, so the bits do not depend on it.
        """
        for total, moments in zip(self.returns.ravel().tolist(), self.moments, strict=True):
            if np.isfinite(total) and np.isfinite(moments[2]).all():
                statistics.merge(moments, shift)


def collect(tasks: Sequence[Task], results: dict[Task, EpisodeResult]) -> Episodes:
    """Return the results of ``tasks`` as arrays, whatever order they came in."""
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
    """Return the mean behaviour of each member, [members, D]; episodes are added in order."""
    given = [behavior for behavior in behaviors if behavior is not None]
    rows = np.array(given).reshape(len(behaviors), -1) if given else np.empty((len(behaviors), 0))
    total = np.zeros((len(rows) // episodes, rows.shape[1]))
    for episode in range(episodes):
        total += rows[episode::episodes]
    return total / episodes


def member_tasks(members: range, episodes: int) -> list[Task]:
    """Return the episodes of a range of members, in member order."""
    return [Task(member, episode) for member in members for episode in range(episodes)]
