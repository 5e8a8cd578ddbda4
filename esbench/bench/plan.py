"""What a grid will cost, and where it stands.

The speed is that of episodes in training: workers play the first generation of a trial, its
episodes cut after few steps and then after more, for about half a second. Planned twice and then
run, on two cores: grid quick 42 and 44 s, and 46; HalfCheetah-v5 19,000 and 20,000 steps/s, and
22,700; grid pong 4,000 and 3,200, and 3,900; two trials of an environment that takes 0.5 s to make
10.3 and 10.9 s, and 11.9. Where a reset takes 1 s, planning takes 19 s. It cannot know how long
episodes will be.
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

from esbench.errors import TrainingError
from esbench.grids.trial_spec import TrialSpec
from esbench.rollouts.jobs import Task, member_tasks
from esbench.rollouts.worker_pool import WorkerPool, usable_cores
from esbench.store.trial_files import DamagedTrialError
from esbench.store.trial_folder import Status, score_text
from esbench.training.run_trial import check_trials
from esbench.training.trainer import Trainer
from esbench.training.trials import Trial

PROBE_SECONDS: Final = 0.5
BEGIN_SECONDS: Final = 2.0  # for as many episodes as there are slots, or fewer if they take longer
LONGEST: Final = 2**30  # steps

Lengths: TypeAlias = npt.NDArray[np.int64]


class Pace(NamedTuple):
    """How fast a trial is on this machine.

    Attributes:
        steps_per_second: of its population, on all workers.
        loading: seconds until it has its environments.
    """

    steps_per_second: float
    loading: float


@final
@dataclass(frozen=True)
class Cost:
    """What is left to do of one environment's trials.

    Attributes:
        environment: its name; trials: how many there are; done: how many of them are.
        env_steps: training steps left, scoring not counted.
        seconds: the estimated time for them, on all workers.
        loading: the part of it in which environments are made.
    """

    environment: str
    trials: int
    done: int
    env_steps: int
    seconds: float
    loading: float

    @property
    def steps_per_second(self) -> float | None:
        """The estimated speed on all workers; None if nothing is left to do."""
        return self.env_steps / (self.seconds - self.loading) if self.env_steps else None


@final
@dataclass(frozen=True)
class Standing:
    """Where one trial stands.

    Attributes:
        trial: the trial; status: of its folder.
        generation, env_steps: recorded so far; budget: steps to make.
        detail: its score in words if done, the last line of its traceback if failed.
    """

    trial: Trial
    status: Status
    generation: int
    env_steps: int
    budget: int
    detail: str


def costs(trials: Sequence[Trial], workers: int | None = None) -> list[Cost]:
    """Return the cost of each environment of a grid, with speeds measured on this machine.

    The first trial of each policy is measured, without updates. They cost little, but for cma_es
    and xnes, whose own time grows with the square of the parameters or more. More workers than
    cores are taken to be no faster.

    Raises:
        UsageError: the number of workers is below 1, or an environment, its spaces, a policy or a
            setting cannot be served.
        TrainingError: an environment failed.
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
    for group in groups:  # a policy each
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
    """Return where every trial stands; a damaged one has failed, and says how."""
    found = []
    for trial in trials:
        try:
            found.append(_standing(trial))
        except DamagedTrialError as error:
            budget = trial.spec.budget.env_steps
            found.append(Standing(trial, "failed", 0, 0, budget, str(error)))
    return found


def probe(spec: TrialSpec, pool: WorkerPool) -> Pace:
    """Return the pace of a trial's first generation, from about half a second of it.

    Raises:
        UsageError: it cannot be served.
        TrainingError: an environment failed.
    """
    started = time.perf_counter()
    with Trainer(spec, pool) as trainer:  # makes an environment, as each worker will
        making = time.perf_counter() - started
        job, setup = trainer.next_job(), trainer.setup
    every = member_tasks(range(len(job.population or (0,))), job.episodes)
    every = every[: pool.size * pool.slots]
    pool.configure(setup)

    def play(tasks: Sequence[Task], steps: int) -> tuple[Lengths, float]:
        """Return the lengths of episodes that are cut after so many steps, and how long it took."""
        started = time.perf_counter()
        played = pool.play(replace(job, max_steps=steps), tasks)
        return played.lengths, time.perf_counter() - started

    # Each in the environment that its worker has made, which may load only when it is first reset.
    _, (_, one) = (play(every[: pool.size], 1) for _ in range(2))
    tasks = every[: max(pool.size, int(pool.size * BEGIN_SECONDS / one))]
    (_, first), (_, begun) = play(tasks, 1), play(tasks, 1)
    making += max(0.0, first - begun)  # the environments of the other slots
    most = min(job.max_steps or LONGEST, _time_limit(spec) or LONGEST)
    return Pace(_speed(partial(play, tasks), begun, most), making)


def _time_limit(spec: TrialSpec) -> int | None:
    """Return after how many steps Gymnasium ends an environment's episodes, if it says so."""
    registered = gymnasium.registry.get(spec.environment.id.rpartition(":")[2])
    limit = None if registered is None else registered.max_episode_steps
    return spec.environment.kwargs.get("max_episode_steps", limit)


def _speed(play: Callable[[int], tuple[Lengths, float]], begun: float, most: int) -> float:
    """Return the steps/s of episodes that are cut later and later, or as they end by themselves.

    Those that are cut are taken to be as long as they can be: ``begun`` seconds for the beginning
    of all of them, and steps at the speed at which they were made until they end.
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
