"""The speed of a simulator without esbench, in as many processes: the limit of throughput.

There are two loops. The first one is plain Gymnasium: random actions in the environment that
``gymnasium.make`` returns. The second one is the simulator alone, for the environments listed in
``esbench.bench.bare_simulators``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import gymnasium

from esbench.bench.bare_simulators import SIMULATORS, SimulatorLoop
from esbench.environments.make import making
from esbench.environments.simulator_log import log_once, silenced
from esbench.errors import TrainingError
from esbench.rollouts.child_process import Child, Parent, end
from esbench.rollouts.jobs import Job, Setup
from esbench.rollouts.random_policy import random_steps_per_second

Kind: TypeAlias = Literal["gymnasium", "simulator"]


@final
class SimulatorProcesses:
    """Processes that each measure the speed of an environment; a context manager."""

    def __init__(self, setup: Setup, processes: int) -> None:
        """Prepare the processes; they start when the context is entered."""
        self._setup = setup
        self._count = processes
        self._children: list[Child] = []

    def __enter__(self) -> SimulatorProcesses:
        for number in range(self._count):
            share = slice(number, None, self._count)  # of the members
            self._children.append(Child(_main, self._setup, share))
        return self

    def __exit__(self, *_: object) -> None:
        end(self._children)

    @property
    def has_simulator(self) -> bool:
        """Whether the simulator of the environment can run alone."""
        return self._setup.backend_name in SIMULATORS

    def record(self, job: Job) -> None:
        """Play members of a job and store their actions, for the simulator alone.

        Raises:
            TrainingError: an environment failed, or a process died.
        """
        self._ask(_Record(job))

    def measure(self, kind: Kind, seconds: float) -> float:
        """Measure the environment steps per second of all processes together.

        Raises:
            TrainingError: an environment failed, or a process died.
        """
        return sum(self._ask(_Measure(kind, seconds)))

    def _ask(self, request: _Record | _Measure) -> list[float]:
        for child in self._children:
            child.send(request)
        answers: list[float | str | None] = [child.receive() for child in self._children]
        speeds = []
        for answer in answers:
            if answer is None:
                raise TrainingError("a process of the simulator loop died")
            if isinstance(answer, str):
                raise TrainingError(f"the simulator loop failed: {answer}")
            speeds.append(answer)
        return speeds


@final
@dataclass(frozen=True)
class _Record:
    job: Job


@final
@dataclass(frozen=True)
class _Measure:
    kind: Kind
    seconds: float


def _main(parent: Parent, setup: Setup, share: slice) -> None:
    """Answer requests until the parent ends this process or is gone."""
    log_once()
    try:
        _serve(parent, setup, share)
    except Exception as error:  # an environment may raise anything
        parent.send(f"{type(error).__name__}: {error}")


def _serve(parent: Parent, setup: Setup, share: slice) -> None:
    environment = setup.environment
    with silenced(), making(environment.id, environment.kwargs):
        env = gymnasium.make(environment.id, **environment.kwargs)  # as a plain script does
    simulator: SimulatorLoop | None = None
    while True:
        match parent.receive():
            case _Record(job):
                size = 1 if job.population is None else len(job.population)
                with silenced():
                    members = range(size)[share] or range(size)
                    simulator = SIMULATORS[setup.backend_name](setup, job, members)
                parent.send(0.0)
            case _Measure("simulator", seconds) if simulator is not None:
                parent.send(simulator.steps_per_second(seconds))
            case _Measure(_, seconds):
                parent.send(random_steps_per_second(env, seconds))
