"""The command line run within the tests' process."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from esbench import cli

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""The fixture ``esbench``: ``esbench ARGUMENTS`` gives exit code, stdout and stderr."""


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make ``folder`` the current one, and undo in the end what commands do to this process."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", list(sys.argv))
        yield
    signal.signal(signal.SIGTERM, before)


def execute(*arguments: str) -> int:
    """Run ``esbench ARGUMENTS`` and return its exit code."""
    sys.argv = ["esbench", *arguments]
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    code = exit_.value.code
    return code if isinstance(code, int) else 0
