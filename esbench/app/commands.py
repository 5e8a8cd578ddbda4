"""Commands as functions, for scripts and notebooks: they return data frames and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from esbench.core.errors import UsageError, require_choice, require_flag, require_integer, shown
from esbench.core.files import as_path, require_path
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from esbench.experiment.watchers import Callback
    from esbench.store.merge import MergeAction


def run(
    grid: str | Path | Table | None = None,
    *,
    env: str | Sequence[str] = (),
    algorithm: str | Sequence[str] = (),
    seeds: str | int | Sequence[int] | None = None,
    env_steps: int | None = None,
    set: str | Sequence[str] = (),
    device: str | None = None,
    out: str | Path | None = None,
    extend: bool = False,
    shard: str | None = None,
    workers: int | None = None,
    at_once: int | None = None,
    keep: int = 1,
    record: Literal["members"] | None = None,
    callback: str | Callback | Sequence[str | Callback] = (),
    track: str | Sequence[str] = (),
    quiet: bool = False,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    allow_mixed: bool = False,
    episode_timeout: float | None = None,
    trial_timeout: float | None = None,
) -> pd.DataFrame:
    """Train every trial of a grid, like ``esbench run``; the arguments are its options.

    Finished trials are skipped and unfinished ones resumed. Progress is printed.

    Args:
        grid: the name of a grid, a grid file, or its content as a table.
        env: environments; replace those of the grid.
        algorithm: algorithms; replace those of the grid.
        seeds: such as "0-9", 3 or [0, 2, 5].
        env_steps: environment steps of training per trial.
        set: settings, such as "budget.env_steps=1000".
        device: "cpu" or "cuda", for a convolutional policy.
        out: output folder; default ``results/runs/NAME``.
        extend: continue trials that have a smaller budget.
        shard: "I/N" for part I of N, of about equal planned cost.
        workers: worker processes; default one per core.
        at_once: concurrent trials.
        keep: checkpoints to keep per trial.
        record: "members" also stores what every member did, for ``load_members``.
        callback: called with every generation's record, may return ``Stop``. By default, trials
            run side by side only if it is a name, such as "package.file:function".
        track: trackers, such as "tensorboard" or "package.file:Class".
        quiet: print one line per trial.
        engine: where episodes are played.
        address: HOST:PORT of the Ray cluster; default a local Ray on this machine.
        allow_mixed: also use nodes with other versions, processors or user code; marks trials.
        episode_timeout: fail a trial in which no episode has ended for this time [s].
        trial_timeout: stop and fail a trial after this time [s].

    Returns:
        One row per trial of the grid, with the columns of ``load_scores``. The status of a trial
        that failed is "failed"; the others are not affected.

    Raises:
        UsageError: the input is wrong, or the folder holds other trials. Nothing is written.
    """
    from esbench.cli.app import all_overrides
    from esbench.cli.training_commands import train
    from esbench.experiment.engines import EngineChoice
    from esbench.experiment.trials import open_grid
    from esbench.experiment.watchers import ImportedCallback, Limits
    from esbench.integrations.trackers.base import make_tracker
    from esbench.results.data_frames import scores_of

    for name, flag in (("extend", extend), ("quiet", quiet), ("allow_mixed", allow_mixed)):
        require_flag(name, flag)
    limits = Limits(episode_timeout, trial_timeout)
    require_choice("record", record, (None, "members"))
    chosen = EngineChoice(workers, engine, address, allow_mixed)
    given: Sequence[str | Callback] = (
        [callback] if isinstance(callback, str) or not isinstance(callback, Sequence) else callback
    )
    callbacks = [ImportedCallback(one) if isinstance(one, str) else one for one in given]
    for one in callbacks:
        if not callable(one):
            raise UsageError(f"callback = {shown(one)}: expected a function, or its name")
    if at_once is None and not all(isinstance(one, ImportedCallback) for one in callbacks):
        at_once = 1
    if not isinstance(grid, dict | None):
        require_path("grid", grid)
    root, trials = open_grid(
        grid if isinstance(grid, dict | None) else str(grid),
        environments=_listed("env", env),
        algorithms=_listed("algorithm", algorithm),
        seeds=seeds if seeds is None or isinstance(seeds, str) else _seeds(seeds),
        env_steps=env_steps,
        overrides=all_overrides(_listed("set", set), device),
        out=None if out is None else as_path("out", out),
        extend=extend,
        keep=keep,
        record=record is not None,
        shard=shard,
    )
    trackers = {name: make_tracker(name, root) for name in _listed("track", track)}
    train(trials, chosen, at_once, quiet, callbacks, trackers, root, limits)
    found = (
        ({**trial.labels, "seed": trial.spec.seed}, trial.folder)
        for trial in trials
        if trial.status != "missing"
    )
    return scores_of(found, damaged_failed=True)


def table(
    folder: str | Path,
    *,
    wide: bool = False,
    by: str | None = None,
    which: Literal["last", "best"] = "last",
    statistic: Literal["mean", "tail", "area"] = "mean",
) -> pd.DataFrame:
    """The scores of an output folder, as ``esbench table``, in full precision.

    Args:
        folder: an output folder.
        wide: one row per algorithm and one column per environment, the best algorithm first.
        by: sort by this setting of the algorithms and give it a column.
        which: "best" also shows the scores of the best policies, in the column ``selected``; first
            run ``esbench eval --all --which best``.
        statistic: the score of a seed is the mean return of its held-out episodes, their tail (the
            mean of the worst 10 %), or the area under its learning curve, divided by the budget.

    Returns:
        One row per environment and algorithm. ``score`` is the IQM over seeds, ``low`` and
        ``high`` its interval, ``tail`` the mean over seeds of the mean of the worst 10 % of
        held-out episodes, ``standing`` "best", "tied" or empty. ``attrs["notes"]`` are the
        footnotes of the printed table.

    Raises:
        UsageError: there is no trial, a trial is not readable or has no tail, or ``by`` has fewer
            than two values.
    """
    from esbench.publish.tables.score_table import (
        require_one_layout,
        score_frame,
        score_table,
        wide_frame,
    )

    require_flag("wide", wide)
    if by is not None and not isinstance(by, str):
        raise UsageError(f"by = {shown(by)}: expected the name of a setting")
    require_choice("which", which, ("last", "best"))
    require_choice("statistic", statistic, ("mean", "tail", "area"))
    require_one_layout(wide, by, which, statistic)
    rows = score_table(as_path("folder", folder), by, which == "best", statistic)
    return wide_frame(rows) if wide else score_frame(rows, by)


def compare(
    first: str | Path,
    second: str | Path,
    *,
    in_: str | Path | None = None,
    statistic: Literal["mean", "tail", "area"] = "mean",
) -> pd.DataFrame:
    """The comparison of two sides A and B, as ``esbench compare``.

    Args:
        first: A, an output folder or an algorithm.
        second: B, the other output folder or algorithm.
        in_: the output folder of the two algorithms.
        statistic: the score of a seed is the mean return of its held-out episodes, their tail (the
            mean of the worst 10 %), or the area under its learning curve, divided by the budget.

    Returns:
        One row per environment that both have: interquartile means and tails of both sides; the
        difference A - B and the probability of improvement P(A > B), each with its 95 % interval;
        the Holm-corrected p-value and Hedges' effect size. ``attrs["outcome"]`` is the result in a
        sentence.

    Raises:
        UsageError: a folder or an algorithm does not exist, a trial is not readable or has no tail,
            or the sides share no environment.
    """
    from esbench.publish.tables.comparison_table import compare_sides, comparison_frame

    require_choice("statistic", statistic, ("mean", "tail", "area"))
    root = None if in_ is None else as_path("in_", in_)
    for name, side in (("first", first), ("second", second)):
        require_path(name, side)
    return comparison_frame(compare_sides(str(first), str(second), root, statistic))


def plot(
    folder: str | Path,
    *,
    algorithms: str | Sequence[str] = (),
    size: str | tuple[float, float] | None = None,
    panels: str | Sequence[str] = (),
) -> Figure:
    """The figures of ``esbench plot`` below each other in one figure.

    It displays itself in a notebook, and pyplot neither shows nor keeps it. Save it with
    ``savefig``.

    Args:
        folder: an output folder, or the folder of one environment in it.
        algorithms: names to draw, by default all.
        size: width and height of each part in inches, such as "6.6x3" or (6.6, 3).
        panels: those of the learning curves, from "steps", "time" and "rank"; by default all.

    Raises:
        UsageError: no trial has two generations yet, an algorithm has no trial, or the size is too
            small.
    """
    from esbench.publish.figures.all_figures import parse_panels
    from esbench.publish.figures.combined import combined_figure
    from esbench.publish.figures.drawing import parse_size
    from esbench.publish.figures.environment_figure import PANELS

    names = [name.strip() for text in _listed("algorithms", algorithms) for name in text.split(",")]
    sides = size if isinstance(size, tuple) else (size,)
    text = "x".join(each if isinstance(each, str) else shown(each) for each in sides)
    return combined_figure(
        as_path("folder", folder),
        names,
        None if size is None else parse_size(text),
        parse_panels(",".join(_listed("panels", panels))) if panels else PANELS,
    )


def merge(folders: str | Path | Sequence[str | Path], *, out: str | Path) -> dict[MergeAction, int]:
    """Join output folders, as ``esbench merge``.

    Args:
        folders: one or more output folders to copy from; they are not changed.
        out: the output folder for all trials, which may have some already.

    Returns:
        The numbers of trials that were "copied", that "replaced" a shorter one, and that were
        "kept" because ``out`` had them.

    Raises:
        UsageError: two trials in one place contradict each other, one is running or damaged, or a
            folder has no trial. Nothing is written.
    """
    from esbench.store.merge import merge as join

    given = [folders] if isinstance(folders, str | Path) else folders
    if not isinstance(given, Iterable):
        raise UsageError(f"folders = {shown(given)}: expected a folder, or a list of folders")
    if not (given := list(given)):
        raise UsageError("merge: no folder given; expected output folders of 'esbench run'")
    return join([as_path("folders", folder) for folder in given], as_path("out", out))


def _listed(name: str, value: str | Sequence[str]) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise UsageError(f"{name} = {shown(value)}: expected text, or a list of texts")
    return list(values)


def _seeds(seeds: int | Sequence[int]) -> str:
    given: object = [seeds] if isinstance(seeds, Integral) else seeds
    if not isinstance(given, Iterable):
        raise UsageError(f"seeds = {shown(seeds)}: expected an integer, a list of them or text")
    if not (numbers := list(given)):
        raise UsageError(f"seeds = {shown(seeds)}: expected one integer or more")
    for number in numbers:
        require_integer("seeds", number, 0, LARGEST_SEED)
    return ",".join(map(str, numbers))
