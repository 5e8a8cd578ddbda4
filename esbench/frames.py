"""Stored results as data frames, for notebooks."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esbench.files import Json
from esbench.record import GenerationRecord
from esbench.store import TrialFolder, find_trials

if TYPE_CHECKING:
    import pandas as pd


def load_results(root: Path | str) -> pd.DataFrame:
    """Return every generation of every trial below ``root`` as one data frame.

    Columns: environment, algorithm, policy, seed, trial (its folder), status, and the keys of
    ``GenerationRecord``; one row a trial and generation, sorted by trial and generation.

    Raises:
        UsageError: there is no trial, or one cannot be read.
    """
    import pandas as pd

    columns = [field.name for field in fields(GenerationRecord)]
    frames = []
    for trial in find_trials(Path(root)):
        frame = pd.DataFrame([vars(record) for record in trial.records()], columns=columns)
        for position, (name, value) in enumerate(_labels(trial).items()):
            frame.insert(position, name, value)
        frames.append(frame)
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True)


def load_scores(root: Path | str) -> pd.DataFrame:
    """Return one row a trial below ``root``: its labels, status, score and cost.

    Columns: environment, algorithm, policy, seed, trial, status, score, env_steps, generations,
    wall_time_s, evaluation_episodes (of the score); NaN where the trial is not done.

    Raises:
        UsageError: there is no trial, or one cannot be read.
    """
    import pandas as pd

    keys = ("score", "env_steps", "generations", "wall_time_s", "evaluation_episodes")
    rows = []
    for trial in find_trials(Path(root)):
        labels = _labels(trial)
        result = trial.result() if labels["status"] == "done" else {}
        rows.append(labels | {key: _number(result.get(key)) for key in keys})
    return pd.DataFrame(rows)


def _labels(trial: TrialFolder) -> Json:
    description = trial.description()
    labels = description["labels"]
    return {
        "environment": labels["environment"],
        "algorithm": labels["algorithm"],
        "policy": labels["policy"],
        "seed": description["spec"]["seed"],
        "trial": str(trial.path),
        "status": trial.status,
    }


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
