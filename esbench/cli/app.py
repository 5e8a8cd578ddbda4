"""The command-line application, and the options that commands share."""

from __future__ import annotations

import contextlib
import functools
import inspect
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, final

import typer
import typer.core

from esbench.core.errors import UsageError, as_training_errors
from esbench.core.escape import printable

if TYPE_CHECKING:
    from esbench.experiment.trials import Trial
    from esbench.grids.grid_file import Grid

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

LEADERBOARD: Final = Path("results/leaderboard")


@final
class _Commands(typer.core.TyperGroup):
    """The commands; an error of user code in one is a ``TrainingError`` with its file and line.

    An option that takes one value is given once.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            context = command.context_class(command, info_name=name, parent=ctx)
            _, _, given = command.make_parser(context).parse_args(list(rest))
            for option, count in Counter(given).items():
                if count > 1 and not (option.multiple or getattr(option, "is_flag", True)):
                    raise UsageError(f"{option.opts[0]} is given {count} times; expected one value")
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command."""
        try:
            with as_training_errors(typer.Exit, typer.Abort):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="esbench",
    cls=_Commands,
    help="The benchmark suite for evolution strategies in reinforcement learning.",
    epilog="Start with: esbench run quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

OnlyEnvironments = Annotated[
    list[str] | None, typer.Option("--env", help="Only this environment; can be repeated.")
]
OnlyAlgorithms = Annotated[
    list[str] | None,
    typer.Option("--algorithm", help="Only this algorithm or label; can be repeated."),
]
Generation = Annotated[
    int | None,
    typer.Option(help="Generation of a kept checkpoint (default: the latest)."),
]
Which = Annotated[
    Literal["last", "best"],
    typer.Option(
        help="The final policy, or the best one: that with the largest mean return over five "
        "generations."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes (default: one per core); results do not depend on it."),
]
EngineChosen = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where episodes are played; results do not depend on it."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Head of the Ray cluster to use (default: a local Ray on this machine).",
    ),
]
AllowMixed = Annotated[
    bool,
    typer.Option(
        "--allow-mixed",
        help="Also use nodes with other versions, processors or user code; marks trials inexact.",
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option(
        help="Concurrent trials (default: as many as share the workers evenly); results do not "
        "depend on it."
    ),
]
Trials = Annotated[
    Path, typer.Argument(metavar="TRIAL", help="A trial's folder, or a folder of trials.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of 'esbench run'.")]
Statistic = Annotated[
    Literal["mean", "tail", "area"],
    typer.Option(
        help="The score of a seed: the mean return of its held-out episodes, their tail (the mean "
        "of the worst 10 %), or the area under its learning curve, divided by the budget."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting of the grid; can be repeated."
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="cpu|cuda",
        help="Device of a convolutional policy; short for --set policy.device=...",
    ),
]


@final
@dataclass(frozen=True)
class GridOptions:
    """A grid and the options that change it; the order is that of the help pages."""

    grid: Annotated[
        str | None,
        typer.Argument(metavar="NAME-OR-FILE", help="The name of a grid, or a grid file (TOML)."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", help="Environment; replaces those of the grid; can be repeated."),
    ] = None
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", help="Algorithm; replaces those of the grid; can be repeated."),
    ] = None
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0-9 or 0,2,5.")] = None
    env_steps: Annotated[
        int | None, typer.Option(help="Environment steps of training per trial.")
    ] = None
    set_: Overrides = None
    device: DeviceName = None
    out: Annotated[
        Path | None, typer.Option(help="Output folder (default: results/runs/NAME).")
    ] = None
    extend: Annotated[
        bool,
        typer.Option("--extend", help="Continue trials with a smaller budget up to the new one."),
    ] = False
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only part I of N; all parts have about the same cost and their own folders "
            "(default: results/runs/NAME-shards/NAME-I-of-N).",
        ),
    ] = None

    def open(self, keep: int = 1, record: bool = False) -> tuple[Path, list[Trial]]:
        """The output folder and its trials, checked against what the folder holds."""
        from esbench.experiment.trials import open_grid

        return open_grid(
            self.grid,
            **self._changes,
            out=self.out,
            extend=self.extend,
            keep=keep,
            record=record,
            shard=self.shard,
        )

    def compose(self) -> tuple[Grid, str]:
        """The grid with its changes, and its source."""
        from esbench.grids.compose import compose_grid

        return compose_grid(self.grid, **self._changes)

    def describe_shards(self, count: int) -> str:
        """The sizes of the grid's shards in words; UsageError if there are too many."""
        from esbench.experiment.trials import grid_trials
        from esbench.grids.shards import describe_shards

        grid, source = self.compose()
        trials = grid_trials(grid, Path(), source)
        return describe_shards([trial.spec for trial in trials], count)

    @property
    def _changes(self) -> dict[str, Any]:
        return {
            "environments": self.env or [],
            "algorithms": self.algorithm or [],
            "seeds": self.seeds,
            "env_steps": self.env_steps,
            "overrides": all_overrides(self.set_, self.device),
        }


def all_overrides(overrides: list[str] | None, device: str | None) -> list[str]:
    """The overrides of ``--set`` and ``--device``; a UsageError if there is no such device."""
    if device not in {None, "cpu", "cuda"}:
        raise UsageError(f"--device {device}: expected 'cpu' or 'cuda'")
    if device == "cuda":
        from esbench.policies.kernels.device import require_device

        require_device("cuda")  # before the policy is checked, which might not support it
    return [*(overrides or []), *([] if device is None else [f"policy.device={device}"])]


def takes_grid(command: Callable[..., None], without: Collection[str] = ()) -> Callable[..., None]:
    """Give a command the options of a grid in place of its first parameter, a ``GridOptions``.

    Options ``without`` keep their default, and the command may have others of these names.
    """
    options = inspect.signature(GridOptions, eval_str=True).parameters
    shared = {name: option for name, option in options.items() if name not in without}
    return takes_options(command, shared, lambda values: GridOptions(**values))


def takes_options(
    command: Callable[..., None],
    shared: Mapping[str, inspect.Parameter],
    gather: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """Replace the first parameter of a command by the ``shared`` options.

    The command receives ``gather(values of those options)`` as its first argument.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    every = sorted([*shared.values(), *own], key=lambda option: option.default is not option.empty)

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        gathered = gather({name: values.pop(name) for name in shared})
        command(gathered, **values)

    described: Any = with_options  # for typer
    described.__signature__ = inspect.Signature(every)
    described.__annotations__ = {each.name: each.annotation for each in every}
    return with_options


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from esbench import __version__

        write(f"esbench {__version__}")
        raise typer.Exit


def write(text: str) -> None:
    """Print a result to standard output, ended by a newline."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Print the command that resumes what is interrupted, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["esbench", *sys.argv[1:]])
        complain(f"interrupted. Resume with: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def complain(text: str) -> None:
    """Print an error message to standard error."""
    sys.stderr.write(f"esbench: {printable(text)}\n")
