"""User code that misbehaves in one place and one way.

A name of this module says both: "hostile_code:Step-raise-v0" raises in ``step``.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.algorithms.openai_es import OpenAIESFamily, OpenAIESSettings
from esbench.core.population import SampledPopulation

LONG: Final = 3600.0  # seconds
NAUGHTY: Final = "lone \udc80, escape \x1b[31m, null \0, bell \a, \u202e"


class BareError(BaseException):
    """Not an ``Exception``."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> None:
    raise error


WAYS: Final[dict[str, Callable[[], object]]] = {
    "nothing": lambda: None,
    "raise": lambda: _raise(RuntimeError("hostile")),
    "surrogate": lambda: _raise(RuntimeError(NAUGHTY)),
    "mute": lambda: _raise(MuteError()),
    "bare": lambda: _raise(BareError("hostile")),
    "sys_exit": lambda: sys.exit(0),
    "os_exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda: time.sleep(LONG),
    "thread": lambda: threading.Thread(target=time.sleep, args=(LONG,), daemon=False).start(),
}


class Hostile(gymnasium.Env[Any, Any]):
    """Ends after eight steps; the reward is the largest for the action 0."""

    def __init__(self, place: str = "", way: str = "nothing") -> None:
        self._place, self._way = place, way
        self._at("Constructor")
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.observation_space = spaces.Box(-1.0, 1.0, (3,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._at("Reset")
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self._at("Step")
        self.steps += 1
        return self._observation(), 1.0 - abs(float(action[0])), self.steps == 8, False, {}

    def close(self) -> None:
        self._at("Close")

    def _at(self, place: str) -> None:
        if self._place == place:
            WAYS[self._way]()

    def _observation(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class Search(OpenAIESFamily):
    """OpenAI-ES."""

    Settings = OpenAIESSettings
    way = "nothing"

    def _ask(self) -> SampledPopulation:
        WAYS[self.way]()
        return self.sampled(self._decayed_sigma)


class Agent:
    """Always takes the action 0."""

    way = "nothing"

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        WAYS[self.way]()
        for _ in range(env_steps // 8):
            env.reset()
            while not env.step(np.zeros(1, np.float32))[2]:
                pass
        return lambda observation: np.zeros(1, np.float32)


for _way in WAYS:
    for _place in ("Constructor", "Reset", "Step", "Close"):
        gymnasium.register(f"{_place}-{_way}-v0", Hostile, kwargs={"place": _place, "way": _way})
    for _place, _kind in (("Ask", Search), ("Train", Agent)):
        _members = {"way": _way, "__module__": __name__}
        globals()[f"{_place}_{_way}"] = type(f"{_place}_{_way}", (_kind,), _members)
gymnasium.register("Plain-v0", Hostile)
