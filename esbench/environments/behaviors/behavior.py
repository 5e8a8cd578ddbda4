"""Behavior characterizations, which map an episode to a vector: their contract, and three of them.

Each slot of a worker has its own recorder, which sees the episodes of that slot only. Those below
are of Conti et al. 2018 (arXiv:1712.06560): the end of an episode, and the memory of a game.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError, UserCodeError
from esbench.core.registry import Registry
from esbench.core.settings import Count, Settings
from esbench.core.user_code import import_object
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
    found: type[Behavior] = import_object("behavior", name, Behavior)
    return found


BEHAVIORS: Final[Registry[Behavior]] = Registry(
    "behavior", "esbench.environments.behaviors", "esbench.behaviors"
)
register_behavior = BEHAVIORS.register


@final
@register_behavior("final_observation")
class FinalObservation(Behavior):
    """The last observation."""

    def begin(self, view: SlotView) -> None:
        """Do nothing."""

    def step(self, view: SlotView) -> None:
        """Do nothing."""

    def end(self, view: SlotView) -> Vector:
        """The last observation, flattened."""
        return view.observation


@final
@register_behavior("final_position")
class FinalPosition(Behavior):
    """The final position of a robot, (x, y)."""

    def begin(self, view: SlotView) -> None:
        """Begin an episode without steps."""
        self._stepped = False

    def step(self, view: SlotView) -> None:
        """Remember that there was a step."""
        self._stepped = True

    def end(self, view: SlotView) -> Vector:
        """The position (x, y), with 0 for a missing coordinate.

        It is the info's ``x_position`` and ``y_position``, as in Gymnasium's MuJoCo tasks, or else
        the first two generalized coordinates of the MuJoCo data. NaN if an episode without steps
        has neither; after a step, that is a UsageError.
        """
        info = view.info
        if "x_position" in info:
            return np.array([info["x_position"], info.get("y_position", 0.0)], dtype=np.float64)
        data: Any = getattr(view.environment.unwrapped, "data", None)
        if hasattr(data, "qpos"):
            first = np.ravel(data.qpos)[:2]
            return np.pad(first, (0, 2 - first.size))
        if not self._stepped:
            return np.full(2, np.nan)
        raise UsageError(
            f"behavior final_position: {self.environment} has neither x_position in its info nor "
            "MuJoCo data (data.qpos); use behavior final_observation"
        )


@final
class RamTrajectorySettings(BehaviorSettings):
    """Settings of the RAM trajectory."""

    interval: Count = 100
    """A sample is taken at the start and then at this interval [environment steps]."""

    samples: Count = 32
    """Samples per behavior, 128 numbers each; a shorter episode repeats its last frame, and a
    longer one is cut after the last sample [frames]."""


@final
@register_behavior("ram_trajectory")
class RamTrajectory(Behavior):
    """The RAM of an Atari game at regular intervals."""

    Settings = RamTrajectorySettings
    settings: RamTrajectorySettings

    def begin(self, view: SlotView) -> None:
        """Take the first sample; UsageError if the environment is not an Atari game."""
        self._frames = [self._ram(view)]
        self._steps = 0

    def step(self, view: SlotView) -> None:
        """Take a sample after every ``interval`` steps."""
        self._steps += 1
        if self._steps % self.settings.interval == 0 and len(self._frames) < self.settings.samples:
            self._frames.append(self._ram(view))

    def end(self, view: SlotView) -> Vector:
        """The samples [samples * 128], one after the other."""
        left = self.settings.samples - len(self._frames)
        frames = [*self._frames, *([self._ram(view)] * left)]
        return np.concatenate(frames).astype(np.float64)

    def _ram(self, view: SlotView) -> np.ndarray[Any, np.dtype[np.uint8]]:
        game: Any = view.environment.unwrapped
        if not hasattr(game, "ale"):
            raise UsageError(
                f"behavior ram_trajectory: {self.environment} is not an Atari game; use behavior "
                "final_observation"
            )
        ram: np.ndarray[Any, np.dtype[np.uint8]] = game.ale.getRAM()  # a new array
        return ram
