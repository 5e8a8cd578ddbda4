"""The command line: parse, call one function, print."""

from __future__ import annotations

import errno
import os
import signal
import sys

# Importing a module adds its commands, in the order of the help page.
from esbench.cli import (
    gate_commands,
    leaderboard_commands,
    merge_command,
    report_commands,
    slurm_command,
    training_commands,
    tuning_commands,
)
from esbench.cli.app import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    app,
    complain,
)
from esbench.errors import EsbenchError, UsageError

__all__ = [
    "gate_commands",
    "leaderboard_commands",
    "main",
    "merge_command",
    "report_commands",
    "slurm_command",
    "training_commands",
    "tuning_commands",
]


def main() -> None:
    """Run the command line; an error becomes one message and an exit code."""
    # Plugins and environments in the current folder can be imported by name.
    sys.path.append(os.getcwd())  # noqa: PTH109
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        app()
    except EsbenchError as error:
        complain(str(error))
        sys.exit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        _drop_output()
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _drop_output()
        complain(f"cannot print: {error.strerror}")
        sys.exit(EXIT_USAGE)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
