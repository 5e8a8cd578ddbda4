"""The command-line application, and the options that commands share."""

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
    """The output formats of a table."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


class CompareFormat(StrEnum):
    """The output formats of ``esbench compare``."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class DiagnosisFormat(StrEnum):
    """The output formats of ``esbench diagnose``."""

    TEXT = "text"
    JSON = "json"


GridArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME-OR-FILE", help="The name of a grid, or a grid file (TOML)."),
]
Environments = Annotated[
    list[str] | None,
    typer.Option("--env", help="Environment; replaces those of the grid; can be repeated."),
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option("--algorithm", help="Algorithm; replaces those of the grid; can be repeated."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds, such as 0-9 or 0,2,5.")]
EnvSteps = Annotated[int | None, typer.Option(help="Environment steps of training per trial.")]
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
Extend = Annotated[
    bool,
    typer.Option("--extend", help="Continue trials that have a smaller budget up to this one."),
]
Generation = Annotated[
    int | None,
    typer.Option(help="Generation of a kept checkpoint (default: the latest)."),
]
Out = Annotated[Path | None, typer.Option(help="Output folder (default: results/runs/NAME).")]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes (default: one per core); results do not depend on it."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(
        help="Concurrent trials (default: see 'esbench plan'); results do not depend on it."
    ),
]
TableFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
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
    """Print an error message to standard error."""
    sys.stderr.write(f"esbench: {text}\n")


def interrupt(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt
