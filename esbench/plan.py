"""What a grid will cost, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from esbench.making import make_environment
from esbench.random_policy import random_steps_per_second
from esbench.simulator_log import silenced
from esbench.spec import EnvironmentSpec
from esbench.store import Status, score_text
from esbench.trial_files import DamagedTrialError
from esbench.trials import Trial

PROBE_SECONDS = 0.3
EFFICIENCY = 0.8  # share of the bare loop's speed that training keeps; `esbench bench` measures it


@final
@dataclass(frozen=True)
class Cost:
    """What is left to do of one environment's trials.

    Attributes:
        environment: its name; trials: how many there are; done: how many of them are.
        env_steps: training steps left, scoring not counted.
        steps_per_second: estimated from a short bare loop, on all workers.
    """

    environment: str
    trials: int
    done: int
    env_steps: int
    steps_per_second: float

    @property
    def seconds(self) -> float:
        """The estimated time left."""
        return self.env_steps / self.steps_per_second


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


def costs(trials: Sequence[Trial], workers: int) -> list[Cost]:
    """Return the cost of each environment of a grid, with a speed measured on this machine.

    Raises:
        UsageError: an environment cannot be made.
    """
    by_environment: dict[str, list[Trial]] = {}
    for trial in trials:
        by_environment.setdefault(trial.labels["environment"], []).append(trial)
    return [
        Cost(
            environment=name,
            trials=len(group),
            done=sum(trial.is_done for trial in group),
            env_steps=sum(_steps_left(trial) for trial in group),
            steps_per_second=probe(group[0].spec.environment) * workers * EFFICIENCY,
        )
        for name, group in by_environment.items()
    ]


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


def probe(environment: EnvironmentSpec) -> float:
    """Return the steps/s of one bare environment under random actions, from a short loop.

    Raises:
        UsageError: the environment cannot be made.
    """
    with silenced():
        env = make_environment(environment.id, environment.kwargs)
    speed = random_steps_per_second(env, PROBE_SECONDS)
    env.close()
    return speed


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
