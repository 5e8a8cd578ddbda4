"""The contract of every backend: a Gymnasium vector environment that never resets itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

Array = npt.NDArray[Any]


class Backend(VectorEnv[Array, Array, Array]):
    """``SyncVectorEnv`` with autoreset disabled, and slots that end stay ended.

    It differs from Gymnasium's in two ways, both for speed: a slot whose episode has ended (or that
    was never reset) is skipped by ``step`` until a masked ``reset`` revives it, and the arrays
    returned are the backend's own, valid until the next call. Infos are not gathered, only
    kept: ``info`` returns a slot's last one.

    Attributes:
        live: [S], whether a slot is in the middle of an episode.
        observations: [S, ...], the last observation of each slot.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    live: npt.NDArray[np.bool_]
    observations: Array

    @abstractmethod
    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        """Make ``slots`` environments of ``gymnasium.make(environment_id, **kwargs)``."""

    @abstractmethod
    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot; ``reset`` for one slot without a mask to build."""

    @abstractmethod
    def info(self, slot: int) -> dict[str, Any]:
        """Return what the environment of a slot last gave as its info."""

    @abstractmethod
    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Return the Gymnasium environment of a slot, to look at.

        Raises:
            UsageError: this backend has none.
        """

    @abstractmethod
    def retire(self, slot: int) -> None:
        """End a slot's episode from outside; the slot is skipped until its next reset."""
