"""Environments that misbehave on purpose, by Gymnasium names such as "doubles:Raises-v0"."""

import copy
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.environments.episode_check import SEEDS


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """A noisy point that wants to be at the origin; episodes of random length below ``length``."""

    def __init__(self, length: int = 20, size: int = 3) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,))
        self.action_space = spaces.Box(-1.0, 1.0, (size,))
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=self.observation_space.shape)
        self.left = int(self.np_random.integers(1, self.length + 1))
        return self.position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        if not np.isfinite(action).all():
            raise AssertionError("an action that is not finite reached the simulator")
        self.position = self.position + action + 0.1 * self.np_random.normal(size=action.shape)
        self.left -= 1
        reward = -float(np.abs(self.position).sum())
        return self.position.astype(np.float32), reward, self.left == 0, False, {}


class Valve(Walk):
    """Its bounds exclude 0."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-3.0, -1.0, (3,))


class Loose(Walk):
    """Its observations have another type than its space, and are outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(goal=spaces.Box(-0.01, 0.01, (3,)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.position, self.left = self.np_random.normal(size=3), 9
        return {"goal": self.position}, {}

    def step(self, action: np.ndarray) -> Any:
        _, *rest = super().step(action)
        return {"goal": self.position}, *rest


class Repeats(Walk):
    """All its episodes are the same."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return super().reset(seed=0)


class Raises(Walk):
    """Raises in the middle of an episode."""

    error: Exception = RuntimeError("the simulator fell over")

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.left == 1:
            raise self.error
        return super().step(action)


class Dies(Walk):
    """Kills its own process, as often as ``flag`` (a file) has bytes left."""

    def __init__(self, flag: str = "") -> None:
        super().__init__()
        self.flag = Path(flag)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        left = self.flag.stat().st_size if self.flag.exists() else 0
        if left and self.left == 1:
            self.flag.write_bytes(b"x" * (left - 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Indifferent(Walk):
    """Gives the same reward whatever is done."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


class BadReward(Walk):
    """Gives the reward ``value`` at the end of half of its episodes (or of all)."""

    def __init__(self, always: bool = False, value: float = float("nan"), length: int = 20) -> None:
        super().__init__(length)
        self.always, self.value = always, value

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, terminated, truncated, info = super().step(action)
        bad = terminated and (self.always or self.np_random.random() < 0.5)
        return observation, self.value if bad else reward, terminated, truncated, info


class Disconnects(Raises):
    """Loses its simulator's server in the middle of an episode."""

    error = EOFError("the server hung up")


class BadObservation(Walk):
    """Shows ``value`` in a share of its episodes; a NaN makes the action NaN too."""

    def __init__(self, value: float = float("nan"), share: float = 0.5) -> None:
        super().__init__()
        self.value, self.share = value, share

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        observation, info = super().reset(seed=seed)
        if self.np_random.random() < self.share:
            observation[0] = self.value
        return observation, info


class Answers(Walk):
    """Answers wrongly, or in an unusual type, in its third step; ``kind`` says how."""

    KINDS: ClassVar[dict[str, tuple[int, Any]]] = {  # the part of the answer, and its value
        "": (5, {}),
        "longer": (0, np.zeros(5, np.float32)),
        "shorter": (0, np.zeros(1, np.float32)),
        "column": (0, np.zeros((3, 1), np.float32)),
        "row": (0, np.zeros((1, 3), np.float32)),
        "words": (0, np.array(["a", "b", "c"])),
        "complex": (0, np.zeros(3, np.complex64)),
        "scalar": (0, 0.5),
        "none": (0, None),
        "text": (0, "abc"),
        "infinite": (0, np.full(3, -np.inf, np.float32)),
        "float64": (0, np.zeros(3)),
        "list": (0, [0, 0, 0]),
        "reward text": (1, "1.0"),
        "reward none": (1, None),
        "reward array": (1, np.ones(2)),
        "reward complex": (1, 1j),
        "reward 0-d": (1, np.array(0.0)),
        "reward int": (1, 0),
        "terminated text": (2, "no"),
        "terminated array": (2, np.zeros(2, bool)),
        "truncated none": (3, None),
        "flag numpy": (2, np.False_),
        "flag int": (3, 0),
        "reset": (5, {}),
        "step": (5, {}),
    }

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        observation = np.zeros(3, np.float32)
        return observation if self.kind == "reset" else (observation, {})

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        answer: list[Any] = [np.zeros(3, np.float32), 0.0, self.steps == 5, False, {}, None]
        if self.steps == 3:
            part, value = self.KINDS[self.kind]
            answer[part] = value
        return tuple(answer[: 4 if self.kind == "step" else 5])


class Slow(Walk):
    """Takes its time, so that a run can be interrupted."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(0.001)
        return super().step(action)


class Ready(Slow):
    """Says by a file that a process plays it."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        Path("ready").touch()
        return super().step(action)


class Gated(Walk):
    """Waits after the first steps of its process as long as there is a file "closed"."""

    steps = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        Gated.steps += 1
        while Gated.steps > 300 and Path("closed").exists():
            time.sleep(0.02)
        return super().step(action)


class WearsOut(Walk):
    """Raises after a number of steps that its process has made before."""

    steps = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        WearsOut.steps += 1
        if WearsOut.steps > 1000:
            raise RuntimeError("worn out")
        return super().step(action)


class Heavy(Walk):
    """Takes long to make, and says that it was made."""

    def __init__(self) -> None:
        super().__init__()
        time.sleep(0.6)
        print("made", flush=True)  # noqa: T201


class FailsInWorkers(Walk):
    """Can be made in the trainer's process only."""

    def __init__(self) -> None:
        super().__init__()
        if multiprocessing.parent_process() is not None:
            raise OSError("no license")


class MayFail(Walk):
    """Cannot be made while there is a file ``flag``."""

    def __init__(self, flag: str) -> None:
        super().__init__()
        if Path(flag).exists():
            raise OSError("no license")


class DiesInWorkers(Walk):
    """Ends a worker that makes it."""

    def __init__(self) -> None:
        super().__init__()
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGABRT)


class KillsTheTrainer(Walk):
    """Kills the process whose worker steps it: for a process that runs trials beside others.

    It does so in the first generation, after the episodes that the check before training plays.
    They are counted for the whole process, because instances share them as they become idle.
    """

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        KillsTheTrainer.episodes += 1
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        if KillsTheTrainer.episodes > len(SEEDS) + 2:
            os.kill(os.getppid(), signal.SIGKILL)
        return super().step(action)


class Forks(Slow):
    """Leaves a process behind that holds the pipes of its worker until the flag is removed.

    It leaves the group of the worker, which would end it.
    """

    def __init__(self, flag: str = "") -> None:
        super().__init__()
        if flag and multiprocessing.parent_process() is not None and os.fork() == 0:
            os.setsid()
            for _ in range(400):
                if not Path(flag).exists():
                    os._exit(0)
                time.sleep(0.05)
            Path(flag).write_text("not removed")
            os._exit(0)


def double(value: float) -> float:
    """The reward that a helper of ``Helped`` computes."""
    return 2 * value


def serve(connection: Connection) -> None:
    """Double every number that arrives, as a simulator in a process of its own."""
    while True:
        connection.send(double(connection.recv()))


class Helped(Walk):
    """A process of its own computes its rewards; the file ``helpers`` gets its id."""

    def __init__(self, kind: str = "process", method: str = "fork", helpers: str = "") -> None:
        super().__init__()
        self._double: Callable[[float], float]
        context: Any = multiprocessing.get_context(method)
        before = {each.pid for each in multiprocessing.active_children()}
        match kind:
            case "process":
                ours, theirs = context.Pipe()
                context.Process(target=serve, args=(theirs,)).start()

                def call(value: float) -> float:
                    ours.send(value)
                    return float(ours.recv())

                self._double = call
            case "pool":
                pool = context.Pool(1)
                self._double = lambda value: pool.apply(double, (value,))
            case "executor":
                executor = ProcessPoolExecutor(1, context)
                self._double = lambda value: executor.submit(double, value).result()
            case "subprocess":
                code = "for line in open(0): print(2 * float(line), flush=True)"
                program = subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                )

                def ask(value: float) -> float:
                    assert program.stdin is not None
                    assert program.stdout is not None
                    program.stdin.write(f"{value}\n".encode())
                    return float(program.stdout.readline())

                self._double = ask
                note(helpers, program.pid)
            case "vector":
                vector = gymnasium.vector.AsyncVectorEnv([Walk], context=method)
                vector.reset(seed=0)

                def step(value: float) -> float:
                    vector.step(vector.action_space.sample())
                    return double(value)

                self._double = step
        self._double(0.0)
        for each in multiprocessing.active_children():
            if each.pid not in before:
                note(helpers, each.pid or 0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, self._double(reward), terminated, truncated, info


def note(helpers: str, number: int) -> None:
    """Append the id of a helper to a file, if there is one."""
    if helpers:
        with Path(helpers).open("a") as file:
            file.write(f"{number}\n")


class Chatty(Walk):
    """Prints at every reset, from Python and from C."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        print("hello from Python", flush=True)  # noqa: T201
        os.write(2, b"hello from C\n")
        return super().reset(seed=seed)


NESTED = spaces.Dict(
    {
        "b": spaces.Box(-1, 1, (2, 2)),
        "a": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiDiscrete([3, 2]))),
    }
)


class Spaces(gymnasium.Env[Any, Any]):
    """Has the spaces it is given, shows samples, and rewards the numbers of the action."""

    def __init__(self, observation: str = "box", action: str = "box") -> None:
        self.observation_space = {
            "box": spaces.Box(-1, 1, (3,)),
            "dict": copy.deepcopy(NESTED),
            "tuple": spaces.Tuple((spaces.MultiBinary((2, 2)), copy.deepcopy(NESTED))),
            "multi": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
            "oneof": spaces.OneOf((spaces.Box(-1, 1, (3,)), spaces.Discrete(2))),
            "text": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple((spaces.Text(3),))}),
            "images": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        }[observation]
        self.action_space = {
            "box": spaces.Box(-1, 1, (3,)),
            "multi": spaces.MultiDiscrete(
                np.array([[2, 3], [4, 2]]), start=np.array([[0, -1], [5, 0]])
            ),
            "binary": spaces.MultiBinary(4),
            "dict": copy.deepcopy(NESTED),
            "tuple": spaces.Tuple((spaces.MultiBinary((2, 2)), copy.deepcopy(NESTED))),
            "text": spaces.Text(3),
            "discrete": spaces.Discrete(3),
        }[action]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 20))
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        flat = np.asarray(spaces.flatten(self.action_space, action), float)
        self.left -= 1
        reward = float(flat @ np.arange(1.0, 1.0 + flat.size))
        return self.observation_space.sample(), reward, self.left == 0, False, {}


class Pictures(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """Shows small images of what a walk shows."""

    def __init__(self) -> None:
        super().__init__(Walk())
        self.observation_space = spaces.Box(0, 255, (2, 12, 12), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        channel, row, column = np.indices((2, 12, 12))
        first, second, third = observation
        waves = np.sin(first * row + second * column + third * channel)
        return (127.5 * (1.0 + waves)).astype(np.uint8)


class Moves(Pictures):
    """Pictures of a walk along one axis: back, nothing or forth."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(3)

    def step(self, action: Any) -> Any:
        return super().step(np.array([int(action) - 1.0, 0.0, 0.0]))


for cls in [*vars().values()]:
    if isinstance(cls, type) and cls.__module__ == __name__:
        gymnasium.register(f"{cls.__name__}-v0", entry_point=cls, max_episode_steps=1000)
