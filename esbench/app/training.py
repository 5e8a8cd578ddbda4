"""Train grids, estimate their cost, show their state and search for settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Unpack, final

from esbench.app.display import Display
from esbench.app.options import (
    GridLike,
    GridOptions,
    RunOptions,
    Texts,
    TrialOptions,
    TuneOptions,
    compose,
    listed,
    open_trials,
    public,
    require_trusted_start,
    skip_missing,
)
from esbench.app.plain_display import PlainDisplay
from esbench.core.errors import UsageError, require_integer, shown

if TYPE_CHECKING:
    import pandas as pd

    from esbench.bench.grid_cost import Cost, TrialStanding
    from esbench.experiment.engines import EngineChoice, Schedule
    from esbench.experiment.trials import Trial
    from esbench.experiment.watchers import Callback, Limits, Outcome
    from esbench.grids.expand import LabeledSpec
    from esbench.integrations.trackers.tracker import Tracker
    from esbench.tuning.summary import Summary

TUNING_SEEDS: Final = "1000000-1000002"  # from ``seeding.FIRST_TUNING_SEED`` on


@public(RunOptions)
def run(
    grid: GridLike = None,
    *,
    keep: int = 1,
    record: Literal["members"] | None = None,
    callback: str | Callback | Sequence[str | Callback] = (),
    quiet: bool = False,
    track: Texts = (),
    episode_timeout: float | None = None,
    trial_timeout: float | None = None,
    display: Display | None = None,
    **options: Unpack[RunOptions],
) -> pd.DataFrame:
    """Train every trial of a grid; finished trials are skipped, unfinished ones resumed.

    Args:
        grid: and shared options.
        keep: checkpoints to keep per trial, evenly spaced over its budget, for eval and render.
        record: also store what every member did, for esbench.load_members.
        callback: function that receives the record of every generation and may return
            esbench.Stop.
        quiet: print one line per trial instead of progress.
        track: trackers: tensorboard, wandb, mlflow or your own package.file:Class.
        episode_timeout: fail a trial if no episode ends within this time (default: no limit).
        trial_timeout: stop and fail a trial after this time; the same command resumes it.
        display: shows the progress; by default as lines of text.

    Returns:
        One row per trial of the grid, with the columns of ``load_scores``. The status of a trial
        that failed is "failed"; the others are not affected. ``attrs["folder"]`` is the output
        folder, and ``attrs["missing"]`` says what was left out for want of a package. A callback
        that is a function, and not a name such as "package.file:function", lets trials run one
        after another.

    Raises:
        UsageError: the input is wrong, the folder holds other trials, or user code has changed
            since it trained those that are finished. Nothing is written.

    Examples:
        >>> grid = {"environments": ["CartPole-v1"], "algorithms": ["openai_es"], "seeds": [0]}
        >>> scores = esbench.run(grid, env_steps=1_000, out="run", quiet=True)  # doctest: +ELLIPSIS
        done ...
    """
    from esbench.engine.child_process import require_main_process
    from esbench.experiment.trials import require_same_code
    from esbench.experiment.watchers import ImportedCallback, Limits
    from esbench.integrations.trackers.tracker import make_tracker
    from esbench.results.data_frames import scores_of
    from esbench.store.own_code import read_again

    require_main_process()
    chosen, at_once = engine_choice(options), options.get("at_once")
    limits = Limits(episode_timeout, trial_timeout)
    given: Sequence[str | Callback] = (
        [callback] if isinstance(callback, str) or not isinstance(callback, Sequence) else callback
    )
    callbacks = [ImportedCallback(one) if isinstance(one, str) else one for one in given]
    for one in callbacks:
        if not callable(one):
            raise UsageError(f"callback = {shown(one)}: expected a function, or its name")
    if at_once is None and not all(isinstance(one, ImportedCallback) for one in callbacks):
        at_once = 1
    missing = skip_missing(grid, options)
    root, trials = open_trials(grid, options, keep, record is not None)
    require_trusted_start([trial.spec for trial in trials], options)
    read_again(trial.spec for trial in trials)
    require_same_code(trials)
    trackers = {name: make_tracker(name, root) for name in listed(track)}
    train(
        display or PlainDisplay(), trials, chosen, at_once, quiet, callbacks, trackers, root, limits
    )
    frame = scores_of(
        (
            ({**trial.labels, "seed": trial.spec.seed}, trial.folder)
            for trial in trials
            if trial.status != "missing"
        ),
        damaged_failed=True,
    )
    frame.attrs["folder"], frame.attrs["missing"] = root, missing
    return frame


def train(
    display: Display,
    trials: Sequence[Trial],
    engine: EngineChoice,
    at_once: int | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trackers: Mapping[str, Tracker] = MappingProxyType({}),
    root: Path = Path(),
    limits: Limits | None = None,
) -> list[Outcome]:
    """Train trials and show their progress; KeyboardInterrupt comes after they are saved.

    ``root`` is the output folder of the grid, which trackers need.
    """
    from esbench.experiment.run_grid import layout_of, run_grid
    from esbench.experiment.tracking import TrackedGrid
    from esbench.experiment.watchers import UNLIMITED

    progress = display.grid(len(trials), quiet)
    tracked = TrackedGrid(progress, trackers, root, display.warn, _draw_curve)
    try:
        with engine.open(trial.spec for trial in trials) as pool:
            pool.notice = display.warn
            if not quiet and pool.machines() is not None:
                display.say(f"ray: {layout_of(trials, pool, at_once).words}")
            with progress:
                outcomes = run_grid(
                    trials, pool, tracked, callbacks, at_once, limits or UNLIMITED, apart=True
                )
    finally:
        if trackers:
            with display.working("finishing the trackers"):
                tracked.close()
    display.say(*tracked.views)
    _measure_random_scores(trials, display, engine.workers, quiet)
    return outcomes


def _measure_random_scores(
    trials: Sequence[Trial], display: Display, workers: int | None, quiet: bool
) -> None:
    """Record what random actions score where tables and figures have no such score."""
    from esbench.engine.setup import only_here
    from esbench.experiment.engines import local_engine
    from esbench.experiment.random_scores import record_random_score, without_random_score

    if not (groups := without_random_score(trials)):
        return
    known_here = any(only_here(group[0].spec.environment) for group in groups)
    with local_engine(0 if workers == 0 or known_here else 1) as pool:
        for group in groups:
            name, why = group[0].labels["environment"], ""
            if not (quiet or any(trial.frozen.random for trial in group)):
                display.say(f"playing random actions in {name}, for a score to compare with")
            with display.working(f"playing random actions in {name}"):
                try:
                    if record_random_score(group, pool) is None:
                        why = (
                            "their returns have no finite mean and deviation, or their process died"
                        )
                except UsageError as error:
                    why = str(error)
            if why:
                display.warn(f"{name} has no score of random actions: {why}")


def _draw_curve(trial: Trial, folder: Path) -> None:
    from esbench.publish.figures.drawing import Output
    from esbench.publish.figures.write_figures import draw

    with contextlib.suppress(UsageError):  # a single generation makes no curve
        draw(trial.folder.path, folder, output=Output(("png",)))


@final
@dataclass(frozen=True)
class Plan:
    """What a grid costs.

    Attributes:
        costs: of each environment.
        layout: how the trials share the workers.
        folder: the output folder.
        shards: the sizes of all shards in words; empty without ``shard``.
    """

    costs: list[Cost]
    layout: Schedule
    folder: Path
    shards: str

    @property
    def seconds(self) -> float:
        """The time that is left, without updates and scoring [s]."""
        return sum(cost.seconds for cost in self.costs)


@public(RunOptions)
def plan(
    grid: GridLike = None, *, display: Display | None = None, **options: Unpack[RunOptions]
) -> Plan:
    """Estimate the cost of a grid: trials, steps and time, from a measured speed.

    Args:
        grid: and shared options.
        display: shows the progress.

    Raises:
        UsageError: as ``run``.
        TrainingError: an environment failed.

    Examples:
        >>> esbench.plan("quick", algorithm="openai_es").seconds > 0
        True
    """
    from esbench.bench.grid_cost import costs
    from esbench.experiment.run_grid import layout_of

    show = display or PlainDisplay()
    for sentence in skip_missing(grid, options):
        show.warn(f"left out: {sentence}")
    root, trials = open_trials(grid, options)
    require_trusted_start([trial.spec for trial in trials], options)
    with engine_choice(options).open(trial.spec for trial in trials) as pool:
        pool.notice = show.warn
        layout = layout_of(trials, pool, options.get("at_once"))
        with show.working("measuring"):
            found = costs(trials, pool)
    return Plan(found, layout, root, _shards(grid, options))


def engine_choice(options: RunOptions) -> EngineChoice:
    """The engine that options choose."""
    from esbench.experiment.engines import EngineChoice

    name, mixed = options.get("engine", "local"), options.get("allow_mixed", False)
    return EngineChoice(options.get("workers"), name, options.get("address"), mixed)


def _shards(grid: GridLike, options: TrialOptions) -> str:
    shard = options.get("shard")
    if shard is None:
        return ""
    from esbench.grids.shards import parse_shard

    return f"Shard {shard}; {shard_sizes(grid, options, parse_shard(shard).count)}"


def shard_sizes(grid: GridLike, options: GridOptions, count: int) -> str:
    """The sizes of a grid's shards in words; UsageError if there are too many."""
    from esbench.experiment.trials import grid_trials
    from esbench.grids.shards import describe_shards

    typed, source = compose(grid, options)
    return describe_shards([trial.spec for trial in grid_trials(typed, Path(), source)], count)


@public(TrialOptions)
def status(grid: GridLike = None, **options: Unpack[TrialOptions]) -> list[TrialStanding]:
    """Show which trials of a grid are done, running, partial, failed or missing.

    Args:
        grid: and shared options.

    Returns:
        One record per trial: its status, generation and steps, and its score or error.

    Raises:
        UsageError: as ``run``.

    Examples:
        >>> {trial.status for trial in esbench.status("quick")}
        {'missing'}
    """
    return standings(grid, **options)[0]


def standings(grid: GridLike, **options: Unpack[TrialOptions]) -> tuple[list[TrialStanding], Path]:
    """What ``status`` returns, and the output folder."""
    from esbench.bench.grid_cost import standing

    root, trials = open_trials(grid, options)
    return [standing(trial) for trial in trials], root


@public(GridOptions)
def expand(grid: GridLike = None, **options: Unpack[GridOptions]) -> Iterator[LabeledSpec]:
    """Yield the trials of a grid by environment, algorithm, policy and seed; nothing is run.

    Args:
        grid: and shared options.

    Raises:
        UsageError: the input is wrong.

    Examples:
        >>> [trial.spec.seed for trial in esbench.expand("quick", algorithm="openai_es")]
        [0, 1, 2, 0, 1, 2]
    """
    from esbench.experiment.trials import latest_start
    from esbench.grids.expand import expanded

    typed, source = compose(grid, options)
    yield from expanded(typed, source, latest_start(typed.init_from))


@public(TuneOptions)
def tune(
    grid: GridLike = None,
    *,
    trials: int = 50,
    storage: str | None = None,
    every: bool = False,
    tuning_seeds: str = TUNING_SEEDS,
    sampler: Literal["tpe", "random"] = "tpe",
    sampler_seed: int = 0,
    no_pruning: bool = False,
    out: str | Path | None = None,
    quiet: bool = False,
    display: Display | None = None,
    **options: Unpack[TuneOptions],
) -> list[Summary]:
    """Search for the best settings of algorithms; a killed search is resumed.

    Args:
        grid: and shared options.
        trials: configurations per study.
        storage: Optuna's storage: a journal file, an SQLite file (.db) or a URL (default:
            study.journal in the output folder).
        every: tune all algorithms of the grid, with equal effort.
        tuning_seeds: training seeds of every configuration; not those of the grid.
        sampler: how configurations are chosen.
        sampler_seed: seed of the sampler.
        no_pruning: train every configuration to its end.
        out: output folder (default: results/tuning/NAME).
        quiet: print one line per trial.
        display: shows the progress; by default as lines of text.

    Returns:
        One summary per environment, algorithm and policy, whose best settings and figures are in
        ``files``.

    Raises:
        UsageError: the input is wrong, Optuna is not installed, or the storage or the folder belong
            to another search.

    Examples:
        >>> esbench.tune("quick", algorithm="openai_es", trials=20)  # doctest: +SKIP
    """
    from esbench.core.settings import MOST
    from esbench.experiment.engines import local_engine, schedule
    from esbench.experiment.run_grid import run_grid
    from esbench.experiment.trials import latest_start
    from esbench.grids.compose import parse_seeds
    from esbench.grids.expand import expanded
    from esbench.store.own_code import read_again
    from esbench.tuning.study import RUNGS, Search, open_studies
    from esbench.tuning.summary import draw_tuning, summarize, write_best

    show, workers = display or PlainDisplay(), options.get("workers")
    at_once = options.get("at_once")
    require_integer("trials", trials, 1, MOST)
    require_integer("sampler_seed", sampler_seed, 0, MOST)
    typed, source = compose(grid, options)
    if len(typed.algorithms) > 1 and not (every or options.get("algorithm")):
        raise UsageError(
            f"the grid has {len(typed.algorithms)} algorithms; expected --algorithm NAME, or --all "
            f"to tune each of {', '.join(typed.algorithms)}"
        )
    seeds = tuple(parse_seeds(tuning_seeds, "--tuning-seeds"))
    search = Search(seeds, sampler, sampler_seed, RUNGS[-1:] if no_pruning else RUNGS)
    root = Path("results/tuning") / typed.name if out is None else Path(out)
    labeled = expanded(typed, source, latest_start(typed.init_from))
    specs = [each.spec for each in labeled]
    schedule((), local_engine(workers, specs).size, at_once)  # refuses wrong numbers in time
    require_trusted_start(specs[:1], options)
    read_again(specs)
    studies = open_studies(typed, source, search, root, storage)
    with local_engine(workers, specs) as pool:
        pool.notice = show.warn

        def play(todo: Sequence[Trial], title: str) -> list[Outcome]:
            show.say(title)
            with show.grid(len(todo), quiet, warns=False) as progress:
                return run_grid(todo, pool, progress, at_once=at_once, apart=True)

        for study in studies:
            study.run(trials, play)
    summaries = [summarize(study) for study in studies]
    return [replace(each, files=(*write_best(each), *draw_tuning(each))) for each in summaries]
