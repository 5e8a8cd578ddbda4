"""Exceptions of user code as printable text."""

from __future__ import annotations

import contextlib
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from esbench.core.errors import EsbenchError, TrainingError
from esbench.core.escape import printable

# An error of user code must not end esbench, even if it asks for the end of the process.
USER_CODE_ERRORS: Final = (Exception, SystemExit)
MOST_CHARACTERS: Final = 1000  # of a message
LIBRARIES: Final = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
PACKAGE: Final = Path(__file__).resolve().parent.parent
INSTALLED: Final = ("<", *(f"{folder}{os.sep}" for folder in (*LIBRARIES, PACKAGE)))


def message_of(error: BaseException) -> str:
    """The message of an error of user code in one printable line of limited length."""
    try:
        text = str(error)
    except USER_CODE_ERRORS:
        text = "its message cannot be made"
    return printable(" ".join(text[: 2 * MOST_CHARACTERS].split()))[:MOST_CHARACTERS]


def error_text(error: BaseException) -> str:
    """The class and the message of an error of user code in one printable line."""
    message, name = message_of(error), printable(type(error).__name__)
    return f"{name}: {message}" if message else name


def import_hint(module: str) -> str:
    """What to do about a missing module, for the end of a message."""
    root = module.partition(".")[0]
    if module.endswith(".py"):
        return f"expected {module.removesuffix('.py')!r}, without .py"
    return f"expected {root!r} in the current folder or in an installed package"


@contextlib.contextmanager
def as_training_errors(*others: type[BaseException]) -> Iterator[None]:
    """Turn an error of user code, except ``others``, into a TrainingError with file and line."""
    ours: tuple[type[BaseException], ...] = (EsbenchError, *others)
    try:
        yield
    except ours:
        raise
    except USER_CODE_ERRORS as error:
        place = location(error)
        if place or isinstance(error, SystemExit):
            raise TrainingError(f"user code failed: {error_text(error)}{place}") from error
        raise


def location(error: BaseException) -> str:
    """Where user code raised an error, as " (maze.py, line 12)"; empty if it did not."""
    found = ""
    cause: BaseException | None = error
    while cause is not None:  # Gymnasium raises some errors again
        for frame in traceback.extract_tb(cause.__traceback__):
            # Extension modules name sources that are not here.
            if frame.filename.endswith(".py") and not frame.filename.startswith(INSTALLED):
                found = f" ({frame.filename}, line {frame.lineno})"
        cause = cause.__cause__ or cause.__context__
    return found
