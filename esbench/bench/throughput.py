"""Throughput on this machine: training end to end beside bare loops, in one run.

They are measured in turn, several rounds, and medians are compared, because machines drift. It is
one generation that is trained, over and over, so that every round has the same episodes, whose
actions the simulator alone is given too: the second, or one of a policy that has learnt. Untrained
robots fall after some twenty steps, and what an episode costs besides its steps weighs most there.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from esbench.bench.simulator_limit import BareLoops
from esbench.errors import UsageError
from esbench.grids.grid_file import apply_override, parse_grid
from esbench.rollouts.jobs import Setup
from esbench.rollouts.worker_pool import WorkerPool
from esbench.settings import Table
from esbench.store.generation_record import GenerationRecord
from esbench.training.callbacks import Stop
from esbench.training.run_trial import check_trials
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial, expand

ENDLESS: Final = 10**15
PARTS: Final = ("sample", "reset", "observe", "act", "simulate", "count")


@final
@dataclass(frozen=True)
class Round:
    """One round, in environment steps per second.

    Attributes:
        bare: plain Gymnasium environments in a loop, one a process, random actions.
        simulator: MuJoCo or the ALE alone, one process each, the actions of members; None for
            others.
        training: the population's steps, end to end: sampling, policy, normalisation, rollouts,
            update, record and checkpoint.
        simulated: those and the steps of the unperturbed policy.
    """

    bare: float
    simulator: float | None
    training: float
    simulated: float


@final
@dataclass(frozen=True)
class Throughput:
    """The rounds of one environment, and their medians.

    Attributes:
        env_steps: of training before the generation that is measured.
        episode_length: the mean over the members of the generation before.
        profile: the shares, of the processes' time in all rounds' training, of what workers do, of
            their waiting for each other, and of the update and the storing that they wait for.
    """

    environment: str
    backend: str
    population_size: int
    workers: int
    startup_s: float
    env_steps: int
    episode_length: float
    rounds: tuple[Round, ...]
    profile: dict[str, float]

    def median(self, name: str) -> float | None:
        """Return the median over the rounds of one of their speeds; None if it has none."""
        values: list[float] = [v for r in self.rounds if (v := getattr(r, name)) is not None]
        return statistics.median(values) if values else None

    def ratio(self, to: str) -> float | None:
        """Return the median over the rounds of simulated / ``to``; None if there is none."""
        values: list[float | None] = [getattr(item, to) for item in self.rounds]
        pairs = zip(self.rounds, values, strict=True)
        ratios = [item.simulated / value for item, value in pairs if value is not None]
        return statistics.median(ratios) if ratios else None


def measure(
    environment: str,
    workers: int | None = None,
    population_size: int = 64,
    seconds: float = 5.0,
    rounds: int = 3,
    after: int = 1,
    algorithm: str = "openai_es",
    overrides: Sequence[str] = (),
) -> Throughput:
    """Measure an algorithm, with the environment's own policy, beside bare loops.

    Args:
        environment: any Gymnasium name.
        workers: processes, of both; one a core by default.
        population_size: members a generation.
        seconds: of each measurement; training finishes its generation.
        rounds: how often they are measured in turn.
        after: env steps of training before the generation that is measured.
        algorithm: any registered name.
        overrides: settings as in a grid, such as ``policy.template=nature_conv``.

    Raises:
        UsageError: an unknown environment, one that cannot be made, or a wrong number or setting.
        TrainingError: an environment failed while it was stepped.
    """
    if rounds < 1:
        raise UsageError(f"rounds = {rounds}: expected at least 1")
    if after < 1:
        raise UsageError(f"after = {after}: expected at least 1 env step")
    if not 0 < seconds < math.inf:
        raise UsageError(f"seconds = {seconds}: expected a number above 0")
    with WorkerPool(workers) as pool, tempfile.TemporaryDirectory() as folder:
        trial = _trial(environment, algorithm, population_size, overrides, Path(folder))
        check_trials([trial])
        setup = Setup(trial.spec.environment, trial.spec.policy)
        bare = BareLoops(setup, pool.size)
        start = time.perf_counter()
        with trial.folder.locked(), bare, Trainer(trial.spec, pool, trial.folder) as trainer:
            trial.folder.begin(trial.spec, {"labels": trial.labels})
            trainer.train(env_steps=1)
            startup = time.perf_counter() - start
            trainer.train(env_steps=after)
            last = trainer.history[-1]
            if bare.has_simulator:
                bare.record(trainer.next_job())
            trainer.watch.take()
            pool.watch.take()
            results = [_round(bare, trainer, seconds) for _ in range(rounds)]
    return Throughput(
        environment=environment,
        backend=setup.backend_name,
        population_size=population_size,
        workers=pool.size,
        startup_s=startup,
        env_steps=last.env_steps,
        episode_length=last.episode_length_mean,
        rounds=tuple(results),
        profile=_shares(trainer.watch.seconds, pool.watch.seconds, pool.size),
    )


def _shares(trainer: dict[str, float], workers: dict[str, float], count: int) -> dict[str, float]:
    """Return the shares of ``count`` processes' time, in the order of a generation."""
    parts = {part: workers.get(part, 0.0) for part in PARTS}
    parts["idle"] = max(0.0, count * trainer["play"] - sum(workers.values()))
    parts |= {part: count * trainer[part] for part in ("update", "store")}
    whole = sum(parts.values())
    return {part: seconds / whole for part, seconds in parts.items()}


def _round(bare: BareLoops, trainer: Trainer, seconds: float) -> Round:
    gymnasium = bare.measure("gymnasium", seconds)
    simulator = bare.measure("simulator", seconds) if bare.has_simulator else None
    return Round(gymnasium, simulator, *_train(trainer, seconds))


def _trial(
    environment: str, algorithm: str, population_size: int, overrides: Sequence[str], folder: Path
) -> Trial:
    table: Table = {
        "name": "bench",
        "seeds": [0],
        "environments": [environment],
        "algorithms": {algorithm: {"population_size": population_size}},
        "budget": {"env_steps": ENDLESS},
    }
    for assignment in overrides:
        table = apply_override(table, assignment)
    trials = expand(parse_grid(table, "bench"), folder, "bench")
    if len(trials) != 1:
        raise UsageError(f"{len(trials)} trials: expected settings of one")
    return trials[0]


def _train(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Train the same generation for some seconds; return the training and the simulated steps/s."""
    state, before, start = trainer.state_dict(), trainer.progress, time.perf_counter()
    trained = evaluated = 0

    def again(record: GenerationRecord) -> Stop | None:
        nonlocal trained, evaluated
        trained += record.env_steps - before.env_steps
        evaluated += record.eval_env_steps - before.eval_env_steps
        trainer.load_state_dict(state)
        return Stop("time is up") if time.perf_counter() - start >= seconds else None

    trainer.train(callbacks=[again])
    elapsed = time.perf_counter() - start
    return trained / elapsed, (trained + evaluated) / elapsed
