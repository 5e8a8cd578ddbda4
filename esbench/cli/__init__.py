"""The command line: parse, call one function, print."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise

import typer

# Importing a module adds its commands, in the order of the help page.
# isort: off
from esbench.cli import training_commands, policy_commands, gate_commands, reading_commands

# isort: on
from esbench.app.display import complain
from esbench.cli.app import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, app
from esbench.core.errors import EsbenchError, UsageError, limit_error
from esbench.core.process import (
    end_soon,
    handle_interrupts,
    is_interrupted,
    open_streams,
    output_error,
)
from esbench.core.user_code import FOLDERS

__all__ = [
    "gate_commands",
    "main",
    "policy_commands",
    "program",
    "reading_commands",
    "training_commands",
]


def program() -> None:
    """Run the command line and exit, even if user code has left threads running."""
    code = EXIT_FAILED
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else code
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        end_soon(code)


def main() -> None:
    """Run the command line; an error becomes one message and an exit code.

    So does an error of user code, whose message has the file and the line.
    """
    open_streams()
    with contextlib.suppress(FileNotFoundError):  # the folder may be gone
        FOLDERS[:] = [os.getcwd()]  # noqa: PTH109
    handle_interrupts()
    code = _run()
    if is_interrupted():  # even if user code has swallowed it, or a full disk replaced it
        code = EXIT_INTERRUPTED
    if error := output_error():
        complain(f"cannot print: {error.strerror}")
        code = code or EXIT_USAGE
    sys.exit(code)


def _run() -> int:
    """Run the command and return its exit code."""
    try:
        _require_values(sys.argv[1:])
        if sys.argv[1:2] == ["--install-completion"]:
            from esbench.cli.completion import keep

            keep()  # so that the first Tab is answered at once
        code = app(prog_name="esbench", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except EsbenchError as error:
        complain(str(error))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:
        message = getattr(error, "format_message", None)  # of an error of typer's
        if limit := limit_error(error):
            complain(str(limit))
        elif isinstance(error, OSError) and error.filename is not None:
            complain(f"cannot open {error.filename}: {error.strerror}")
        elif message is not None:
            said = _plain(message(), sys.argv[1:])
            complain(str(UsageError(said or "expected a command; see: esbench --help")))
        else:
            raise
        return EXIT_USAGE


def _plain(said: str, arguments: Sequence[str]) -> str:
    """An error of typer in our words; pydantic checks its numbers and choices."""
    found = re.fullmatch(r"Invalid value for '(.*)': Input should be a valid (\w+), .*", said)
    if not found:
        return said.replace("Value error, ", "")
    option, kind = found[1].split(" / ")[0], found[2]
    after = " ".join(arguments).partition(option)[2].strip(" =").split(" ")[0]
    return f"{option} {after!r}: expected {'an' if kind == 'integer' else 'a'} {kind}"


def _require_values(arguments: Sequence[str]) -> None:
    """Raises UsageError for an empty argument, which would stand for the current folder."""
    for before, argument in pairwise(["", *arguments]):
        if not argument or re.fullmatch(r"--[\w-]+=", argument):
            raise UsageError(f"empty argument: {before} {argument}: expected a value")
