"""The contract of every backend: a Gymnasium vector environment that never resets itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from esbench.registry import Registry

Array = npt.NDArray[Any]


class Backend(VectorEnv[Array, Array, Array], ABC):
    """``SyncVectorEnv`` with autoreset disabled, and slots that end stay ended.

    It differs from Gymnasium's in two ways, both for speed: a slot whose episode has ended (or that
    was never reset) is skipped by ``step`` until a masked ``reset`` revives it, and the arrays
    returned are the backend's own, valid until the next call. Infos are not gathered, only
    kept by those who were asked to ``expose`` them: ``info`` returns a slot's last one.

    Attributes:
        live: [S], whether a slot is in the middle of an episode.
        observations: [S, ...], the last observation of each slot.
        movable: whether a running episode can go on elsewhere, by ``save`` and ``restore``.
        most_slots: with how many slots it is fastest, if more only cost memory and time to load.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    live: npt.NDArray[np.bool_]
    observations: Array
    movable: bool = False
    most_slots: ClassVar[int | None] = None

    @classmethod
    @abstractmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Return whether this backend plays ``gymnasium.make(environment_id, **kwargs)``.

        The reference backend says so of everything, and is asked last.
        """

    @abstractmethod
    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        """Make ``slots`` environments of ``gymnasium.make(environment_id, **kwargs)``."""

    @abstractmethod
    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot; ``reset`` for one slot without a mask to build."""

    @abstractmethod
    def expose(self) -> None:
        """Keep what ``info`` and ``environment`` show, which may cost speed; none is live yet."""

    @abstractmethod
    def info(self, slot: int) -> dict[str, Any]:
        """Return what the environment of an exposed slot last gave as its info."""

    @abstractmethod
    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Return the Gymnasium environment of an exposed slot, to look at and not to touch.

        A backend that keeps the simulation elsewhere lends one with the slot's simulation in it;
        what else it holds may not be the slot's.

        Raises:
            UsageError: this backend has none.
        """

    def save(self, slot: int) -> Any:
        """Return a copy of what a slot's running episode goes on from; it can be pickled.

        Raises:
            RuntimeError: the episodes of this backend cannot be moved.
        """
        raise RuntimeError(f"episodes of {type(self).__name__} stay in their slots")

    def restore(self, slot: int, saved: Any) -> None:
        """Go on with an episode that this or another such backend has saved, to the bit.

        Raises:
            RuntimeError: the episodes of this backend cannot be moved.
        """
        raise RuntimeError(f"episodes of {type(self).__name__} stay in their slots")

    @final
    def retire(self, slot: int) -> None:
        """End a slot's episode from outside; the slot is skipped until its next reset."""
        self.live[slot] = False

    @final
    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Reset the slots of ``options["reset_mask"]`` (all by default) with explicit seeds.

        Args:
            seed: one seed a slot.
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


BACKENDS: Final[Registry[Backend]] = Registry(
    "backend", "esbench.environments.backends", "esbench.backends"
)
register_backend = BACKENDS.register
