"""Throughput on this machine: training compared with bare loops in one run.

Both are measured in turn for several rounds, and medians are compared, because the speed of a
machine drifts. The same generation is trained repeatedly, so every round has the same episodes, and
the simulator alone replays their actions. An untrained robot falls after some twenty steps, where
the cost of a reset matters most; measure a later generation to see the cost of steps.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

from esbench.bench.simulator_limit import SimulatorProcesses
from esbench.core.errors import UsageError, require_integer
from esbench.core.settings import MOST, Table
from esbench.engine.engine import Engine
from esbench.engine.setup import Setup
from esbench.experiment.engines import EngineChoice
from esbench.experiment.run_trial import check_trials
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial, grid_trials
from esbench.experiment.watchers import Stop
from esbench.grids.compose import compose_grid
from esbench.grids.trial_spec import BudgetSpec, is_agent
from esbench.store.generation_record import GenerationRecord

NO_LIMIT: Final = MOST
MOST_ROUNDS: Final = 1000
MOST_SECONDS: Final = 86_400
PARTS: Final = ("sample", "reset", "observe", "act", "simulate", "count")


@final
@dataclass(frozen=True)
class BenchRound:
    """The speeds of one round, in environment steps per second.

    Attributes:
        bare: One plain Gymnasium environment per process, random actions.
        simulator: MuJoCo or the ALE alone, one per process, with the members' actions; else None.
        training: The steps of the population, end to end: from sampling to the checkpoint.
        simulated: ``training`` and the steps of the unperturbed policy.
    """

    bare: float
    simulator: float | None
    training: float
    simulated: float


@final
@dataclass(frozen=True)
class Throughput:
    """The rounds of one environment.

    Attributes:
        env_steps: Training steps before the measured generation.
        episode_length: Mean over the members of the generation before.
        profile: Shares of the processes' time: the parts of a worker's work, ``idle`` for waiting,
            and ``update`` and ``store`` in the main process.
    """

    environment: str
    backend: str
    population_size: int
    workers: int
    startup_s: float
    env_steps: int
    episode_length: float
    rounds: tuple[BenchRound, ...]
    profile: dict[str, float]

    def median(self, name: str) -> float | None:
        """The median of a speed over the rounds; None if it was not measured."""
        values: list[float] = [v for r in self.rounds if (v := getattr(r, name)) is not None]
        return statistics.median(values) if values else None

    def ratio(self, to: str) -> float | None:
        """The median of simulated / ``to`` over the rounds; None if it was not measured."""
        ratios = [r.simulated / v for r in self.rounds if (v := getattr(r, to)) is not None]
        return statistics.median(ratios) if ratios else None


def measure(
    environment: str,
    engine: EngineChoice | None = None,
    population_size: int = 64,
    seconds: float = 5.0,
    rounds: int = 3,
    after: int = 1,
    algorithm: str = "openai_es",
    overrides: Sequence[str] = (),
) -> Throughput:
    """Measure an algorithm with the environment's own policy, and bare loops.

    Both use as many processes as ``engine`` has, one per core by default. Each measurement takes
    ``seconds``; training finishes its generation. The measured generation comes ``after`` this many
    training steps. ``overrides`` are settings as in a grid, such as
    ``policy.template=nature_conv``. UsageError if a number or a setting is wrong, TrainingError if
    an environment failed.
    """
    require_integer("rounds", rounds, 1, MOST_ROUNDS)
    require_integer("after", after, 1, NO_LIMIT)
    if not 0 < seconds <= MOST_SECONDS:
        raise UsageError(
            f"seconds = {seconds}: expected a number above 0, and at most {MOST_SECONDS}"
        )
    with (engine or EngineChoice()).open() as pool, tempfile.TemporaryDirectory() as folder:
        trial = _trial(environment, algorithm, population_size, overrides, Path(folder))
        check_trials([trial])
        return _measure_trial(trial, pool, seconds, rounds, after)


def _measure_trial(
    trial: Trial, pool: Engine, seconds: float, rounds: int, after: int
) -> Throughput:
    assert trial.spec.policy is not None
    setup = Setup(trial.spec.environment, trial.spec.policy)
    bare = SimulatorProcesses(setup, pool.size)
    start = time.perf_counter()
    with trial.folder.locked(), bare, SearchTrainer(trial.spec, pool, trial.folder) as trainer:
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        trainer.train(env_steps=1)
        startup = time.perf_counter() - start
        trainer.train(env_steps=after)
        last = trainer.history[-1]
        if bare.has_simulator:
            bare.record(trainer.next_job())
        trainer.watch.take()
        pool.watch.take()
        results = tuple(
            BenchRound(
                bare.measure("gymnasium", seconds),
                bare.measure("simulator", seconds) if bare.has_simulator else None,
                *_train(trainer, seconds),
            )
            for _ in range(rounds)
        )
        population_size = trainer.algorithm.population_size
    return Throughput(
        environment=trial.spec.environment.id,
        backend=setup.backend_name,
        population_size=population_size,
        workers=pool.size,
        startup_s=startup,
        env_steps=last.env_steps,
        episode_length=last.episode_length_mean,
        rounds=results,
        profile=_shares(trainer.watch.seconds, pool.watch.seconds, pool.size),
    )


def _shares(trainer: dict[str, float], workers: dict[str, float], count: int) -> dict[str, float]:
    parts = {part: workers.get(part, 0.0) for part in PARTS}
    parts["idle"] = max(0.0, count * trainer["play"] - sum(workers.values()))
    parts |= {part: count * trainer[part] for part in ("update", "store")}
    whole = sum(parts.values())
    return {part: seconds / whole for part, seconds in parts.items()}


def _trial(
    environment: str, algorithm: str, population_size: int, overrides: Sequence[str], folder: Path
) -> Trial:
    if is_agent(algorithm):
        raise UsageError(f"algorithm = {algorithm!r}: an agent; expected a search")
    table: Table = {
        "name": "bench",
        "seeds": [0],
        "environments": [environment],
        "algorithms": {algorithm: {"population_size": population_size}},
        "budget": {"env_steps": NO_LIMIT},
    }
    grid, source = compose_grid(table, overrides=overrides)
    own = grid.environment.get(environment, {})
    if grid.budget != {"env_steps": NO_LIMIT} or "budget" in own:
        raise UsageError("--set budget...: expected none; each measurement ends with its time")
    trial, *others = grid_trials(grid, folder, source)
    if others:
        raise UsageError(f"these settings make {1 + len(others)} trials; expected one")
    # The file of the environment may have a budget too.
    spec = trial.spec.model_copy(update={"budget": BudgetSpec(env_steps=NO_LIMIT)})
    return replace(trial, spec=spec)


def _train(trainer: SearchTrainer, seconds: float) -> tuple[float, float]:
    """Train the same generation repeatedly; returns the training and the simulated steps/s."""
    state, before, start = trainer.state_dict(), trainer.progress, time.perf_counter()
    trained = evaluated = 0

    def again(record: GenerationRecord) -> Stop | None:
        nonlocal trained, evaluated
        trained += record.env_steps - before.env_steps
        evaluated += record.eval_env_steps - before.eval_env_steps
        trainer.load_state_dict(state)
        return Stop("the time is over") if time.perf_counter() - start >= seconds else None

    trainer.train(callbacks=[again])
    elapsed = time.perf_counter() - start
    return trained / elapsed, (trained + evaluated) / elapsed
