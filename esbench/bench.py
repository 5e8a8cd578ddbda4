"""Throughput on this machine: training end to end beside bare environments, in one run.

The two are measured in turn, several rounds, and medians are compared, because machines drift.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import gymnasium

from esbench.errors import TrainingError, UsageError
from esbench.grid import parse_grid
from esbench.making import making
from esbench.random_policy import random_steps_per_second
from esbench.record import GenerationRecord, Stop
from esbench.runner import check_trials
from esbench.simulator_log import log_once, silenced
from esbench.spec import EnvironmentSpec
from esbench.trainer import Trainer
from esbench.trials import Trial, expand
from esbench.worker import end_with_parent, interrupts_held
from esbench.workers import WorkerPool

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

ENDLESS: Final = 10**15


@final
@dataclass(frozen=True)
class Round:
    """One round, in environment steps per second.

    Attributes:
        bare: plain Gymnasium environments in a loop, one a process, random actions.
        training: the population's steps, end to end: sampling, policy, normalisation, rollouts,
            update, record and checkpoint.
        simulated: those and the steps of the unperturbed policy.
    """

    bare: float
    training: float
    simulated: float


@final
@dataclass(frozen=True)
class Throughput:
    """The rounds of one environment, and their medians."""

    environment: str
    population_size: int
    workers: int
    startup_s: float
    rounds: tuple[Round, ...]

    def median(self, name: str) -> float:
        """Return the median over the rounds of bare, training or simulated steps/s."""
        values: list[float] = [getattr(item, name) for item in self.rounds]
        return statistics.median(values)

    @property
    def ratio(self) -> float:
        """The median over the rounds of simulated / bare."""
        return statistics.median(item.simulated / item.bare for item in self.rounds)


def measure(
    environment: str,
    workers: int | None = None,
    population_size: int = 64,
    seconds: float = 5.0,
    rounds: int = 3,
) -> Throughput:
    """Measure OpenAI-ES with the environment's own policy beside the bare environment.

    Args:
        environment: any Gymnasium name.
        workers: processes, of both; one a core by default.
        population_size: members a generation.
        seconds: of each measurement; training finishes its generation.
        rounds: how often the two are measured in turn.

    Raises:
        UsageError: an unknown environment, one that cannot be made, or a wrong number.
        TrainingError: an environment failed while it was stepped.
    """
    if rounds < 1:
        raise UsageError(f"rounds = {rounds}: expected at least 1")
    if not 0 < seconds < math.inf:
        raise UsageError(f"seconds = {seconds}: expected a number above 0")
    with WorkerPool(workers) as pool, tempfile.TemporaryDirectory() as folder:
        trial = _trial(environment, population_size, Path(folder))
        check_trials([trial])
        bare = _BareLoops(trial.spec.environment, pool.size)
        start = time.perf_counter()
        with trial.folder.locked(), bare, Trainer(trial.spec, pool, trial.folder) as trainer:
            trial.folder.begin(trial.spec, {"labels": trial.labels})
            trainer.train(env_steps=1)
            startup = time.perf_counter() - start
            results = [
                Round(bare.measure(seconds), *_train(trainer, seconds)) for _ in range(rounds)
            ]
    return Throughput(environment, population_size, pool.size, startup, tuple(results))


def _trial(environment: str, population_size: int, folder: Path) -> Trial:
    table = {
        "name": "bench",
        "seeds": [0],
        "environments": [environment],
        "algorithms": {"openai_es": {"population_size": population_size}},
        "budget": {"env_steps": ENDLESS},
    }
    (trial,) = expand(parse_grid(table, "bench"), folder, "bench")
    return trial


def _train(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Train for some seconds; return the training and the simulated steps/s."""
    before, start = trainer.progress, time.perf_counter()

    def until_time_is_up(_: GenerationRecord) -> Stop | None:
        return Stop("time is up") if time.perf_counter() - start >= seconds else None

    trainer.train(callbacks=[until_time_is_up])
    elapsed = time.perf_counter() - start
    trained = trainer.progress.env_steps - before.env_steps
    evaluated = trainer.progress.eval_env_steps - before.eval_env_steps
    return trained / elapsed, (trained + evaluated) / elapsed


@final
class _BareLoops:
    """Processes that step one plain environment each, when they are told to."""

    def __init__(self, environment: EnvironmentSpec, processes: int) -> None:
        self._environment = environment
        self._count = processes
        self._connections: list[Connection] = []
        self._processes: list[SpawnProcess] = []

    def __enter__(self) -> _BareLoops:
        context = multiprocessing.get_context("spawn")
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_bare_main, args=(theirs, self._environment), daemon=True
            )
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

    def measure(self, seconds: float) -> float:
        """Return the steps/s of all processes together.

        Raises:
            TrainingError: an environment failed, or a process died.
        """
        try:
            for connection in self._connections:
                with contextlib.suppress(BrokenPipeError):  # its last words can still be read
                    connection.send(seconds)
            speeds: list[float | str] = [connection.recv() for connection in self._connections]
        except (EOFError, OSError):
            raise TrainingError("a process of the bare loop died") from None
        for speed in speeds:
            if isinstance(speed, str):
                raise TrainingError(f"the bare loop failed: {speed}")
        return sum(map(float, speeds))


def _bare_main(connection: Connection, environment: EnvironmentSpec) -> None:
    """Run a bare loop until its parent ends it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    log_once()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _serve(connection, environment)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # whatever the environment raises is told, not printed
            connection.send(f"{type(error).__name__}: {error}")


def _serve(connection: Connection, environment: EnvironmentSpec) -> None:
    with silenced(), making(environment.id, environment.kwargs):
        env = gymnasium.make(environment.id, **environment.kwargs)  # as a plain script makes it
    while True:
        connection.send(random_steps_per_second(env, connection.recv()))
