"""The errors a person can meet, and the sentences they are made of.

``UsageError`` is bad input (exit code 2 on the command line); ``TrainingError`` is a trial that
could not go on (exit code 1). Everything else that escapes esbench is a defect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MOST_NAMES: Final = 20


class EsbenchError(Exception):
    """Base of every error that esbench raises on purpose."""


class UsageError(EsbenchError, ValueError):
    """The input is wrong; the message says which value, what was expected and the nearest name."""


class TrainingError(EsbenchError, RuntimeError):
    """A trial cannot continue; the other trials of its grid can."""


class EnvironmentFailedError(TrainingError):
    """An environment raised inside a worker; ``traceback`` is the environment's own."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the sentence that ends an "unknown name" message: the nearest name, or all of them."""
    options = sorted(known)
    lowered = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if near:
        return f"did you mean {lowered[near[0]]!r}?"
    if len(options) > MOST_NAMES:
        return "no known name is near (see: esbench list)"
    return f"known: {', '.join(options)}" if options else "none is known"


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that no registry holds."""
    return UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")
