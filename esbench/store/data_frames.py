"""Stored results as data frames, for notebooks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esbench.files import Json
from esbench.store.trial_folder import TrialFolder, find_trials

if TYPE_CHECKING:
    import pandas as pd


def load_results(root: Path | str) -> pd.DataFrame:
    """Every generation of every trial below ``root``: one row per trial and generation.

    Columns: environment, algorithm, policy, seed, trial (its folder), status, and the fields of
    ``GenerationRecord``, with NaN for None. Sorted by trial and generation.

    Raises:
        UsageError: there is no trial, or one cannot be read.
    """
    import pandas as pd

    trials = find_trials(Path(root))
    labels = [_labels(trial) for trial in trials]
    rows = [trial.columns() for trial in trials]
    lengths = [len(columns["generation"]) for columns in rows]
    table = {
        # Objects: every repetition refers to the same text.
        name: np.repeat(np.array([label[name] for label in labels], dtype=object), lengths)
        for name in labels[0]
    }
    table["seed"] = table["seed"].astype(np.int64)
    for key in list(rows[0]):  # each part is dropped once it is copied: there may be gigabytes
        table[key] = np.concatenate([columns.pop(key) for columns in rows])
    return pd.DataFrame(table, copy=False)


def load_scores(root: Path | str) -> pd.DataFrame:
    """The score and cost of every trial below ``root``: one row per trial.

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
