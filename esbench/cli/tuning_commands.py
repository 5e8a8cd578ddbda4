"""The command that searches for settings: tune."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from esbench.cli.app import (
    EXIT_FAILED,
    AtOnce,
    GridOptions,
    Workers,
    app,
    resumable,
    takes_grid,
)
from esbench.core.errors import UsageError
from esbench.core.seeding import FIRST_TUNING_SEED

if TYPE_CHECKING:
    from esbench.grids.grid_file import Grid
    from esbench.tuning.study import Study


@app.command(
    rich_help_panel="Train and play",
    epilog="Examples: esbench tune quick --all --trials 20   |   "
    "esbench tune --env CartPole-v1 --algorithm openai_es --trials 50",
)
@partial(takes_grid, without=("out", "extend", "shard"))
def tune(
    options: GridOptions,
    trials: Annotated[int, typer.Option(min=1, help="Configurations per study.")] = 50,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Optuna's storage: a journal file, an SQLite file (.db) or a URL "
            "(default: study.journal in the output folder).",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Tune all algorithms of the grid, with equal effort.")
    ] = False,
    tuning_seeds: Annotated[
        str, typer.Option(help="Training seeds of every configuration; not those of the grid.")
    ] = f"{FIRST_TUNING_SEED}-{FIRST_TUNING_SEED + 2}",
    sampler: Annotated[
        Literal["tpe", "random"], typer.Option(help="How configurations are chosen.")
    ] = "tpe",
    sampler_seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    no_pruning: Annotated[
        bool, typer.Option("--no-pruning", help="Train every configuration to its end.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Output folder (default: results/tuning/NAME).")
    ] = None,
    workers: Workers = None,
    at_once: AtOnce = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print one line per trial.")] = False,
) -> None:
    """Search for the best settings of algorithms; a killed search is resumed."""
    from esbench.engine.worker_pool import WorkerPool
    from esbench.experiment.engines import schedule
    from esbench.grids.compose import parse_seeds
    from esbench.tuning.open import open_studies
    from esbench.tuning.pruning import RUNGS
    from esbench.tuning.study import Search

    grid, source = options.compose()
    _require_all(grid, all_ or bool(options.algorithm))
    seeds = tuple(parse_seeds(tuning_seeds, "--tuning-seeds"))
    search = Search(seeds, sampler, sampler_seed, RUNGS[-1:] if no_pruning else RUNGS)
    schedule((), WorkerPool(workers).size, at_once)  # refuses wrong numbers before it writes
    root = Path("results/tuning") / grid.name if out is None else out
    studies = open_studies(grid, source, search, root, storage)
    with resumable():
        _run(studies, trials, workers, at_once, quiet)
    _print_results(studies)


def _require_all(grid: Grid, chosen: bool) -> None:
    """Ask for ``--all`` where several algorithms could be meant by mistake."""
    if len(grid.algorithms) > 1 and not chosen:
        raise UsageError(
            f"the grid has {len(grid.algorithms)} algorithms; expected --algorithm NAME, or --all "
            f"to tune each of {', '.join(grid.algorithms)}"
        )


def _run(
    studies: Sequence[Study], trials: int, workers: int | None, at_once: int | None, quiet: bool
) -> None:
    from esbench.cli.console import make_console, show
    from esbench.cli.progress import GridDisplay
    from esbench.engine.worker_pool import WorkerPool
    from esbench.experiment.run_grid import run_grid
    from esbench.experiment.trials import Trial
    from esbench.experiment.watchers import Outcome

    with WorkerPool(workers) as pool:

        def play(todo: Sequence[Trial], title: str) -> list[Outcome]:
            show(title)
            with GridDisplay(make_console(), len(todo), quiet, warns=False) as display:
                return run_grid(todo, pool, display, at_once=at_once, apart=True)

        for study in studies:
            study.run(trials, play)


def _print_results(studies: Sequence[Study]) -> None:
    from esbench.cli.console import show
    from esbench.cli.display.tuning import print_tuning, print_tuning_costs
    from esbench.publish.figures.tuning import draw_tuning
    from esbench.tuning.summary import summarize, write_best

    summaries = [summarize(study) for study in studies]
    for summary in summaries:
        show("")
        print_tuning(summary)
        show(*map(str, [*write_best(summary), *draw_tuning(summary)]))
    show("")
    print_tuning_costs(summaries)
    if any(summary.best is None for summary in summaries):
        raise typer.Exit(EXIT_FAILED)
