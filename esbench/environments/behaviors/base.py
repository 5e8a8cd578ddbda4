"""The contract of every behaviour characterisation: an episode in, a vector out.

Each slot of a worker has its own recorder, which sees the episode of that slot only.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np

from esbench.arrays import Vector
from esbench.environments.backends.base import Backend
from esbench.errors import UsageError
from esbench.registry import Registry
from esbench.settings import Settings


class BehaviorSettings(Settings):
    """Settings of a behaviour characterisation; none by default."""


@final
class SlotView:
    """One slot of a backend, as it is after the last step; nothing is copied until it is read."""

    def __init__(self, backend: Backend, slot: int) -> None:
        self._backend = backend
        self._slot = slot

    @property
    def observation(self) -> Vector:
        """The last observation, flattened, [n]; a copy."""
        return np.array(self._backend.observations[self._slot], dtype=np.float64).reshape(-1)

    @property
    def info(self) -> dict[str, Any]:
        """The last info that the environment gave."""
        return self._backend.info(self._slot)

    @property
    def environment(self) -> gymnasium.Env[Any, Any]:
        """The slot's environment, to look at and not to touch.

        Its simulation (``unwrapped.data`` of MuJoCo's, say) is the slot's; other attributes may not
        be, where the backend is not ``gymnasium``.

        Raises:
            UsageError: the backend has none.
        """
        return self._backend.environment(self._slot)


class Behavior(ABC):
    """Records one slot's episodes, one after the other."""

    Settings: ClassVar[type[BehaviorSettings]] = BehaviorSettings

    def __init__(self, settings: Any, environment: str) -> None:
        """Serve the slots of ``environment`` (its name, for messages).

        Raises:
            UsageError: the environment cannot be characterised so.
        """
        self.settings = settings
        self.environment = environment

    @abstractmethod
    def begin(self, view: SlotView) -> None:
        """Forget the last episode; a new one has been reset."""

    @abstractmethod
    def step(self, view: SlotView) -> None:
        """See one more step; called after every step, the last one too."""

    @abstractmethod
    def end(self, view: SlotView) -> Vector:
        """Return what characterises the episode, [D]; the same D for every episode."""


def behavior_class(name: str) -> type[Behavior]:
    """Return the class registered as ``name``, or a person's own: "package.file:Class".

    Raises:
        UsageError: there is none, or it is no behaviour.
    """
    if ":" not in name:
        return BEHAVIORS.get(name)
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"behavior {name!r} cannot be imported ({error})") from error
    if not (isinstance(found, type) and issubclass(found, Behavior)) or inspect.isabstract(found):
        raise UsageError(
            f"behavior {name!r} is no behavior; expected a subclass of "
            "esbench.environments.behaviors.base.Behavior with begin, step and end"
        )
    return found


BEHAVIORS: Final[Registry[Behavior]] = Registry(
    "behavior", "esbench.environments.behaviors", "esbench.behaviors"
)
register_behavior = BEHAVIORS.register
