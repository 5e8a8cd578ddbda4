"""The contract of every behavior characterization: it maps an episode to a vector.

Each slot of a worker has its own recorder, which sees the episodes of that slot only.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, UserCodeError
from esbench.core.registry import Registry, import_object
from esbench.core.settings import Settings
from esbench.environments.backends.backend import Backend


class BehaviorSettings(Settings, ABC):
    """Settings of a behavior characterization; none by default."""


@final
class SlotView:
    """One slot of a backend after the last step; data is copied only when it is read."""

    def __init__(self, backend: Backend, slot: int) -> None:
        self._backend = backend
        self._slot = slot

    @property
    def observation(self) -> Vector:
        """The last observation, flattened, [n]; a copy."""
        return np.array(self._backend.observations[self._slot], dtype=np.float64).reshape(-1)

    @property
    def info(self) -> dict[str, Any]:
        """The last info of the environment."""
        return self._backend.info(self._slot)

    @property
    def environment(self) -> gymnasium.Env[Any, Any]:
        """The environment of the slot, for reading only.

        Its simulation, such as ``unwrapped.data`` of MuJoCo, is that of the slot. With backends
        other than "gymnasium", other attributes may belong to another slot.

        Raises:
            UsageError: the backend has none.
        """
        return self._backend.environment(self._slot)


class Behavior(ABC):
    """Records the episodes of one slot, one after the other."""

    Settings: ClassVar[type[BehaviorSettings]] = BehaviorSettings

    def __init__(self, settings: Any, environment: str) -> None:
        """Record episodes of ``environment``; UsageError if it does not fit."""
        self.settings = settings
        self.environment = environment

    @abstractmethod
    def begin(self, view: SlotView) -> None:
        """Begin a new episode, after its reset."""

    @abstractmethod
    def step(self, view: SlotView) -> None:
        """Record a step; called after every step, including the last."""

    @abstractmethod
    def end(self, view: SlotView) -> Vector:
        """The behavior of the episode, [D]; D is the same for all episodes."""


def behavior_vector(behavior: Any) -> Vector:
    """What a behavior's ``end`` has returned, [D]; UserCodeError if these are no numbers."""
    try:
        return np.asarray(behavior, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise UserCodeError(
            f"the behavior of an episode is a {type(behavior).__name__} that is no array of "
            "numbers; expected an array [D]"
        ) from None


def behavior_class(name: str) -> type[Behavior]:
    """The class registered as ``name``, or a user's "package.file:Class"; UsageError if none."""
    if ":" not in name:
        return BEHAVIORS.get(name)
    found: Any = import_object("behavior", name)
    if not (isinstance(found, type) and issubclass(found, Behavior)) or inspect.isabstract(found):
        raise UsageError(
            f"behavior {name!r} is not a behavior; expected a subclass of "
            "esbench.Behavior with begin, step and end"
        )
    return found


BEHAVIORS: Final[Registry[Behavior]] = Registry(
    "behavior", "esbench.environments.behaviors", "esbench.behaviors"
)
register_behavior = BEHAVIORS.register
