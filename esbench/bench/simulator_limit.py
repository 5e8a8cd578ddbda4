"""What a simulator does without us, in as many processes: what throughput is measured against.

Two loops. Plain Gymnasium: random actions in ``gymnasium.make``'s environment. The simulator alone,
where there is one that can run so (``esbench.bench.bare_simulators``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import gymnasium

from esbench.bench.bare_simulators import SIMULATORS, SimulatorLoop
from esbench.environments.make import making
from esbench.environments.simulator_log import log_once, silenced
from esbench.errors import TrainingError
from esbench.rollouts.jobs import Job, Setup
from esbench.rollouts.random_policy import random_steps_per_second
from esbench.rollouts.worker import end_with_parent, interrupts_held

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Kind: TypeAlias = Literal["gymnasium", "simulator"]


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
        return self._setup.backend_name in SIMULATORS

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
                    members = range(size)[share] or range(size)
                    simulator = SIMULATORS[setup.backend_name](setup, job, members)
                connection.send(0.0)
            case _Measure("simulator", seconds) if simulator is not None:
                connection.send(simulator.steps_per_second(seconds))
            case _Measure(_, seconds):
                connection.send(random_steps_per_second(env, seconds))
