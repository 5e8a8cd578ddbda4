"""What every trainer is from outside: train, record rows, stop, resume and score."""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeAlias, final

from esbench.core.arrays import State
from esbench.core.errors import USER_CODE_ERRORS, UsageError, message_of, require_finite, shown
from esbench.core.process import end_if_interrupted
from esbench.core.processor import warn_if_not_fixed
from esbench.engine.engine import Engine, Stopwatch
from esbench.engine.jobs import Episodes
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.final_policy import HeldOutScore, Validation, Which
from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy
from esbench.experiment.watchers import Callback, Stop, TargetReturn, call_checked
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord


@final
@dataclass(frozen=True)
class Progress:
    """Counters of a run. The times exclude pauses and loading: workers, environments, batches."""

    generation: int = 0
    env_steps: int = 0
    eval_env_steps: int = 0
    episodes: int = 0
    wall_time_s: float = 0.0
    cpu_time_s: float = 0.0

    def with_episodes(self, played: Episodes) -> Progress:
        """The progress after further episodes."""
        return replace(
            self,
            env_steps=self.env_steps + int(played.lengths.sum()),
            eval_env_steps=self.eval_env_steps + played.eval_steps,
            episodes=self.episodes + played.lengths.size,
        )


CHECKPOINT_SECONDS: Final = 10.0
CHECKPOINT_SHARE: Final = 20  # a checkpoint of s seconds is written every 20 s seconds at most


class Recorder(Protocol):
    """Stores the records and states of a trainer, as the store's trial folder does."""

    def append(self, record: GenerationRecord, members: Mapping[str, Any]) -> None:
        """Store the record of one generation, and the members' data if they are wanted."""

    def checkpoint(self, state: State) -> None:
        """Store the state after the records so far."""


class Trainer(ABC):
    """One trial: an algorithm or an agent, an environment and a seed.

    Use it as a context manager, or call ``close``, if it owns its workers.

    Attributes:
        spec, progress: the specification and the counters so far.
        folder, done: where the trial is stored, if anywhere, and whether it has its score there.
        history: the records of the generations so far.
        stopped: the ``Stop`` that ended training early, even if that was before a resume.
        watch: the seconds spent on playing, updating and storing.
        shown: shows the progress of ``train``, if anything does.
    """

    def __init__(
        self,
        spec: TrialSpec,
        pool: Engine | None,
        recorder: Recorder | None,
        folder: Path | None,
        ended: Ended | None,
    ) -> None:
        """Prepare a trial.

        Args:
            spec: the specification.
            pool: the worker processes; by default the trainer owns one per core.
            recorder: stores records and checkpoints, if any.
            folder: of the trial; its ``log.txt`` has the output of environments.
            ended: scores and stores the trial when it ends; it is not trained further then.
        """
        warn_if_not_fixed()
        self.spec = spec
        self.progress = Progress()
        self.history: list[GenerationRecord] = []
        self.stopped: Stop | None = None
        self.watch = Stopwatch()
        self.folder = folder
        self.shown: Shown | None = None
        self.done = False
        self._closed = False
        self._resources = contextlib.ExitStack()
        self._owns_workers = pool is None
        self._pool: Engine = self._resources.enter_context(WorkerPool()) if pool is None else pool
        self._recorder = recorder
        self._ended = ended
        self._callbacks: list[Callback] = []
        self._needs_check = True  # of its episodes, before training
        self._validation: Validation | None = None
        self._consistent = True  # the state is that after the records so far
        self._counted = 0.0, 0.0  # the clocks when time was last counted
        self._told = 0  # the last generation whose callbacks have all returned
        self._saved = -math.inf  # when the last checkpoint was written [s]
        self._pause = 0.0  # at least until the next one [s]

    @final
    def __enter__(self) -> Self:
        return self

    @final
    def __exit__(self, *_: object) -> None:
        self.close()

    @final
    def __repr__(self) -> str:
        spec, progress = self.spec, self.progress
        most = "" if spec.budget.generations is None else f" of {spec.budget.generations}"
        state = f"generation {progress.generation}{most}, {progress.env_steps:,}"
        if self.stopped is not None:
            state = f"stopped ({self.stopped.reason}) after {state}"
        return (
            f"<{type(self).__name__} of {spec.algorithm.name} on {spec.environment.id}, seed "
            f"{spec.seed}: {state} of {spec.budget.env_steps:,} steps>"
        )

    @final
    def train(
        self, env_steps: int | None = None, callbacks: Callback | Sequence[Callback] = ()
    ) -> Stop | None:
        """Train until the budget is spent or a callback stops training; returns ``stopped``.

        A stored trial is then scored and marked as done; a further call returns at once.

        Args:
            env_steps: the total number of training steps to reach, in place of the budget of the
                specification. Call again with a larger number to continue.
            callbacks: one or several functions that are called with the record of every new
                generation; they may return ``Stop``.

        Raises:
            TrainingError: all returns of a generation are not finite, or an earlier update failed.
            UsageError: see ``check_episodes``, which is called if the trainer owns its workers; a
                callback is no function or returns something else, ``env_steps`` are negative or
                beyond a stored budget, or the trainer of a stored trial is closed.
        """
        if env_steps is not None:
            require_finite("env_steps", env_steps)
            if env_steps < 0:
                raise UsageError(f"env_steps = {env_steps}: expected 0 or more")
        functions = [callbacks] if callable(callbacks) else callbacks
        if not isinstance(functions, Sequence) or not all(map(callable, functions)):
            raise UsageError(f"callbacks = {shown(callbacks)}: expected functions")
        most = self.spec.budget.env_steps
        limit = most if env_steps is None else int(env_steps)
        if self._ended is None:
            self._train_with(limit, functions)
            return self.stopped
        if limit > most:
            raise UsageError(
                f"env_steps = {limit}: expected at most {most}, the budget of the trial in "
                f"{self.folder}"
            )
        if self.done:
            return self.stopped
        if self._closed:
            raise UsageError(f"the trainer of {self.folder} is closed; expected a new one")
        if self.stopped is None:  # else it was interrupted while it was scored
            self._train_with(limit, functions)
        if self.stopped or self._is_spent(most):
            self._ended(self)
            self.done = True
        return self.stopped

    @final
    def _train_with(self, limit: int, callbacks: Sequence[Callback]) -> None:
        budget = self.spec.budget
        self._callbacks = list(callbacks)
        untold = [record for record in self.history if record.generation > self._told]
        if budget.target_return is not None:
            target = TargetReturn(budget.target_return, budget.target_window)
            for record in self.history[: len(self.history) - len(untold)]:
                if stop := target(record):
                    self.stopped = stop
                    return
            self._callbacks.insert(0, target)
        self.stopped = None
        if self._owns_workers and not self.progress.generation:
            self.check_episodes()
        self._saved = time.monotonic()
        try:
            # An interrupt may have come between the last record and its callbacks.
            if not any(self._ends_with(record) for record in untold):
                with contextlib.ExitStack() as stack:
                    if self.shown is not None:
                        self._callbacks.insert(0, stack.enter_context(self.shown(self, self._pool)))
                    self._train(limit)
            self.save()
        except KeyboardInterrupt:  # also one that has interrupted a checkpoint
            try:
                self.save()
            except USER_CODE_ERRORS as error:  # a full disk, or a search's own
                self._pool.notice(f"the latest state is not saved: {message_of(error)}")
            raise

    @final
    def _ends_with(self, record: GenerationRecord) -> bool:
        """Call the callbacks with a new record; whether one stops training.

        Also writes a checkpoint if it is time.
        """
        stops = [stop for each in self._callbacks if (stop := call_checked(each, record))]
        self._told = record.generation
        if stops:
            self.stopped = stops[0]
            return True
        end_if_interrupted()
        now = time.monotonic()
        if now - self._saved >= max(CHECKPOINT_SECONDS, self._pause):
            self.save()
            self._saved = time.monotonic()
            self._pause = CHECKPOINT_SHARE * (self._saved - now)
        return False

    @final
    def _clocks(self) -> tuple[float, float]:
        """The wall-clock time and the CPU time of this process and of all workers [s]."""
        return time.perf_counter(), time.process_time() + self._pool.cpu_time_s

    @final
    def _count_time(self) -> None:
        """Add the time since it was last counted to the progress."""
        (wall, cpu), before, progress = self._clocks(), self._counted, self.progress
        self._counted = wall, cpu
        wall, cpu = progress.wall_time_s + wall - before[0], progress.cpu_time_s + cpu - before[1]
        self.progress = replace(progress, wall_time_s=wall, cpu_time_s=cpu)

    @final
    def save(self) -> None:
        """Write a checkpoint if there is a recorder and no update is incomplete."""
        if self._recorder is not None and self._consistent:
            self.watch.start()
            if (state := self.state_dict()) is not None:
                self._recorder.checkpoint(state)
            self.watch.lap("store")

    @final
    def own(self, resources: contextlib.ExitStack) -> None:
        """Let ``close`` close what ``resources`` hold, the worker processes included."""
        self._owns_workers = True
        self._resources.push(resources.pop_all())

    @final
    def close(self) -> None:
        """Close environments, end the worker processes and release the folder, if it owns them."""
        self._closed = True
        self._resources.close()

    @final
    def check_episodes(self) -> None:
        """Let a worker play the environment, unless tests have proven its backend.

        UsageError if episodes do not end, or depend on more than their seeds.
        """
        if self._needs_check:
            self._pool.check(self.spec.environment)

    @final
    def is_deterministic(self) -> bool | None:
        """Whether episodes are the same for all seeds; None if the environment fails."""
        return self._pool.is_deterministic(self.spec.environment)

    @abstractmethod
    def evaluate(self, episodes: int | None = None, which: Which = "last") -> HeldOutScore:
        """Score the last or the best policy on held-out episodes.

        By default, these are as many as the specification says.

        Raises:
            UsageError: there is no best policy.
        """

    @final
    @property
    def validated_generation(self) -> int | None:
        """The generation whose center validation has made the final policy; None without one."""
        return None if self._validation is None else self._validation.generation

    @abstractmethod
    def generation_of(self, which: Which) -> int:
        """The generation after which training had the last or the best policy."""

    @abstractmethod
    def policy(self, which: Which = "last") -> TrainedPolicy | TrainedAgent:
        """The last or the best policy so far, for use in any Gymnasium loop.

        Raises:
            UsageError: there is no such policy.
        """

    @abstractmethod
    def state_dict(self) -> State | None:
        """A copy of everything that is needed to continue; None if that is not possible."""

    @abstractmethod
    def load_state_dict(self, state: State, history: Sequence[GenerationRecord] = ()) -> None:
        """Restore what ``state_dict`` returned after the generations of ``history``."""

    @abstractmethod
    def _is_spent(self, env_steps: int) -> bool:
        """Whether nothing is left to train up to this total number of steps."""

    @abstractmethod
    def _train(self, env_steps: int) -> None:
        """Train up to this total number of steps; call ``_ends_with`` with every record."""


Shown: TypeAlias = Callable[[Trainer, Engine], contextlib.AbstractContextManager[Callback]]
"""A block in which something shows the progress; it is called with every record."""
Ended: TypeAlias = Callable[[Trainer], object]
"""Called when training ends, to score and store the trial."""
