"""The cost of a grid and the status of its trials.

The speed is measured in training: workers play the first generation of a trial for about half a
second, with episodes cut after more and more steps. The length of later episodes is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt

from esbench.errors import DamagedTrialError, TrainingError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.jobs import Task, member_tasks
from esbench.rollouts.worker_pool import WorkerPool, usable_cores
from esbench.store.trial_folder import Status, score_text
from esbench.training.run_trial import check_trials
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial

PROBE_SECONDS: Final = 0.5
BEGIN_SECONDS: Final = 2.0  # fewer episodes are begun where their first step takes longer
MAX_STEPS: Final = 2**30

Lengths: TypeAlias = npt.NDArray[np.int64]


@final
class Pace(NamedTuple):
    """The speed of a trial on this machine.

    Attributes:
        steps_per_second: Of the population, on all workers.
        loading: Time to make the environments [s].
    """

    steps_per_second: float
    loading: float


@final
@dataclass(frozen=True)
class Cost:
    """The remaining work of the trials on one environment.

    Attributes:
        environment: The name of the environment.
        trials: The number of trials.
        done: The number of finished trials.
        env_steps: The remaining training steps, without scoring.
        seconds: The estimated time on all workers [s].
        loading: The part of that time in which environments are made [s].
    """

    environment: str
    trials: int
    done: int
    env_steps: int
    seconds: float
    loading: float

    @property
    def steps_per_second(self) -> float | None:
        """The estimated speed on all workers; None if no work is left."""
        return self.env_steps / (self.seconds - self.loading) if self.env_steps else None


@final
@dataclass(frozen=True)
class Standing:
    """The status of one trial.

    Attributes:
        trial: The trial.
        status: The status of its folder.
        generation: The number of recorded generations.
        env_steps: The training steps so far.
        budget: The training steps of the budget.
        detail: The score of a finished trial, or the last line of a failed trial's traceback.
    """

    trial: Trial
    status: Status
    generation: int
    env_steps: int
    budget: int
    detail: str


def costs(trials: Sequence[Trial], workers: int | None = None) -> list[Cost]:
    """The cost of each environment of a grid, with speeds measured on this machine.

    The first trial of each policy is measured, without updates. Updates are fast, except for cma_es
    and xnes, whose time grows at least with the square of the number of parameters. More workers
    than cores count as no faster.

    Raises:
        UsageError: The number of workers is below 1, or an environment, its spaces, a policy or a
            setting is not supported.
        TrainingError: An environment failed.
    """
    size = min(WorkerPool(workers).size, usable_cores())
    check_trials(trials)
    groups: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        labels = trial.labels
        groups.setdefault(labels["environment"], {}).setdefault(labels["policy"], []).append(trial)
    with WorkerPool(size) as pool:
        return [_cost(name, list(group.values()), pool) for name, group in groups.items()]


def _cost(environment: str, groups: Sequence[Sequence[Trial]], pool: WorkerPool) -> Cost:
    steps, seconds, loading = 0, 0.0, 0.0
    for group in groups:  # one group per policy
        left = [(trial, count) for trial in group if (count := _steps_left(trial))]
        if left:
            try:
                pace = probe(left[0][0].spec, pool)
            except TrainingError as error:
                raise TrainingError(f"{environment}: {error}") from error
            ahead = sum(count for _, count in left)
            steps += ahead
            loading += len(left) * pace.loading
            seconds += ahead / pace.steps_per_second + len(left) * pace.loading
    trials = [trial for group in groups for trial in group]
    done = sum(trial.is_done for trial in trials)
    return Cost(environment, len(trials), done, steps, seconds, loading)


def standings(trials: Sequence[Trial]) -> list[Standing]:
    """The status of every trial; a damaged one counts as failed."""
    found = []
    for trial in trials:
        try:
            found.append(_standing(trial))
        except DamagedTrialError as error:
            budget = trial.spec.budget.env_steps
            found.append(Standing(trial, "failed", 0, 0, budget, str(error)))
    return found


def probe(spec: TrialSpec, pool: WorkerPool) -> Pace:
    """Measure the pace of a trial's first generation for about half a second.

    Raises:
        UsageError: The trial is not supported.
        TrainingError: An environment failed.
    """
    started = time.perf_counter()
    with Trainer(spec, pool) as trainer:  # makes one environment, as each worker does
        making = time.perf_counter() - started
        job, setup = trainer.next_job(), trainer.setup
    every = member_tasks(range(len(job.population or (0,))), job.episodes)
    every = every[: pool.size * pool.slots]
    pool.configure(setup)

    def play(tasks: Sequence[Task], steps: int) -> tuple[Lengths, float]:
        """The lengths of episodes that are cut after ``steps`` steps, and the time taken [s]."""
        started = time.perf_counter()
        played = pool.play(replace(job, max_steps=steps), tasks)
        return played.lengths, time.perf_counter() - started

    # One per worker, twice: an environment may load only at its first reset.
    _, (_, one) = (play(every[: pool.size], 1) for _ in range(2))
    tasks = every[: max(pool.size, int(pool.size * BEGIN_SECONDS / one))]
    (_, first), (_, begun) = play(tasks, 1), play(tasks, 1)
    making += max(0.0, first - begun)  # the environments of the other slots
    most = min(job.max_steps or MAX_STEPS, _time_limit(spec) or MAX_STEPS)
    return Pace(_speed(partial(play, tasks), begun, most), making)


def _time_limit(spec: TrialSpec) -> int | None:
    """The step limit of an environment in Gymnasium's registry; None if there is none."""
    registered = gymnasium.registry.get(spec.environment.id.rpartition(":")[2])
    limit = None if registered is None else registered.max_episode_steps
    return spec.environment.kwargs.get("max_episode_steps", limit)


def _speed(play: Callable[[int], tuple[Lengths, float]], begun: float, most: int) -> float:
    """The steps per second of episodes that are cut later and later, until they end.

    Episodes that do not end are assumed to last ``most`` steps: ``begun`` seconds for the first
    steps of all of them, and the measured time per step for the rest.
    """
    cut, steps, seconds, ended = 1, 0, 0.0, False
    while not ended and seconds < max(PROBE_SECONDS, 2 * begun):
        cut = min((2 if begun < PROBE_SECONDS else 8) * cut, most)
        lengths, seconds = play(cut)
        steps = int(lengths.sum())
        ended = cut == most or bool(lengths.max() < cut)
    if not ended:
        a_step = (seconds - begun) / max(steps - lengths.size, 1)
        return most / (begun / lengths.size + (most - 1) * a_step)
    while seconds < PROBE_SECONDS:
        lengths, more = play(cut)
        steps, seconds = steps + int(lengths.sum()), seconds + more
    return max(steps, 1) / seconds


def _steps_left(trial: Trial) -> int:
    if trial.is_done:
        return 0
    rows = trial.folder.rows()
    return max(0, trial.spec.budget.env_steps - (rows[-1]["env_steps"] if rows else 0))


def _standing(trial: Trial) -> Standing:
    status = trial.status
    trial.check()
    rows = trial.folder.rows()
    detail = ""
    if status == "done":
        detail = score_text(trial.folder.result())
    elif status == "failed":
        lines = trial.folder.error().strip().splitlines()
        detail = lines[-1] if lines else ""
    return Standing(
        trial=trial,
        status=status,
        generation=rows[-1]["generation"] if rows else 0,
        env_steps=rows[-1]["env_steps"] if rows else 0,
        budget=trial.spec.budget.env_steps,
        detail=detail,
    )
