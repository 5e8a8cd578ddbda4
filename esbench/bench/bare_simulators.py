"""Simulators alone: nothing but their own steps, on the very actions that members took.

It is the physical limit of the rollouts. Episodes begin as the members' did; resets are not
counted.
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

STEPS: Final = 16_000  # whose actions are replayed, in each process; or all
Episode: TypeAlias = tuple[int, list[Any]]


class SimulatorLoop(ABC):
    """Episodes of some members, to be replayed.

    Attributes:
        episodes: the seed of each, and what the simulator was told in each step.
    """

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode of each member, until there are enough steps."""
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
            told = []
            while self._player.busy:
                self._player.step()
                told.append(self._told())
            self.episodes.append((job.environment_seed(task), told))
            steps += len(told)

    @final
    def steps_per_second(self, seconds: float) -> float:
        """Return the speed over some seconds of stepping; resets are not counted."""
        steps, elapsed = 0, 0.0
        while True:
            for seed, told in self.episodes:
                self._reset(seed)
                start = time.perf_counter()
                self.replay(told)
                elapsed += time.perf_counter() - start
                steps += len(told)
                if elapsed >= seconds:
                    return steps / elapsed

    @abstractmethod
    def replay(self, told: list[Any]) -> None:
        """Step the simulator through an episode that has been reset."""

    @abstractmethod
    def _reset(self, seed: int) -> None:
        """Begin an episode."""

    @abstractmethod
    def _told(self) -> Any:
        """Return what the simulator was told in the player's last step."""


@final
class MuJoCoLoop(SimulatorLoop):
    """``mj_step`` and nothing else."""

    def replay(self, told: list[Any]) -> None:
        """Step through an episode's controls."""
        import mujoco

        plain = self._plain()
        model, data, skip, step = plain.model, plain.data, plain.frame_skip, mujoco.mj_step
        control = data.ctrl
        for action in told:
            control[:] = action
            step(model, data, skip)

    def _reset(self, seed: int) -> None:
        self._player.backend.environment(0).reset(seed=seed)

    def _told(self) -> Any:
        return self._plain().data.ctrl.copy()

    def _plain(self) -> Any:
        return self._player.backend.environment(0).unwrapped


@final
class EmulatorLoop(SimulatorLoop):
    """The frames of the ALE without their pictures.

    Attributes:
        ale: the emulator, with sticky actions of its own.
    """

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode of each member, until there are enough steps."""
        from esbench.environments.backends.atari import game_of
        from esbench.environments.make import make_environment

        super().__init__(setup, job, members)
        spec = setup.environment
        self._env = make_environment(spec.id, spec.kwargs)
        self._skip = game_of(self._env).frame_skip
        self.ale = cast("AtariEnv", self._env.unwrapped).ale

    def replay(self, told: list[Any]) -> None:
        """Hold an episode's actions for some frames each."""
        act, over, frames = self.ale.act, self.ale.game_over, range(self._skip)
        for action in told:
            for _ in frames:
                act(action)
                if over():
                    break

    def _reset(self, seed: int) -> None:
        self._env.reset(seed=seed)

    def _told(self) -> Any:
        return cast("AtariBackend", self._player.backend).chosen(0)


SIMULATORS: Final[dict[str, type[SimulatorLoop]]] = {"mujoco": MuJoCoLoop, "atari": EmulatorLoop}
