"""Diagnosis of stored trials: the health of their runs, from their rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.base import ALGORITHMS
from esbench.analysis.generations import thirds
from esbench.analysis.health import LEVELS, HealthFinding, Level, RunMeasurements, findings
from esbench.errors import UsageError
from esbench.store.cells import cell_name
from esbench.store.trial_folder import Status, TrialFolder, find_trials, is_trial

_ROW_FIELDS: Final = [field.name for field in fields(RunMeasurements) if field.default is MISSING]


@final
@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of one trial.

    Attributes:
        trial: its folder.
        environment, algorithm: labels; the algorithm's with the policy's, if it has one.
        seed: of the trial.
        status: of the trial.
        generations, env_steps: so far.
        measures: the mean of each measurement over the first, middle and last third of the run;
            NaN without a measurement.
        findings: worst first.
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
    if not path.is_dir():
        raise UsageError(
            f"no folder {str(path)!r}; expected a trial's folder, or a folder of trials"
        )
    if is_trial(path):
        return [diagnose_trial(TrialFolder(path))]
    found = [diagnose_trial(trial) for trial in find_trials(path)]
    return sorted(found, key=lambda item: LEVELS.index(item.level))


def diagnose_trial(folder: TrialFolder) -> Diagnosis:
    """The diagnosis of one trial.

    Raises:
        UsageError: it cannot be read.
    """
    description, run = folder.description(), run_measurements(folder)
    labels = description["labels"]
    steps = folder.columns("env_steps")["env_steps"]
    return Diagnosis(
        trial=str(folder.path),
        environment=labels["environment"],
        algorithm=cell_name(labels["algorithm"], labels["policy"]),
        seed=description["spec"]["seed"],
        status=folder.status,
        generations=run.generations,
        env_steps=int(steps[-1]) if steps.size else 0,
        measures=_measures(run),
        findings=tuple(findings(run)),
    )


def run_measurements(folder: TrialFolder) -> RunMeasurements:
    """The health measurements of a trial.

    Raises:
        UsageError: it cannot be read.
    """
    columns: dict[str, Any] = folder.columns(*_ROW_FIELDS)
    seeks_returns, has_learning_rate = _kind(folder.description()["spec"]["algorithm"]["name"])
    return RunMeasurements(
        **{name: values.astype(np.float64) for name, values in columns.items()},
        num_params=_num_params(folder),
        seeks_returns=seeks_returns,
        has_learning_rate=has_learning_rate,
    )


def as_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Every field of the diagnoses as JSON, in full precision; NaN is null."""
    content = {"trials": [asdict(item) | {"level": item.level} for item in diagnoses]}
    for trial in content["trials"]:
        trial["measures"] = {
            name: [value if math.isfinite(value) else None for value in values]
            for name, values in trial["measures"].items()
        }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measures(run: RunMeasurements) -> dict[str, tuple[float, float, float]]:
    names = (
        "center_return", "population_return_mean", "population_return_std", "center_rank_fraction",
        "tied_returns", "update_cosine", "split_half_cosine", "sigma", "distance",
        "observation_drift",
    )  # fmt: skip
    values = {name: thirds(getattr(run, name)) for name in names}
    return values | {"update_norm / radius": thirds(run.update_norm / run.radius)}


def _num_params(folder: TrialFolder) -> float:
    """The number of parameters, or NaN before the first checkpoint."""
    state = folder.load_checkpoint()
    if state is None:
        return math.nan
    try:
        return float(state["algorithm"]["center"].size)
    except (KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{folder.path} is damaged (its checkpoint has no centre); remove the folder to start "
            "that trial over"
        ) from None


def _kind(algorithm: str) -> tuple[bool, bool]:
    """Whether an algorithm seeks returns, and whether it has a learning rate."""
    try:
        cls = ALGORITHMS.get(algorithm)
    except UsageError:  # of a plugin that is not installed here
        return True, False
    return not cls.needs_behaviors, "learning_rate" in cls.Settings.model_fields
