"""The contract of every backend: it steps many environments and never resets them itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, Final, TypeAlias, cast, final

import gymnasium
import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, unknown
from esbench.core.registry import Registry
from esbench.environments.make_environment import make_environment
from esbench.environments.specifications import entry_point

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
StepResult: TypeAlias = tuple[Array, Vector, Flags, Flags, dict[str, Any]]
"""Observations, rewards, terminations, truncations, each [S, ...], and no infos."""
SavedEpisode: TypeAlias = tuple[Any, Array, int]
"""The state of a running episode, its last observation and the number of its steps."""
NEVER: Final = int(np.iinfo(np.int64).max)
AUTO: Final = "auto"
GYMNASIUM: Final = "gymnasium"


class Backend(ABC):
    """Environments in slots, stepped together and reset one by one.

    It resembles ``SyncVectorEnv`` without autoreset, but is faster. A slot whose episode has ended,
    or that was never started, is skipped by ``step``. The returned arrays belong to the backend and
    are valid until the next call. ``step`` returns no infos; after ``expose``, ``info`` returns the
    last one of a slot.

    Attributes:
        num_envs: S, the number of slots.
        single_observation_space, single_action_space: those of one environment.
        live: [S], whether a slot is in the middle of an episode.
        observations: [S, ...], the last observation of each slot.
        most_slots: the largest useful number of slots, if more only cost memory and loading time.
    """

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    live: Flags
    observations: Array
    most_slots: ClassVar[int | None] = None

    @classmethod
    @abstractmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether this backend plays ``gymnasium.make(environment_id, **kwargs)``."""

    @abstractmethod
    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        """Make ``slots`` environments of ``gymnasium.make(environment_id, **kwargs)``."""

    @abstractmethod
    def start(self, slot: int, seed: int) -> None:
        """Reset one slot with a seed."""

    @abstractmethod
    def expose(self) -> None:
        """Keep what ``info`` and ``environment`` return; called before the first episode."""

    @abstractmethod
    def info(self, slot: int) -> dict[str, Any]:
        """The last info of an exposed slot."""

    @abstractmethod
    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The Gymnasium environment of an exposed slot, for reading only; UsageError if none.

        A backend that keeps the simulation elsewhere returns an environment with the simulation of
        the slot; its other attributes may belong to another slot.
        """

    @final
    def retire(self, slot: int) -> None:
        """End the episode of a slot early; the slot is skipped until its next reset."""
        self.live[slot] = False

    @abstractmethod
    def step(self, actions: Array) -> StepResult:
        """Step the live slots; the others keep their last observation and get reward 0.

        Args:
            actions: [k, ...] for the slots 0..k-1; all live slots must be among them.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""

    @final
    def _describe(self, env: gymnasium.Env[Any, Any], slots: int) -> None:
        self.num_envs = slots
        space = self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observations = np.zeros((slots, *(space.shape or ())), dtype=space.dtype)
        self.live = np.zeros(slots, np.bool_)
        self._rewards = np.zeros(slots)
        self._terminations, self._truncations = np.zeros((2, slots), np.bool_)


class FastBackend(Backend, ABC):
    """A faster equivalent of the Gymnasium loop for certain classes, under any name.

    ``entry_points`` are those of the environments that it plays; ``plays`` describes them.
    """

    name: ClassVar[str]
    entry_points: ClassVar[Collection[str]]
    plays: ClassVar[str]

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        """Make the environment in which episodes begin; UsageError if it is not played here."""
        self._env = make_environment(environment_id, kwargs)
        if not self.serves(environment_id, kwargs):
            raise UsageError(
                f"backend {self.name!r} does not play {environment_id!r}: expected {self.plays}, "
                "without render_mode or wrappers; use the backend 'gymnasium'"
            )
        self._plain = cast(Any, self._env.unwrapped)
        self._describe(self._env, slots)
        self._elapsed = np.zeros(slots, np.int64)  # steps of the running or last episode
        limited = self._env.has_wrapper_attr("_max_episode_steps")  # by ``TimeLimit``
        self._limit = self._env.get_wrapper_attr("_max_episode_steps") if limited else NEVER

    @classmethod
    @final
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether the class of the environment is one of them, and it is not rendered."""
        return entry_point(environment_id, kwargs) in cls.entry_points

    @final
    def _begin(self, slot: int, elapsed: int = 0) -> None:
        """Begin an episode, or continue one that has had ``elapsed`` steps elsewhere."""
        self._elapsed[slot] = elapsed
        self._terminations[slot] = self._truncations[slot] = False
        self.live[slot] = True

    @final
    def _settle(
        self, rewards: Vector, terminated: Flags, truncated: Flags | None = None
    ) -> StepResult:
        """Record a step of the live ones of the first k slots; each argument is [k].

        ``truncated`` is by the simulator itself; the limit of steps is added here.
        """
        count = len(rewards)
        live, elapsed = self.live[:count], self._elapsed[:count]
        self._rewards.fill(0.0)
        np.copyto(self._rewards[:count], rewards, where=live)
        elapsed += live
        over = elapsed >= self._limit if truncated is None else (elapsed >= self._limit) | truncated
        ended = (terminated | over) & live
        if ended.any():
            self._terminations[:count] |= terminated & ended
            self._truncations[:count] |= over & ended
            live[ended] = False
        return self.observations, self._rewards, self._terminations, self._truncations, {}

    @final
    def _lend(self, **own: Any) -> gymnasium.Env[Any, Any]:
        """A copy of the environment with some attributes of its own."""
        lent: gymnasium.Env[Any, Any] = object.__new__(type(self._plain))
        vars(lent).update(vars(self._plain), **own)
        return lent

    @final
    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class MovableBackend(FastBackend, ABC):
    """A backend that can move a running episode to another slot, while it is ``movable``."""

    movable: bool = True

    @final
    def save(self, slot: int) -> SavedEpisode:
        """A copy of the running episode of a slot, which can be pickled."""
        assert self.movable, "the backend cannot move its episodes now"
        return self._save(slot), self.observations[slot].copy(), int(self._elapsed[slot])

    @final
    def restore(self, slot: int, saved: SavedEpisode) -> None:
        """Continue a saved episode of this or another backend of the same class, bit for bit."""
        assert self.movable, "the backend cannot move its episodes now"
        state, self.observations[slot], elapsed = saved
        self._restore(slot, state)
        self._begin(slot, elapsed)

    @abstractmethod
    def _save(self, slot: int) -> Any:
        """A copy of the simulator's state."""

    @abstractmethod
    def _restore(self, slot: int, state: Any) -> None:
        """Put a saved state into a slot."""


BACKENDS: Final[Registry[Backend]] = Registry(
    "backend", "esbench.environments.backends", "esbench.backends"
)
register_backend = BACKENDS.register


def backend_name(wanted: str, environment_id: str, kwargs: dict[str, Any]) -> str:
    """``wanted``; for "auto" the first backend that serves the environment.

    The Gymnasium loop comes last. Backends of plugins are used only if they are named.
    """
    if wanted != AUTO:
        return wanted
    others = (name for name in BACKENDS.builtin_names() if name != GYMNASIUM)
    serving = (name for name in others if BACKENDS.get(name).serves(environment_id, kwargs))
    return next(serving, GYMNASIUM)


def check_backend(name: str) -> None:
    """Raises UsageError if a backend is neither registered nor "auto"."""
    if name != AUTO and name not in (known := BACKENDS.names()):
        raise unknown("backend", name, [AUTO, *known])
