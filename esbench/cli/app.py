"""The command line's application, and the options that several commands share."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

app = typer.Typer(
    name="esbench",
    help="The benchmark suite for evolution strategies in reinforcement learning.",
    epilog="Start with: esbench run quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class Kind(StrEnum):
    """What ``esbench list`` lists."""

    ALGORITHMS = "algorithms"
    ENVIRONMENTS = "environments"
    POLICIES = "policies"
    BEHAVIORS = "behaviors"
    BACKENDS = "backends"
    GRIDS = "grids"


class Format(StrEnum):
    """How tables are printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


class CompareFormat(StrEnum):
    """How ``esbench compare`` prints."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class DiagnosisFormat(StrEnum):
    """How ``esbench diagnose`` prints."""

    TEXT = "text"
    JSON = "json"


GridArgument = Annotated[
    str | None, typer.Argument(metavar="NAME-OR-FILE", help="A named grid, or a TOML file.")
]
Environments = Annotated[
    list[str] | None,
    typer.Option("--env", help="Environment, instead of the grid's; repeat for several."),
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option("--algorithm", help="Algorithm, instead of the grid's; repeat for several."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds, such as 0-9 or 0,2,5.")]
EnvSteps = Annotated[int | None, typer.Option(help="Training steps a trial.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any setting of the grid; repeat."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="cpu|cuda",
        help="Where a convolutional policy computes: short for --set policy.device=...",
    ),
]
Extend = Annotated[
    bool,
    typer.Option("--extend", help="Trials made with a smaller budget go on to this one."),
]
Generation = Annotated[
    int | None,
    typer.Option(help="Of a checkpoint that was kept (default: the latest one)."),
]
Out = Annotated[Path | None, typer.Option(help="Output folder (default: results/runs/NAME).")]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes (default: one a core); they change no result."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(help="Trials at a time (default: see 'esbench plan'); changes no result."),
]
TableFormat = Annotated[Format, typer.Option("--format", help="How to print it.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of 'esbench run'.")]


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


def complain(text: str) -> None:
    """Print what is wrong to standard error."""
    sys.stderr.write(f"esbench: {text}\n")


def interrupt(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt
