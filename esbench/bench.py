"""Throughput on this machine: training end to end beside bare environments, in one run.

The two are measured in turn, several rounds, and medians are compared, because machines drift.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, final

import gymnasium

from esbench.grid import Trial, expand, parse_grid
from esbench.record import GenerationRecord, Stop
from esbench.simulator_log import log_once, silenced
from esbench.spec import EnvironmentSpec
from esbench.trainer import Trainer
from esbench.workers import WorkerPool

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
        UsageError: an unknown environment or a wrong number.
    """
    with WorkerPool(workers) as pool, tempfile.TemporaryDirectory() as folder:
        trial = _trial(environment, population_size, Path(folder))
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
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(processes)]
        self._connections = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_bare_loop, args=(theirs, environment), daemon=True)
            for _, theirs in pipes
        ]

    def __enter__(self) -> _BareLoops:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def measure(self, seconds: float) -> float:
        """Return the steps/s of all processes together."""
        for connection in self._connections:
            connection.send(seconds)
        return sum(float(connection.recv()) for connection in self._connections)


def _bare_loop(connection: Connection, environment: EnvironmentSpec) -> None:
    log_once()
    with silenced():
        env = gymnasium.make(environment.id, **environment.kwargs)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(1000)]
    for seconds in _messages(connection):
        env.reset(seed=0)
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            _, _, terminated, truncated, _ = env.step(actions[steps % 1000])
            steps += 1
            if terminated or truncated:
                env.reset()
        connection.send(steps / elapsed)


def _messages(connection: Connection) -> Iterator[float]:
    while True:
        yield connection.recv()
