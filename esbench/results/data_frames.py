"""Stored results as data frames, for notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import as_path
from esbench.core.json_text import Json
from esbench.results.cell import held_twice
from esbench.store.find_trials import find_trials
from esbench.store.trial_folder import TrialFolder

if TYPE_CHECKING:
    import pandas as pd

_IDENTITY: Final = ("environment", "algorithm", "policy", "seed", "trial", "status")


def load_results(root: Path | str) -> pd.DataFrame:
    """Every generation of every trial below ``root``: one row per trial and generation.

    Columns: environment, algorithm, policy, seed, trial (its folder), status, and the fields of
    ``GenerationRecord``, with NaN for None. Sorted by trial and generation.

    Raises:
        UsageError: there is no trial, one cannot be read, or one is a copy of another.

    Examples:
        >>> best = esbench.load_results("out")["center_return"].max()
    """
    import pandas as pd

    trials = _distinct_trials(root)
    labels = [_identity(trial) for trial in trials]
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
        UsageError: there is no trial, one cannot be read, or one is a copy of another.

    Examples:
        >>> mean = esbench.load_scores("out")["score"].mean()
    """
    return scores_of((None, trial) for trial in _distinct_trials(root))


def scores_of(
    trials: Iterable[tuple[Json | None, TrialFolder]], *, damaged_failed: bool = False
) -> pd.DataFrame:
    """``load_scores`` of some trials, each with its labels and seed or None for the stored ones.

    With ``damaged_failed``, a done trial that is damaged, or its rows, has the status "failed".
    """
    import pandas as pd

    keys = ("score", "env_steps", "generations", "wall_time_s", "evaluation_episodes")
    rows = []
    for labels, trial in trials:
        row: Json = _identity(trial, labels)
        result: Json = {}
        if row["status"] == "done":
            try:
                trial.description()
                if damaged_failed:
                    trial.columns("generation")
                result = trial.result()
            except DamagedTrialError:
                if not damaged_failed:
                    raise
                row["status"] = "failed"
        rows.append(row | {key: result.get(key) for key in keys})
    return pd.DataFrame(rows, columns=[*_IDENTITY, *keys]).astype(dict.fromkeys(keys, float))


def load_members(trial: Path | str) -> pd.DataFrame:
    """What every member of a trial did: one row per generation, member and episode.

    Columns: generation, member and episode (from 0), return (without reward shift) and length; and
    what the algorithm adds, which is the same in all episodes of a member: behavior_0 to
    behavior_D, novelty, novelty_weight and parent (the chosen center) of novelty search. NaN where
    a number is not finite. The unperturbed policy is not among the members.

    Args:
        trial: the folder of a trial of ``esbench run --record members``.

    Raises:
        UsageError: there is no trial, it was trained without that option, or it cannot be read.

    Examples:
        >>> best = esbench.load_members("out/CartPole-v1/snes/seed-0")["return"].max()
    """
    import pandas as pd

    folder = TrialFolder(as_path("trial", trial))
    folder.description()  # raises if it is no trial
    tables = [_members_table(row) for row in folder.members()]
    if not tables:
        raise UsageError(
            f"{folder.path} has no members' data; expected a trial of "
            "'esbench run --record members'"
        )
    return pd.concat(map(pd.DataFrame, tables), ignore_index=True)


def _members_table(row: Json) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of one generation, [members * episodes]."""
    arrays = {name: _numbers(value) for name, value in row.items()}
    members, episodes = arrays["return"].shape
    table = {
        "generation": np.full(members * episodes, arrays.pop("generation")),
        "member": np.repeat(np.arange(members), episodes),
        "episode": np.tile(np.arange(episodes), members),
        "return": arrays.pop("return").ravel(),
        "length": arrays.pop("length").ravel(),
    }
    for name, values in arrays.items():
        if values.ndim == 2:
            columns = {f"{name}_{d}": values[:, d] for d in range(values.shape[1])}
        else:
            columns = {name: np.broadcast_to(values, members)}
        table |= {column: np.repeat(each, episodes) for column, each in columns.items()}
    return table


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    """Nested lists as integers, or as float64 with NaN for None."""
    array = np.array(value)
    return array.astype(np.float64) if array.dtype == object else array


def _distinct_trials(root: Path | str) -> list[TrialFolder]:
    """The trials below a folder; UsageError if one is a copy, which would count twice."""
    trials = find_trials(as_path("root", root))
    known: dict[str, Path] = {}
    for trial in trials:
        first = known.setdefault(json.dumps(trial.description()), trial.path)
        if first is not trial.path:
            raise held_twice(first, trial.path)
    return trials


def _identity(trial: TrialFolder, labels: Json | None = None) -> Json:
    """The first columns: labels and seed, by default the stored ones, folder and status."""
    if labels is None:
        description = trial.description()
        labels = {**description["labels"], "seed": description["spec"]["seed"]}
    known = {**labels, "trial": str(trial.path), "status": trial.status}
    return {key: known[key] for key in _IDENTITY}
