"""User code that misbehaves in one place and one way, for ``hostile.py``.

A name of this module says both: "hostile_code:Step-raise-v0" raises in ``step``. For the places of
a whole command, the environment variable ``HOSTILE`` does, such as "Module os_exit".
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from esbench.algorithms.openai_es import OpenAIESFamily, OpenAIESSettings
from esbench.core.population import SampledPopulation
from esbench.environments.behaviors.behavior import Behavior, SlotView
from esbench.integrations.trackers.tracker import Tracker

LONG: Final = 3600.0  # seconds
NAUGHTY: Final = "lone \udc80, escape \x1b[31m, null \0, bell \a, \u202e"


class BareError(BaseException):
    """Not an ``Exception``."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> None:
    raise error


def _ignore_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _spin() -> None:
    while True:
        pass


FAILS: Final[dict[str, Callable[[], object]]] = {
    "raise": lambda: _raise(RuntimeError("hostile")),
    "sys_exit": lambda: sys.exit(0),
    "os_exit": lambda: os._exit(0),
    "surrogate": lambda: _raise(RuntimeError(NAUGHTY)),
    "mute": lambda: _raise(MuteError()),
    "memory": lambda: np.ones(2**60),
}
DIES: Final[dict[str, Callable[[], object]]] = {
    "bare": lambda: _raise(BareError("hostile")),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
}
HANGS: Final[dict[str, Callable[[], object]]] = {
    "sleep": lambda: time.sleep(LONG),
    "spin": _spin,
}
LEAVES: Final[dict[str, Callable[[], object]]] = {  # something behind, but works
    "nothing": lambda: None,
    "thread": lambda: threading.Thread(target=time.sleep, args=(LONG,), daemon=False).start(),
    "child": lambda: subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"]),
    "signals": _ignore_signals,
}
WAYS: Final = FAILS | DIES | HANGS | LEAVES
ENVIRONMENT: Final = ("Constructor", "Reset", "Step", "Close", "Spaces")
NETWORK: Final = ("Network", "Forward")
SEARCH: Final = ("Search", "Ask")
AGENT: Final = ("Agent", "Train")
BEHAVIOR: Final = ("Behavior",)
TRIAL: Final = (*ENVIRONMENT, *NETWORK, *SEARCH, *AGENT, *BEHAVIOR)
COMMAND: Final = ("Module", "Callback", "Tracker", "Log")


class Hostile(gymnasium.Env[Any, Any]):
    """Ends after eight steps; the reward is the largest for the action 0."""

    def __init__(self, place: str = "", way: str = "nothing") -> None:
        self._place, self._way = place, way
        self._at("Constructor")
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.observation_space = spaces.Box(-1.0, 1.0, (3,))
        if place == "Spaces":
            self.observation_space.low[:] = np.nan

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


class Network(torch.nn.Module):
    place, way = "", "nothing"

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        if self.place == "Network":
            WAYS[self.way]()
        self.layer = torch.nn.Linear(inputs, outputs)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.place == "Forward":
            WAYS[self.way]()
        found: torch.Tensor = self.layer(observations)
        return found


class Last(Behavior):
    """The last observation."""

    way = "nothing"

    def begin(self, view: SlotView) -> None:
        WAYS[self.way]()

    def step(self, view: SlotView) -> None: ...

    def end(self, view: SlotView) -> Any:
        return view.observation


class Search(OpenAIESFamily):
    """OpenAI-ES."""

    Settings = OpenAIESSettings
    place, way = "", "nothing"

    def __init__(self, *arguments: Any) -> None:
        if self.place == "Search":
            WAYS[self.way]()
        super().__init__(*arguments)

    def _ask(self) -> SampledPopulation:
        if self.place == "Ask":
            WAYS[self.way]()
        return self.sampled(self._decayed_sigma)


class Agent:
    """Always takes the action 0."""

    place, way = "", "nothing"

    def __init__(self) -> None:
        if self.place == "Agent":
            WAYS[self.way]()

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        if self.place == "Train":
            WAYS[self.way]()
        for _ in range(env_steps // 8):
            env.reset()
            while not env.step(np.zeros(1, np.float32))[2]:
                pass
        return lambda observation: np.zeros(1, np.float32)


def callback(record: Any) -> None:
    at("Callback")


class Notes(Tracker):
    """Tracks nothing."""

    def start(self, run: Any) -> int:
        at("Tracker")
        return -1

    def log(self, run: Any, rows: Any) -> None:
        at("Log")

    def end(self, run: Any, outcome: Any, files: Any) -> None: ...


def at(place: str) -> None:
    """Misbehave if ``HOSTILE`` names this place."""
    chosen, _, way = os.environ.get("HOSTILE", "").partition(" ")
    if chosen == place:
        WAYS[way]()


KINDS: Final[dict[tuple[str, ...], type]] = {
    NETWORK: Network,
    BEHAVIOR: Last,
    SEARCH: Search,
    AGENT: Agent,
}
for _way in WAYS:
    for _place in ENVIRONMENT:
        gymnasium.register(f"{_place}-{_way}-v0", Hostile, kwargs={"place": _place, "way": _way})
    for _places, _kind in KINDS.items():
        for _place in _places:
            _name = f"{_place}_{_way}"
            _members = {"place": _place, "way": _way, "__module__": __name__}
            globals()[_name] = type(_name, (_kind,), _members)
for _number in range(8):
    gymnasium.register(f"Plain{_number}-v0", Hostile)
at("Module")
