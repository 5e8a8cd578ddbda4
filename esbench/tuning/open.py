"""The studies of a grid: one per environment, algorithm and policy."""

from __future__ import annotations

from pathlib import Path

from esbench.core.errors import UsageError
from esbench.core.search_space import SearchSpace
from esbench.experiment.trials import Trial, grid_trials, require_folder
from esbench.grids.grid_file import Grid
from esbench.store.find_trials import check_format
from esbench.tuning.space import search_space
from esbench.tuning.study import Search, Study, open_study


def open_studies(
    grid: Grid, source: str, search: Search, out: Path, storage: str | None = None
) -> list[Study]:
    """The studies of a grid, in its order; the default storage is a journal file in ``out``.

    Raises:
        UsageError: a seed of the search is one of the grid or there twice, a search space is wrong,
            or the storage or the folder belong to another search. No trial is changed.
    """
    require_folder(out)
    if len({*search.seeds}) < len(search.seeds):
        raise UsageError(
            f"the tuning seeds are {', '.join(map(str, search.seeds))}; expected each seed once"
        )
    trials = grid_trials(grid, out, source)
    if both := sorted({*search.seeds} & {trial.spec.seed for trial in trials}):
        raise UsageError(
            f"the tuning seeds {', '.join(map(str, both))} are seeds of the grid; expected seeds "
            "that are not, because the best settings fit the seeds on which they were found"
        )
    firsts: dict[str, Trial] = {}
    for trial in trials:
        firsts.setdefault(str(trial.folder.path.parent), trial)
    keys = [_key(trial, grid) for trial in firsts.values()]
    spaces = [
        _space(trial, grid, source, key) for trial, key in zip(firsts.values(), keys, strict=True)
    ]
    check_format(out)
    file = storage or str(out / "study.journal")
    return [
        open_study(trial, key, space, search, file)
        for trial, key, space in zip(firsts.values(), keys, spaces, strict=True)
    ]


def _key(trial: Trial, grid: Grid) -> str:
    """The grid's key of the algorithm of a trial, whose label has the values of a sweep too."""
    label = f"{trial.labels['algorithm']} "
    return max((key for key in grid.algorithms if label.startswith(f"{key} ")), key=len)


def _space(trial: Trial, grid: Grid, source: str, key: str) -> SearchSpace:
    """The search space of the algorithm of a trial."""
    model = type(trial.spec.algorithm.settings)
    return search_space(model, grid.tune.get(key, {}), source, key)
