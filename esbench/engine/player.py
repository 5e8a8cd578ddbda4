"""Plays episodes in slots; when one ends, its slot takes the next queued one at once.

An episode depends on its own seed, parameters and observations only: the slot, the other episodes
and their order do not change a bit. It can therefore continue in another slot or in another player,
if the backend can move it and neither the policy nor a behavior keeps state for it. Players use
this to move the last episodes to the first slots, and to share episodes.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import LARGEST_RETURN, Vector
from esbench.core.errors import UserCodeError
from esbench.core.generators import GeneratorWatch
from esbench.engine.engine import Stopwatch
from esbench.engine.jobs import CENTER, EpisodeResult, Job, Task
from esbench.engine.setup import Setup
from esbench.environments.backends.backend import MovableBackend
from esbench.environments.behaviors.behavior import Behavior, SlotView, behavior_vector
from esbench.environments.episode_check import LONGEST, no_time_limit
from esbench.environments.make_environment import make_environment
from esbench.environments.specifications import has_time_limit
from esbench.policies.normalization import Moments
from esbench.policies.policy import LowRankBatch, ReferredBatch, SharingBatch
from esbench.policies.spaces import Actions, Observations

# The number of observation elements that are normalized at once; they fit in a core's cache.
TOGETHER: Final = 2**15


@final
class Suspended(NamedTuple):
    """A running episode that any player of the same setup and job can continue."""

    task: Task
    simulation: Any  # the state that the backend has saved
    counters: list[Any]  # the player's sums so far
    noise: np.random.Generator | None  # the stream of the action noise


@final
class Player:
    """Plays the episodes of one job after the other in slots.

    Attributes:
        backend, policy, slots: the environments, the template and the number of slots.
        watch: the seconds spent to sample, reset, observe, act, simulate and count.
    """

    def __init__(self, setup: Setup, slots: int) -> None:
        """Make up to ``slots`` slots; a backend may offer fewer."""
        self._setup = setup
        self.backend = setup.make_backend(slots)
        slots = self.slots = self.backend.num_envs
        observations = self.backend.single_observation_space
        actions = self.backend.single_action_space
        self.policy = setup.make_policy(observations, actions)
        self._observations = Observations(observations, setup.environment.id)
        self._actions = Actions(actions, setup.environment.id)
        self._batch = self.policy.batch(slots)
        self._width = slots
        self._used = self._running = 0  # running episodes are in slots below _used
        self._tasks: list[Task | None] = [None] * slots
        self._noise: list[np.random.Generator | None] = [None] * slots
        self._returns = np.zeros(slots)
        self._clip = setup.environment.reward_clip
        self._clipped = np.zeros(slots)
        self._lengths = np.zeros(slots, dtype=np.int64)
        self._sums = np.zeros((slots, self._observations.size))
        self._squares = np.zeros((slots, self._observations.size))
        self._counters: list[npt.NDArray[Any]] = [
            self._returns, self._clipped, self._lengths, self._sums, self._squares
        ]  # fmt: skip
        together = min(slots, max(1, TOGETHER // self._observations.size))
        self._centered, self._squared = np.zeros((2, together, self._observations.size))
        self._pending: deque[Task | Suspended] = deque()
        self._job: Job
        self.watch = Stopwatch()
        self._behaviors: list[Behavior] = []  # one per slot, made when first needed
        environment = setup.environment
        self._watch: GeneratorWatch | None = GeneratorWatch()
        self._can_go_on = not has_time_limit(environment.id, environment.kwargs)
        self._views = [SlotView(self.backend, slot) for slot in range(slots)]

    def begin(self, job: Job, width: int | None = None) -> None:
        """Prepare for a job, with ``width`` episodes at once; running episodes are dropped."""
        self._job, self._used, self._running = job, 0, 0
        self._width = self.slots if width is None else min(width, self.slots)
        if job.characterize and not self._behaviors:
            self._behaviors = [self._setup.make_behavior() for _ in range(self.slots)]
        self._pending.clear()
        reference = self._setup.reference_inputs(job.normalizer)
        if reference is not None and isinstance(self._batch, ReferredBatch):
            self._batch.refer(reference)
        for slot in range(self.slots):
            self._tasks[slot] = None
            self.backend.retire(slot)
        if job.characterize:
            self.backend.expose()
        if self._watch is not None:
            self._watch = GeneratorWatch()

    def add(self, episodes: Sequence[Task | Suspended]) -> None:
        """Queue episodes to begin or to continue."""
        self._pending.extend(episodes)

    def give_up(self) -> list[Suspended]:
        """Remove half of the running episodes from their slots, if they can be moved."""
        if self._mover is None:
            return []
        return [self._suspend(self._used - 1) for _ in range(self._running // 2)]

    @property
    def free(self) -> int:
        """The number of idle slots without a queued episode."""
        return max(0, self._width - self._running - len(self._pending))

    @property
    def busy(self) -> bool:
        """Whether an episode is running or queued."""
        return bool(self._pending) or self._used > 0

    @property
    def _mover(self) -> MovableBackend | None:
        """The backend, if running episodes can be moved."""
        backend = self.backend
        if self._batch.remembers or self._job.characterize:
            return None
        return backend if isinstance(backend, MovableBackend) and backend.movable else None

    def step(self) -> list[EpisodeResult]:
        """Fill idle slots, step every running episode once and return those that ended."""
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite values are handled below
            self.watch.start()
            self._fill()
            if 2 * self._running <= self._used and self._mover is not None:
                self._close_ranks()
            return self._step()

    def require_no_draws(self) -> None:
        """Raises UserCodeError if the steps of a job have drawn from a global generator.

        A new environment may: the check before training has seen that its seed determines them.
        """
        if self._watch is None or not (drawn := self._watch.drawn()):
            return
        own, self._watch = self._setup.environment, GeneratorWatch()
        with contextlib.closing(make_environment(own.id, own.kwargs, own.wrappers)) as env:
            env.reset(seed=0)
        if not self._watch.drawn():
            raise UserCodeError(
                f"the generator {next(iter(drawn))} was drawn from while environment {own.id!r} "
                "was played, so results would depend on the number of workers; expected random "
                "numbers from self.np_random in an environment, and none in a network"
            )
        self._watch = None

    def close(self) -> None:
        """Close the environments."""
        self.backend.close()

    def _step(self) -> list[EpisodeResult]:
        job, used, watch = self._job, self._used, self.watch
        if used == 0:
            return []
        inputs = self._observe(used)
        watch.lap("observe")
        live = None if self._running == used else np.flatnonzero(self.backend.live[:used]).tolist()
        outputs = self._batch.forward(inputs, live)
        finite = np.isfinite(outputs)
        broken = [] if finite.all() else self._end_not_finite(np.logical_and.reduce(finite, axis=1))
        actions = self._act(outputs)
        watch.lap("act")
        _, rewards, terminated, truncated, _ = self.backend.step(actions)
        watch.lap("simulate")
        self._returns += rewards
        if self._clip is not None:
            self._clipped += np.clip(rewards, *self._clip)
        self._lengths[:used] += 1
        endless = self._can_go_on and job.max_steps is None
        lengths, running = self._lengths[:used], self.backend.live[:used]  # empty slots count on
        if endless and lengths.max(where=running, initial=0) > LONGEST:
            raise UserCodeError(no_time_limit(self._setup.environment.id, LONGEST))
        if job.characterize:
            for slot, task in enumerate(self._tasks[:used]):
                if task is not None and task.member != CENTER:
                    self._behaviors[slot].step(self._views[slot])
        ended = terminated[:used] | truncated[:used]
        if job.max_steps is not None:
            ended |= self._lengths[:used] >= job.max_steps
        finished = [
            self._finish(slot)
            for slot in np.flatnonzero(ended).tolist()
            if self._tasks[slot] is not None
        ]
        watch.lap("count")
        return broken + finished

    def _fill(self) -> None:
        while self._pending and self._running < self._width:
            slot, episode = self._tasks.index(None), self._pending.popleft()
            match episode:
                case Task():
                    self._start(slot, episode)
                case Suspended() if self._mover is not None:
                    self._resume(slot, episode)
                case Suspended(task=task):  # cannot be moved here: from the start
                    self._start(slot, task)

    def _start(self, slot: int, task: Task) -> None:
        job = self._job
        self._occupy(slot, task)
        self.backend.start(slot, job.environment_seed(task))
        self.watch.lap("reset")
        self._noise[slot] = job.noise_stream(task) if job.action_noise else None
        for counter in self._counters:
            counter[slot] = 0
        if job.characterize and task.member != CENTER:
            self._behaviors[slot].begin(self._views[slot])

    def _resume(self, slot: int, episode: Suspended) -> None:
        self._occupy(slot, episode.task)
        mover = self._mover
        assert mover is not None, "suspended by a backend that moves episodes"
        mover.restore(slot, episode.simulation)
        self._noise[slot] = episode.noise
        for counter, value in zip(self._counters, episode.counters, strict=True):
            counter[slot] = value
        self.watch.lap("reset")

    def _occupy(self, slot: int, task: Task) -> None:
        self._load(slot, task.member)
        self._tasks[slot] = task
        self._used = max(self._used, slot + 1)
        self._running += 1
        self.watch.lap("sample")

    def _load(self, slot: int, member: int) -> None:
        batch, twin = self._batch, self._twin(member)
        if isinstance(batch, SharingBatch) and twin is not None:
            batch.share(slot, twin)
            return
        if isinstance(batch, LowRankBatch) and batch.takes_low_rank:
            low_rank = self._job.low_rank(member)
            if low_rank is not None:
                batch.load_low_rank(slot, low_rank)
                return
        batch.load(slot, self._job.parameters(member))

    def _twin(self, member: int) -> int | None:
        """A slot in which the same member plays another episode, or None."""
        for slot, task in enumerate(self._tasks[: self._used]):
            if task is not None and task.member == member:
                return slot
        return None

    def _suspend(self, slot: int) -> Suspended:
        mover = self._mover
        assert mover is not None, "only called if episodes can be moved"
        simulation = mover.save(slot)
        counters = [counter[slot].copy() for counter in self._counters]
        return Suspended(self._vacate(slot), simulation, counters, self._noise[slot])

    def _vacate(self, slot: int) -> Task:
        task = self._tasks[slot]
        assert task is not None
        self._tasks[slot] = None
        self._running -= 1
        while self._used and self._tasks[self._used - 1] is None:
            self._used -= 1
        self.backend.retire(slot)
        return task

    def _close_ranks(self) -> None:
        """Move the last episodes to the first slots, so that no step computes empty slots."""
        for slot in range(self._running):
            if self._tasks[slot] is None:
                self._resume(slot, self._suspend(self._used - 1))

    def _observe(self, used: int) -> npt.NDArray[np.float32]:
        """The inputs of the policy, [used, n]; adds the observations to the moments."""
        job = self._job
        observations = self._observations.encode(self.backend.observations[:used])
        if job.normalizer is None:
            return observations.astype(np.float32)
        inputs = np.empty(observations.shape, np.float32)
        together = len(self._centered)
        for first in range(0, used, together):
            rows = slice(first, min(first + together, used))
            centered = self._centered[: rows.stop - first]
            np.subtract(observations[rows], job.normalizer.mean, out=centered)
            if job.gather:
                squared = self._squared[: rows.stop - first]
                self._sums[rows] += centered
                self._squares[rows] += np.multiply(centered, centered, out=squared)
            job.normalizer.scale_into(inputs[rows], centered)
        return inputs

    def _act(self, outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
        if self._job.action_noise:
            outputs = outputs.copy()
            for slot, generator in enumerate(self._noise[: len(outputs)]):
                if generator is not None and self._tasks[slot] is not None:
                    noise = generator.standard_normal(outputs[slot].shape)
                    noise *= self._job.action_noise
                    outputs[slot] += noise.astype(np.float32)
        return self._actions.decode(outputs)

    def _end_not_finite(self, finite: npt.NDArray[np.bool_]) -> list[EpisodeResult]:
        """End the episodes whose next action is not finite, before the simulator receives it."""
        results = []
        for slot in np.flatnonzero(~finite).tolist():
            if self._tasks[slot] is not None:
                self._returns[slot] = np.nan
                results.append(self._finish(slot))
        return results

    def _finish(self, slot: int) -> EpisodeResult:
        task = self._vacate(slot)
        total, length = float(self._returns[slot]), int(self._lengths[slot])
        moments: Moments | None = None
        behavior: Vector | None = None
        if task.member != CENTER:
            if self._job.gather:
                moments = (length, self._sums[slot].copy(), self._squares[slot].copy())
            if self._job.characterize:
                behavior = behavior_vector(self._behaviors[slot].end(self._views[slot]))
        total = total if abs(total) <= LARGEST_RETURN else float("nan")
        clipped = None
        if self._clip is not None:
            clipped = float(self._clipped[slot]) if np.isfinite(total) else total
        return EpisodeResult(task, total, length, moments, behavior, clipped)
