"""The errors that esbench raises, the checks of arguments, and the errors of user code as text.

``UsageError`` is bad input (exit code 2 on the command line). ``TrainingError`` is a trial that
cannot continue (exit code 1). Any other exception that leaves esbench is a defect.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import inspect
import math
import os
import re
import resource
import sysconfig
import traceback
from collections.abc import Container, Iterable, Iterator
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, Self, final

from esbench.core.escape import printable

MOST_NAMES: Final = 20
LONGEST_WORD: Final = 300  # longer than the name of any file
LONGEST_LINE: Final = 2000
MOST_CHARACTERS: Final = 1000  # of a message of user code
# An error of user code must not end esbench, even if it asks for the end of the process.
USER_CODE_ERRORS: Final = (Exception, SystemExit)
LIMITS: Final = (
    "expected fewer workers, or higher limits of processes (ulimit -u, pids.max), open files "
    "(ulimit -n) and memory (ulimit -v); the same command resumes"
)
STARTING: Final = {"_execute_child", "_launch", "spawnv_passfds"}  # functions that fork
_LIBRARIES: Final = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
# Where the files of user code are not.
_INSTALLED: Final = (
    "<",
    *(f"{folder}{os.sep}" for folder in (*_LIBRARIES, Path(__file__).resolve().parent.parent)),
)


class EsbenchError(Exception):
    """Base of every error that esbench raises on purpose; long values are shortened in it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))

    def of(self, place: str) -> Self:
        """The same error, whose message says where it was raised."""
        self.args = (f"{place}: {self}",)
        return self


class UsageError(EsbenchError, ValueError):
    """The input is wrong; the message says which value, what was expected and the nearest name."""


@final
class MissingPackageError(UsageError):
    """A package is not installed; the message has the command that installs it."""


@final
class NoBestPolicyError(UsageError):
    """A trial is too short to have a best policy, or its center did not play."""


@final
class DamagedTrialError(UsageError):
    """A stored trial cannot be read; the message names the file and the remedy."""


@final
class LimitError(UsageError):
    """The machine refuses processes, threads, open files or memory; no trial is at fault."""


@final
class UserCodeError(UsageError):
    """Code of a user's own does what it must not; the other trials of its grid can run."""


class TrainingError(EsbenchError, RuntimeError):
    """A trial cannot continue; the other trials of its grid can."""


@final
class EnvironmentFailedError(TrainingError):
    """An environment raised inside a worker; ``traceback`` is the environment's own."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[EnvironmentFailedError], tuple[str, str]]:
        return type(self), (str(self), self.traceback)


def shortened(text: str) -> str:
    """Text in which the middle of long words and long lines is replaced by its length."""
    text = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda found: _cut(found[0], 60), text)
    return re.sub(rf".{{{LONGEST_LINE},}}", lambda found: _cut(found[0], 900), text)


def _cut(text: str, kept: int) -> str:
    return f"{text[:kept]}...[{len(text) - 2 * kept:,} characters]...{text[-kept:]}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an "unknown name" message: the nearest known name, or all known names."""
    options = sorted(known)
    lowered = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name[:LONGEST_WORD].lower(), lowered, n=1, cutoff=0.5)
    if near:
        return f"did you mean {lowered[near[0]]!r}?"
    if len(options) > MOST_NAMES:
        return "no known name is near: see 'esbench list'"
    return f"known: {', '.join(options)}" if options else "none is known"


def require_choice(name: str, value: object, known: Iterable[object]) -> None:
    """Raises UsageError if the value of an argument is none of those known."""
    options = list(known)
    if not any(isinstance(value, type(option)) and value == option for option in options):
        expected = " or ".join(map(repr, options))
        raise UsageError(f"{name} = {shown(value)}: expected {expected}")


def require_text(name: str, value: object) -> None:
    """Raises UsageError if the value of an argument is no text, or is empty."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} = {shown(value)}: expected a text")


def shown(value: object) -> str:
    """A value in a message; NumPy's integers look like Python's."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    try:
        return repr(int(value) if is_integer else value)  # type: ignore[call-overload]
    except ValueError:  # Python writes no integer of thousands of digits
        return f"a {type(value).__name__} that cannot be written"


def require_integer(name: str, value: object, least: int, most: int, why: str = "") -> None:
    """Raises UsageError if a value is no integer from ``least`` to ``most``; NumPy's are integers.

    ``why`` ends the message for a number that is too large.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{name} = {shown(value)}: expected an integer")
    if int(value) < least:
        raise UsageError(f"{name} = {shown(value)}: expected at least {least}")
    if int(value) > most:
        raise UsageError(f"{name} = {shown(value)}: expected at most {most}{why}")


def require_finite(name: str, value: object) -> None:
    """Raises UsageError if a value is no finite real number."""
    try:
        finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that is larger than every float
        finite = False
    if not finite:
        raise UsageError(f"{name} = {shown(value)}: expected a finite number")


def require_keywords(
    owner: str, call: Any, given: Iterable[str], positional: int = 0, others: Container[str] = ()
) -> None:
    """Raises UsageError if a class of user code takes no argument of a ``given`` name.

    The first ``positional`` arguments, and those named ``others``, are not the user's to give.
    """
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # not known, as of some classes in C
        return
    known = [each.name for each in parameters[positional:] if each.name not in others]
    free = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in given:
        if name not in known and not (free and name not in others):
            raise UsageError(f"{owner} takes no argument {name!r}; {suggestion(name, known)}")


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name."""
    return UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


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


def limit_error(error: BaseException, task: str = "go on") -> LimitError | None:
    """The error that a limit of the machine is; None if this one says something else."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LimitError):
            return cause
        if _is_limit(cause):
            return LimitError(f"cannot {task} ({error_text(cause)}): {LIMITS}")
        cause = cause.__cause__ or cause.__context__
    return None


def memory_is_limited() -> bool:
    """Whether ``ulimit -v`` limits the memory of this process."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _is_limit(error: BaseException) -> bool:
    match error:
        case OSError(errno=errno.EMFILE | errno.ENFILE | errno.ENOMEM):
            return True
        case OSError(errno=errno.EAGAIN):  # other calls return it if they would wait
            return traceback.extract_tb(error.__traceback__)[-1].name in STARTING
        case RuntimeError():
            return "can't start new thread" in str(error)
        case ImportError():
            return memory_is_limited() and "map segment" in str(error)
        case _:
            return memory_is_limited() and isinstance(error, MemoryError)


def location(error: BaseException) -> str:
    """Where user code raised an error, as " (maze.py, line 12)"; empty if it did not."""
    found = ""
    cause: BaseException | None = error
    while cause is not None:  # Gymnasium raises some errors again
        for frame in traceback.extract_tb(cause.__traceback__):
            # Extension modules name sources that are not here.
            if frame.filename.endswith(".py") and not frame.filename.startswith(_INSTALLED):
                found = f" ({frame.filename}, line {frame.lineno})"
        cause = cause.__cause__ or cause.__context__
    return found
