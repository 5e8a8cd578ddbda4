"""Diagnosis of stored trials: the health of their runs, from their rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import UsageError
from esbench.core.json_text import Json, as_text
from esbench.grids.trial_spec import cell_name
from esbench.results.run import variety
from esbench.results.statistics.curves import thirds
from esbench.results.statistics.health import (
    LEVELS,
    MEASURES,
    HealthFinding,
    Level,
    RunMeasurements,
    findings,
)
from esbench.store.find_trials import find_trials
from esbench.store.origin import differences_within
from esbench.store.trial_folder import Status, TrialFolder

VARY: Final = "give the environment random starts or, in an Atari game, sticky actions"
_SHOWN: Final = (
    "center_return",
    "population_return_mean",
    "population_return_std",
    "episode_length_mean",
    "center_rank_fraction",
    "tied_returns",
    "update_cosine",
    "split_half_cosine",
    "sigma",
    "distance",
    "observation_drift",
)


@final
@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of the trial in a folder.

    ``algorithm`` includes the policy. ``measures`` are means over the first, middle and last third
    of the run, NaN without a measurement. The worst of the ``findings`` is first.
    """

    trial: str
    environment: str
    algorithm: str
    seed: int
    status: Status
    generations: int
    env_steps: int
    measures: dict[str, tuple[float, float, float]]
    findings: tuple[HealthFinding, ...]

    @property
    def name(self) -> str:
        """The trial as text."""
        return f"{self.environment} {self.algorithm} seed {self.seed}"

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        return self.findings[0].level


def diagnose(path: Path) -> list[Diagnosis]:
    """The diagnosis of a trial, or of every trial below a folder, worst first.

    Raises:
        UsageError: there is no trial, or one cannot be read.
    """
    trials = [TrialFolder(path)] if TrialFolder(path).has_begun else find_trials(path)
    found = [diagnose_trial(trial) for trial in trials]
    return sorted(found, key=lambda item: LEVELS.index(item.level))


def diagnose_trial(folder: TrialFolder) -> Diagnosis:
    """The diagnosis of one trial."""
    description, run = folder.description(), run_measurements(folder)
    labels = description["labels"]
    measures = {name: thirds(run[name]) for name in _SHOWN}
    found = _findings_of_one_limit(run, folder)
    if folder.is_done and (kind := variety(folder.result())) != "varied":
        found.append(_equal_episodes(folder.result(), kind))
    if parts := differences_within(description):
        found.append(HealthFinding("mixed", "note", f"It was trained with {'; '.join(parts)}."))
    if folder.status == "failed":
        found.append(HealthFinding("failed", "warning", f"It failed: {folder.last_error_line}"))
    steps = folder.columns("env_steps")["env_steps"]
    return Diagnosis(
        trial=str(folder.path),
        environment=labels["environment"],
        algorithm=cell_name(labels["algorithm"], labels["policy"]),
        seed=description["spec"]["seed"],
        status=folder.status,
        generations=run.generations,
        env_steps=int(steps[-1]) if steps.size else 0,
        measures=measures | {"update_norm / radius": thirds(run["update_norm"] / run.radius)},
        findings=tuple(sorted(found, key=lambda item: LEVELS.index(item.level))),
    )


def _findings_of_one_limit(run: RunMeasurements, folder: TrialFolder) -> list[HealthFinding]:
    """The findings about the longest stretch of a run in which episodes have the same limit.

    Returns of episodes with other limits cannot be compared.
    """
    if not isinstance(folder.description()["spec"]["environment"]["max_episode_steps"], list):
        return findings(run)
    limits = folder.columns("max_episode_steps")["max_episode_steps"]
    starts = np.flatnonzero(np.diff(limits, prepend=0))
    lengths = np.diff(starts, append=limits.size)
    if lengths.size < 2:
        return findings(run)
    longest = int(np.argmax(lengths))
    first, last = int(starts[longest]) + 1, int(starts[longest] + lengths[longest])
    sentence = (
        f"The findings are about generations {first} to {last}, the longest stretch with one limit "
        f"of episodes: {limits[first - 1]:.0f} steps."
    )
    return [*findings(run.part(first, last)), HealthFinding("one_limit", "ok", sentence)]


def _equal_episodes(result: Json, kind: str) -> HealthFinding:
    """The finding that all held-out episodes of a result are the same."""
    episode = f"return {result['returns'][0]:g}, {result['lengths'][0]:,.0f} steps"
    sentence = f"all {len(result['returns'])} held-out episodes are equal: {episode}"
    if kind == "one":
        sentence += "; the environment is deterministic, so the score is that of one trajectory"
    return HealthFinding("equal_episodes", "note", sentence, VARY)


def run_measurements(folder: TrialFolder) -> RunMeasurements:
    """The health measurements of a trial."""
    spec = folder.description()["spec"]
    is_agent, settings = spec["policy"] is None, spec["algorithm"]["settings"]
    seeks_returns = True
    # An agent, a plugin that is not installed here, or own code, which is not imported here.
    with contextlib.suppress(UsageError):
        seeks_returns = not ALGORITHMS.get(spec["algorithm"]["name"]).needs_behaviors
    # An agent has no parameters to count, nor has a search before its first checkpoint.
    state = None if is_agent else folder.load_checkpoint()
    return RunMeasurements(
        {name: each.astype(np.float64) for name, each in folder.columns(*MEASURES).items()},
        num_params=math.nan if state is None else float(state["algorithm"]["center"].size),
        reward_shift=spec["environment"]["reward_shift"] + settings.get("reward_shift", 0.0),
        seeks_returns=seeks_returns,
        has_learning_rate=not is_agent and "learning_rate" in settings,
        has_population=not is_agent,
    )


def as_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Every field of the diagnoses as JSON, in full precision; NaN is null."""
    return as_text({"trials": [asdict(item) | {"level": item.level} for item in diagnoses]})
