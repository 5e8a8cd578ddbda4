"""Measures the score of random actions where an environment has no frozen one."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from esbench.core.errors import DamagedTrialError
from esbench.engine.engine import Engine
from esbench.engine.random_policy import random_policy_returns
from esbench.environments.make_environment import Wrappers
from esbench.experiment.trials import Trial
from esbench.grids.environment_files import RandomScore
from esbench.grids.trial_spec import EnvironmentSpec

EPISODES: Final = 100
MOST_STEPS: Final = 20_000  # after which no episode begins but the first ten


def without_random_score(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The finished trials of each environment for which one lacks the score of random actions."""
    groups: dict[str, list[Trial]] = {}
    lacking = set()
    for trial in trials:
        with contextlib.suppress(DamagedTrialError):  # reported when the trial was run
            if trial.folder.is_done:
                played = trial.spec.as_json()["environment"]
                key = json.dumps([played[part] for part in ("id", "kwargs", "wrappers")])
                groups.setdefault(key, []).append(trial)
                if trial.frozen.random is None:
                    lacking.add(key)
    return [group for key, group in groups.items() if key in lacking]


def record_random_score(group: list[Trial], engine: Engine) -> RandomScore | None:
    """Record what random actions score in trials of one environment, as measured once.

    A worker plays them if no trial of the group has the score. None if the worker died, or the
    mean or deviation is not finite; then nothing is recorded.

    Raises:
        UsageError: the environment has raised an exception.
    """
    score = next((trial.frozen.random for trial in group if trial.frozen.random), None)
    if score is None:
        (score,) = engine.ask([_random_score], group[0].spec.environment)
    for trial in group if score is not None else ():
        with trial.folder.locked() as mine:
            if mine:
                trial.record_scores(score)
    return score


def _random_score(name: str, kwargs: dict[str, Any], wrappers: Wrappers) -> RandomScore | None:
    spec = EnvironmentSpec(id=name, kwargs=kwargs, wrappers=wrappers)
    returns = random_policy_returns(spec, EPISODES, 0, MOST_STEPS)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(returns.mean()), float(returns.std())
    if not (math.isfinite(mean) and math.isfinite(std)):
        return None
    return RandomScore(mean=mean, std=std, episodes=returns.size, command="")
