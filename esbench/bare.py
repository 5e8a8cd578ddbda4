"""What a simulator does without us, in as many processes: what throughput is measured against.

Two loops. Plain Gymnasium: random actions in ``gymnasium.make``'s environment. The simulator alone:
``mj_step`` and nothing else, on the very actions that members of the population took, in episodes
that begin as theirs did; the physical limit of the rollouts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import gymnasium
import numpy as np

from esbench.errors import TrainingError
from esbench.evaluation import Player
from esbench.jobs import Job, Setup, Task
from esbench.making import making
from esbench.noise import Matrix
from esbench.random_policy import random_steps_per_second
from esbench.simulator_log import log_once, silenced
from esbench.worker import end_with_parent, interrupts_held

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Kind: TypeAlias = Literal["gymnasium", "simulator"]
STEPS: Final = 16_000  # whose actions the simulator alone is given, in each process; or all


@final
class BareLoops:
    """Processes that step an environment each, when they are told to."""

    def __init__(self, setup: Setup, processes: int) -> None:
        self._setup = setup
        self._count = processes
        self._connections: list[Connection] = []
        self._processes: list[SpawnProcess] = []

    def __enter__(self) -> BareLoops:
        context = multiprocessing.get_context("spawn")
        for number in range(self._count):
            ours, theirs = context.Pipe()
            share = slice(number, None, self._count)  # of the members
            process = context.Process(target=_main, args=(theirs, self._setup, share), daemon=True)
            with interrupts_held():
                process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    @property
    def has_simulator(self) -> bool:
        """Whether the environment's simulator can be run alone."""
        return self._setup.backend_name == "mujoco"

    def record(self, job: Job) -> None:
        """Play members of a job and keep their actions, for the simulator alone.

        Raises:
            TrainingError: an environment failed, or a process died.
        """
        self._ask(_Record(job))

    def measure(self, kind: Kind, seconds: float) -> float:
        """Return the env steps/s of all processes together.

        Raises:
            TrainingError: an environment failed, or a process died.
        """
        return sum(self._ask(_Measure(kind, seconds)))

    def _ask(self, request: _Record | _Measure) -> list[float]:
        try:
            for connection in self._connections:
                with contextlib.suppress(BrokenPipeError):  # its last words can still be read
                    connection.send(request)
            answers: list[float | str] = [connection.recv() for connection in self._connections]
        except (EOFError, OSError):
            raise TrainingError("a process of the bare loop died") from None
        for answer in answers:
            if isinstance(answer, str):
                raise TrainingError(f"the bare loop failed: {answer}")
        return list(map(float, answers))


@final
@dataclass(frozen=True)
class _Record:
    job: Job


@final
@dataclass(frozen=True)
class _Measure:
    kind: Kind
    seconds: float


@final
class SimulatorLoop:
    """Episodes of some members as MuJoCo alone runs them.

    Attributes:
        episodes: the seed and the controls [T, n] of each.
    """

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode of each member, until there are enough steps."""
        player = Player(setup, slots=1)
        self._env = player.backend.environment
        self.episodes: list[tuple[int, Matrix]] = []
        player.begin(job)
        player.backend.expose()
        steps = 0
        for member in members:
            if steps >= STEPS:
                break
            task = Task(member, 0)
            player.add([task])
            controls = []
            while player.busy:
                player.step()
                controls.append(self._plain().data.ctrl.copy())
            self.episodes.append((job.environment_seed(task), np.array(controls)))
            steps += len(controls)

    def steps_per_second(self, seconds: float) -> float:
        """Return the speed over some seconds of stepping; resets are not counted."""
        import mujoco

        plain = self._plain()
        model, data, skip, step = plain.model, plain.data, plain.frame_skip, mujoco.mj_step
        control, steps, elapsed = data.ctrl, 0, 0.0
        while True:
            for seed, controls in self.episodes:
                self._env(0).reset(seed=seed)
                start = time.perf_counter()
                for action in controls:
                    control[:] = action
                    step(model, data, skip)
                elapsed += time.perf_counter() - start
                steps += len(controls)
                if elapsed >= seconds:
                    return steps / elapsed

    def _plain(self) -> Any:
        return self._env(0).unwrapped


def _main(connection: Connection, setup: Setup, share: slice) -> None:
    """Run bare loops until the parent ends them or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    log_once()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _serve(connection, setup, share)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # whatever the environment raises is told, not printed
            connection.send(f"{type(error).__name__}: {error}")


def _serve(connection: Connection, setup: Setup, share: slice) -> None:
    environment = setup.environment
    with silenced(), making(environment.id, environment.kwargs):
        env = gymnasium.make(environment.id, **environment.kwargs)  # as a plain script makes it
    simulator: SimulatorLoop | None = None
    while True:
        match connection.recv():
            case _Record(job):
                size = 1 if job.population is None else len(job.population)
                with silenced():
                    simulator = SimulatorLoop(setup, job, range(size)[share] or range(size))
                connection.send(0.0)
            case _Measure("simulator", seconds) if simulator is not None:
                connection.send(simulator.steps_per_second(seconds))
            case _Measure(_, seconds):
                connection.send(random_steps_per_second(env, seconds))
