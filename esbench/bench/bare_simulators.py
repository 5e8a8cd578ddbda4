"""Simulators alone, replaying the actions of members: the upper limit of the rollouts' speed.

Episodes begin as those of the members; resets are not counted.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

from esbench.rollouts.jobs import Job, Setup, Task
from esbench.rollouts.player import Player

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

    from esbench.environments.backends.atari import AtariBackend

STEPS: Final = 16_000  # recorded per process
Episode: TypeAlias = tuple[int, list[Any]]


class SimulatorLoop(ABC):
    """Recorded episodes of some members.

    Attributes:
        episodes: The seed and the simulator's inputs of each episode.
    """

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode per member until there are enough steps."""
        self._player = Player(setup, slots=1)
        self.episodes: list[Episode] = []
        self._player.begin(job)
        self._player.backend.expose()
        steps = 0
        for member in members:
            if steps >= STEPS:
                break
            task = Task(member, 0)
            self._player.add([task])
            inputs = []
            while self._player.busy:
                self._player.step()
                inputs.append(self._last_input())
            self.episodes.append((job.environment_seed(task), inputs))
            steps += len(inputs)

    @final
    def steps_per_second(self, seconds: float) -> float:
        """The speed over some seconds of stepping; resets are not counted."""
        steps, elapsed = 0, 0.0
        while True:
            for seed, inputs in self.episodes:
                self._reset(seed)
                start = time.perf_counter()
                self.replay(inputs)
                elapsed += time.perf_counter() - start
                steps += len(inputs)
                if elapsed >= seconds:
                    return steps / elapsed

    @abstractmethod
    def replay(self, inputs: list[Any]) -> None:
        """Step the simulator through an episode after its reset."""

    @abstractmethod
    def _reset(self, seed: int) -> None:
        """Begin an episode."""

    @abstractmethod
    def _last_input(self) -> Any:
        """The simulator's input in the player's last step."""


@final
class MuJoCoLoop(SimulatorLoop):
    """``mj_step`` and nothing else."""

    def replay(self, inputs: list[Any]) -> None:
        """Step through an episode's controls."""
        import mujoco

        plain = self._plain()
        model, data, skip, step = plain.model, plain.data, plain.frame_skip, mujoco.mj_step
        control = data.ctrl
        for action in inputs:
            control[:] = action
            step(model, data, skip)

    def _reset(self, seed: int) -> None:
        self._player.backend.environment(0).reset(seed=seed)

    def _last_input(self) -> Any:
        return self._plain().data.ctrl.copy()

    def _plain(self) -> Any:
        return self._player.backend.environment(0).unwrapped


@final
class EmulatorLoop(SimulatorLoop):
    """The frames of the ALE without images.

    Attributes:
        ale: The emulator, which applies sticky actions itself.
    """

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode per member until there are enough steps."""
        from esbench.environments.backends.atari import game_of
        from esbench.environments.make import make_environment

        super().__init__(setup, job, members)
        spec = setup.environment
        self._env = make_environment(spec.id, spec.kwargs)
        self._skip = game_of(self._env).frame_skip
        self.ale = cast("AtariEnv", self._env.unwrapped).ale

    def replay(self, inputs: list[Any]) -> None:
        """Repeat each action of an episode for some frames."""
        act, over, frames = self.ale.act, self.ale.game_over, range(self._skip)
        for action in inputs:
            for _ in frames:
                act(action)
                if over():
                    break

    def _reset(self, seed: int) -> None:
        self._env.reset(seed=seed)

    def _last_input(self) -> Any:
        return cast("AtariBackend", self._player.backend).chosen(0)


SIMULATORS: Final[dict[str, type[SimulatorLoop]]] = {"mujoco": MuJoCoLoop, "atari": EmulatorLoop}
