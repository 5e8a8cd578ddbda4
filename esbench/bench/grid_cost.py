"""The cost of a grid and the status of its trials.

The speed is measured in training: workers play the first generation of a trial for about half a
second, with episodes cut after more and more steps. The length of later episodes is unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from esbench.agents.agent import AgentSettings
from esbench.core.cores import usable_cores
from esbench.core.errors import DamagedTrialError, TrainingError
from esbench.core.json_text import Json
from esbench.engine.engine import Engine
from esbench.engine.jobs import Task, member_tasks
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.specifications import time_limit
from esbench.experiment.run_trial import check_trials
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.stored_trainer import make_trainer
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec
from esbench.results.run import score_text
from esbench.store.trial_folder import Status

PROBE_SECONDS: Final = 0.5
BEGIN_SECONDS: Final = 2.0  # fewer episodes are begun where their first step takes longer
MAX_STEPS: Final = 2**30
AGENT_SECONDS: Final = 2.0  # its updates come in bursts
FIRST_STEPS: Final = 256

Lengths: TypeAlias = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Cost:
    """The remaining work of the trials on one environment.

    Attributes:
        env_steps: The remaining training steps in whole generations, without scoring.
        seconds: The estimated time on all workers [s].
        loading: The part of that time in which environments are made [s].
        generations: The fewest generations that the steps of a budget buy, by algorithm.
        deterministic: Whether seeds make no difference to episodes, if work is left.
        excess: The share of its budget by which the last generation of a search may exceed it, if
            its episodes are as long as they can be, by algorithm.
    """

    environment: str
    trials: int
    done: int
    env_steps: int
    seconds: float
    loading: float
    generations: dict[str, int]
    deterministic: bool = False
    excess: dict[str, float] = field(default_factory=dict)

    @property
    def steps_per_second(self) -> float | None:
        """The estimated speed on all workers; None if no work is left."""
        return self.env_steps / (self.seconds - self.loading) if self.env_steps else None


@final
@dataclass(frozen=True)
class TrialStanding:
    """The status of one trial, its recorded steps and those of its budget.

    ``detail`` is the score of a finished trial, or the last line of a failed trial's traceback;
    ``nodes`` is what ``Engine.nodes`` said last, if the trial is running on a cluster.
    """

    trial: Trial
    status: Status
    generation: int
    env_steps: int
    budget: int
    detail: str
    nodes: Json


def costs(trials: Sequence[Trial], pool: Engine) -> list[Cost]:
    """The cost of each environment of a grid, with speeds measured on an engine.

    The first trial of each policy is measured, without updates. Updates are fast, except for cma_es
    and xnes, whose time grows at least with the square of the number of parameters. More workers
    than cores count as no faster. Errors are those of ``probe``.
    """
    if pool.is_local and pool.size > usable_cores():
        with WorkerPool(usable_cores()) as smaller:
            smaller.notice = pool.notice
            return costs(trials, smaller)
    groups: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        labels, spec = trial.labels, trial.spec
        key = labels["policy"] if spec.policy else f"agent {labels['algorithm']}"
        groups.setdefault(labels["environment"], {}).setdefault(key, []).append(trial)
    check_trials(trials, pool)
    return [_cost(name, list(group.values()), pool) for name, group in groups.items()]


def _cost(environment: str, groups: Sequence[Sequence[Trial]], pool: Engine) -> Cost:
    steps, seconds, loading = 0, 0.0, 0.0
    generations: dict[str, int] = {}
    excess: dict[str, float] = {}
    for group in groups:  # one group per policy, and one per agent
        left = [(trial, *found) for trial in group if (found := _left(trial))[0]]
        if not left:
            continue
        try:
            speed, making, length = probe(left[0][0].spec, pool)
        except TrainingError as error:
            raise TrainingError(f"{environment}: {error}") from error
        specs = {trial.labels["algorithm"]: trial.spec for trial, *_ in left}
        episodes: dict[str, int] = {}
        for name, spec in specs.items():
            if spec.policy is not None:
                number, most = _episodes(spec, pool), longest(spec) or length
                episodes[name] = number(length)
                share = number(most) * most / spec.budget.env_steps
                excess[name] = max(share, excess.get(name, 0.0))
        ahead = 0
        for trial, count, rows in left:
            name, settings = trial.labels["algorithm"], trial.spec.algorithm.settings
            most = (trial.spec.budget.generations or MAX_STEPS) - rows
            if isinstance(settings, AgentSettings):
                ahead += min(count, most * settings.row_steps)
                continue
            size = max(1, round(length * episodes[name]))
            ahead += min(most, -(-count // size)) * size
            bought = _bought(trial.spec, length, episodes[name])
            generations[name] = min(bought, generations.get(name, bought))
        steps += ahead
        loading += len(left) * making
        seconds += ahead / speed + len(left) * making
    trials = [trial for group in groups for trial in group]
    done = sum(trial.is_done for trial in trials)
    deterministic = bool(steps and pool.is_deterministic(trials[0].spec.environment))
    return Cost(
        environment, len(trials), done, steps, seconds, loading, generations, deterministic, excess
    )


def longest(spec: TrialSpec) -> int | None:
    """The steps after which every training episode ends, at the latest; None without a limit."""
    cut = spec.environment.max_episode_steps
    if isinstance(cut, tuple):
        cut = max(limit for _, limit in cut)
    limit = time_limit(spec.environment.id, spec.environment.kwargs)
    return min((each for each in (cut, limit) if isinstance(each, int)), default=None)


def _episodes(spec: TrialSpec, pool: Engine) -> Callable[[float], int]:
    """The number of episodes of a generation by the steps that each of them takes."""
    with SearchTrainer(spec, pool) as trainer:
        job, growth = trainer.next_job(), trainer.algorithm.plan.growth
    first = len(job.population or (0,)) * job.episodes
    steps, episodes = growth.num_interactions, growth.min_episodes
    most = math.inf if growth.size_max is None else growth.size_max * job.episodes

    def number(length: float) -> int:
        wanted = math.ceil(steps / max(1, length * first)), math.ceil(episodes / first)
        return int(max(first, min(first * max(1, *wanted), most)))

    return number


def _bought(spec: TrialSpec, length: float, episodes: int) -> int:
    """The generations that a budget buys if their episodes take ``length`` steps.

    If the first limit of a schedule cuts the episodes, later ones are as long as the later limits.
    """
    budget, limits = spec.budget.env_steps, spec.environment.max_episode_steps
    if not isinstance(limits, tuple) or length < limits[0][1]:
        return math.ceil(budget / max(1, round(length * episodes)))
    generations = steps = 0
    for (_, limit), (end, _) in zip(limits, [*limits[1:], (budget, 0)], strict=True):
        more = max(0, math.ceil((min(end, budget) - steps) / (episodes * limit)))
        generations, steps = generations + more, steps + more * episodes * limit
    return generations


def probe(spec: TrialSpec, pool: Engine) -> tuple[float, float, float]:
    """Measure a trial's first generation for about half a second, or an agent for longer.

    Returns the population's steps per second on all workers, the time to make environments [s], and
    the length of an episode [steps]. UsageError if the trial is not supported, TrainingError if an
    environment failed.
    """
    if spec.is_agent:
        return _agent_speed(spec, pool), 0.0, math.nan
    started = time.perf_counter()
    with SearchTrainer(spec, pool) as trainer:  # makes one environment, as each worker does
        making = time.perf_counter() - started
        job, setup = trainer.next_job(), trainer.gathered_setup()
    members, most_tasks = range(len(job.population or (0,))), pool.size * pool.slots
    pool.configure(setup)

    def at_least(count: int) -> list[Task]:
        """That many tasks if there are as many; members play all of their episodes."""
        return member_tasks(members[: -(-count // job.episodes)], job.episodes)

    def play(tasks: Sequence[Task], steps: int) -> tuple[Lengths, float]:
        started = time.perf_counter()
        played = pool.play(replace(job, max_steps=steps), tasks)
        return played.lengths, time.perf_counter() - started

    # One per worker, twice: an environment may load only at its first reset.
    few = at_least(pool.size)
    _, (_, one) = (play(few, 1) for _ in range(2))
    tasks = at_least(min(most_tasks, max(pool.size, int(len(few) * BEGIN_SECONDS / one))))
    (_, first), (_, begun) = play(tasks, 1), play(tasks, 1)
    making += max(0.0, first - begun)  # the environments of the other slots
    limit = time_limit(spec.environment.id, spec.environment.kwargs)
    most = min(job.max_steps or MAX_STEPS, limit or MAX_STEPS)
    speed, length = _speed(partial(play, tasks), begun, most)
    return speed, making, length


def _agent_speed(spec: TrialSpec, pool: Engine) -> float:
    """The steps per second of an agent, updates included, over longer and longer runs.

    They are those of its budget: it may take fewer.
    """
    steps = min(FIRST_STEPS, spec.budget.env_steps)
    while True:
        with make_trainer(spec, pool) as trainer:
            started = time.perf_counter()
            trainer.train(env_steps=steps)
            seconds = time.perf_counter() - started
            # Steps that an agent leaves out count; those that budget.generations cuts off do not.
            taken = trainer.progress.env_steps if spec.budget.generations else steps
        if seconds >= AGENT_SECONDS or 4 * steps > spec.budget.env_steps or taken < steps:
            return taken / seconds
        steps *= 4


def _speed(
    play: Callable[[int], tuple[Lengths, float]], begun: float, most: int
) -> tuple[float, float]:
    """The steps per second and the length of episodes that are cut later and later, until they end.

    Those that do not end count as ``most`` steps long; all first steps take ``begun`` seconds.
    """
    cut, steps, seconds, ended = 1, 0, 0.0, False
    while not ended and seconds < max(PROBE_SECONDS, 2 * begun):
        cut = min((2 if begun < PROBE_SECONDS else 8) * cut, most)
        lengths, seconds = play(cut)
        steps = int(lengths.sum())
        ended = cut == most or bool(lengths.max() < cut)
    if not ended:
        a_step = (seconds - begun) / max(steps - lengths.size, 1)
        length = float(lengths.mean()) if most == MAX_STEPS else most  # without a limit
        return most / (begun / lengths.size + (most - 1) * a_step), length
    while seconds < PROBE_SECONDS:
        lengths, more = play(cut)
        steps, seconds = steps + int(lengths.sum()), seconds + more
    return max(steps, 1) / seconds, float(lengths.mean())


def _left(trial: Trial) -> tuple[int, int]:
    """The steps that are left of the budget, and the number of rows so far."""
    if trial.is_done:
        return 0, 0
    rows = trial.folder.records()
    left = trial.spec.budget.env_steps - (rows[-1].env_steps if rows else 0)
    return max(0, left), len(rows)


def standing(trial: Trial) -> TrialStanding:
    """The status of a trial; a damaged one counts as failed."""
    generation = env_steps = 0
    nodes: Json = {}
    try:
        status, detail = trial.status, ""
        trial.check()
        if status == "done":
            detail = score_text(trial.folder.result())
        elif status == "failed":
            detail = trial.folder.last_error_line
        elif status == "running":
            nodes = trial.folder.nodes()
        if rows := trial.folder.records():
            generation, env_steps = rows[-1].generation, rows[-1].env_steps
    except DamagedTrialError as error:
        status, detail = "failed", str(error)
    budget = trial.spec.budget.env_steps
    return TrialStanding(trial, status, generation, env_steps, budget, detail, nodes)
