"""The contract of every backend: a Gymnasium vector environment that never resets itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from esbench.errors import UsageError
from esbench.registry import Registry

Array = npt.NDArray[Any]


class Backend(VectorEnv[Array, Array, Array], ABC):
    """``SyncVectorEnv`` with autoreset disabled, where ended slots are skipped.

    It differs from Gymnasium's in two ways, both for speed. A slot whose episode has ended, or that
    was never reset, is skipped by ``step`` until it is reset. The returned arrays belong to the
    backend and are valid until the next call. ``step`` returns no infos; after ``expose``, ``info``
    returns the last one of a slot.

    Attributes:
        live: [S], whether a slot is in the middle of an episode.
        observations: [S, ...], the last observation of each slot.
        most_slots: the largest useful number of slots, if more only cost memory and loading time.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    live: npt.NDArray[np.bool_]
    observations: Array
    most_slots: ClassVar[int | None] = None

    @classmethod
    @abstractmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether this backend plays ``gymnasium.make(environment_id, **kwargs)``.

        The Gymnasium loop serves every environment and is asked last.
        """

    @abstractmethod
    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        """Make ``slots`` environments of ``gymnasium.make(environment_id, **kwargs)``."""

    @abstractmethod
    def start(self, slot: int, seed: int) -> None:
        """Reset one slot with a seed."""

    @abstractmethod
    def expose(self) -> None:
        """Keep what ``info`` and ``environment`` return, which may cost speed.

        Called before the first episode.
        """

    @abstractmethod
    def info(self, slot: int) -> dict[str, Any]:
        """The last info of an exposed slot."""

    @abstractmethod
    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The Gymnasium environment of an exposed slot, for reading only.

        A backend that keeps the simulation elsewhere returns an environment with the simulation of
        the slot; its other attributes may belong to another slot.

        Raises:
            UsageError: this backend has none.
        """

    @final
    def retire(self, slot: int) -> None:
        """End the episode of a slot early; the slot is skipped until its next reset."""
        self.live[slot] = False

    @final
    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Reset the slots of ``options["reset_mask"]``, by default all, with explicit seeds.

        Args:
            seed: one seed per slot.
            options: ``{"reset_mask": [S] of bool}``, or nothing.

        Returns:
            The observations [S, ...] and no infos.
        """
        if not isinstance(seed, list) or len(seed) != self.num_envs:
            raise ValueError(f"seed = {seed!r}: expected a list of {self.num_envs} seeds")
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        for slot in np.flatnonzero(mask).tolist():
            chosen = seed[slot]
            if chosen is None:
                raise ValueError(f"no seed for slot {slot}: every episode needs its own")
            self.start(slot, chosen)
        return self.observations, {}

    @abstractmethod
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots; the others keep their last observation and get reward 0.

        Args:
            actions: [k, ...] for the slots 0..k-1; all live slots must be among them.

        Returns:
            Observations, rewards, terminations, truncations, each [S, ...], and no infos.
        """

    @final
    def _describe(self, env: gymnasium.Env[Any, Any], slots: int) -> None:
        """Set spaces and observations for ``slots`` copies of an environment."""
        self.num_envs = slots
        space = self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(space, slots)
        self.action_space = batch_space(env.action_space, slots)
        self.observations = np.zeros((slots, *(space.shape or ())), dtype=space.dtype)


def not_served(backend: str, environment_id: str, expected: str) -> UsageError:
    """The error of a backend that was chosen for an environment that it does not serve."""
    return UsageError(
        f"backend {backend!r} does not play {environment_id!r}: expected {expected}, without "
        "render_mode or wrappers; use the backend 'gymnasium'"
    )


class MovableBackend(Backend, ABC):
    """A backend that can move a running episode to another slot.

    Attributes:
        movable: whether it can do so now.
    """

    movable: bool = True

    @abstractmethod
    def save(self, slot: int) -> Any:
        """A copy of the running episode of a slot, which can be pickled."""

    @abstractmethod
    def restore(self, slot: int, saved: Any) -> None:
        """Continue a saved episode of this or another backend of the same class, bit for bit."""


BACKENDS: Final[Registry[Backend]] = Registry(
    "backend", "esbench.environments.backends", "esbench.backends"
)
register_backend = BACKENDS.register
