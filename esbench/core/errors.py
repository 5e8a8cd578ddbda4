"""The errors that esbench raises, and the suggestions in their messages.

``UsageError`` is bad input (exit code 2 on the command line). ``TrainingError`` is a trial that
cannot continue (exit code 1). Any other exception that leaves esbench is a defect.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Final, final

MOST_NAMES: Final = 20
LONGEST_WORD: Final = 300  # longer than the name of any file
LONGEST_LINE: Final = 2000
MOST_BITS: Final = 256  # of an integer in a message


class EsbenchError(Exception):
    """Base of every error that esbench raises on purpose; long values are shortened in it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UsageError(EsbenchError, ValueError):
    """The input is wrong; the message says which value, what was expected and the nearest name."""


@final
class NoBestPolicyError(UsageError):
    """A trial is too short to have a best policy, or its center did not play."""


@final
class DamagedTrialError(UsageError):
    """A stored trial cannot be read; the message names the file and the remedy.

    ``problem`` is what is wrong with the file, if it is no regular file or too large.
    """

    problem: str = ""


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


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of an "unknown name" message: the nearest known name, or all known names.

    The similarity of the nearest name, as ``difflib`` measures it, is at least ``cutoff``.
    """
    options = sorted(known)
    listed = name[:LONGEST_WORD].split(",")
    if len(listed) > 1 and all(each.strip() in options for each in listed):
        return "expected one name; repeat the option for each"
    lowered = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name[:LONGEST_WORD].lower(), lowered, n=1, cutoff=cutoff)
    if near:
        return f"did you mean {lowered[near[0]]!r}?"
    if len(options) > MOST_NAMES:
        return "no known name is near (see: esbench list)"
    return f"known: {', '.join(options)}" if options else "none is known"


def require_choice(name: str, value: object, known: Iterable[object]) -> None:
    """Raises UsageError if the value of an argument is none of those known."""
    options = list(known)
    if not any(isinstance(value, type(option)) and value == option for option in options):
        expected = " or ".join(map(repr, options))
        raise UsageError(f"{name} = {shown(value)}: expected {expected}")


def require_text(name: str, value: object) -> None:
    """Raises UsageError if the value of an argument is no text, is empty, or cannot be encoded."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} = {shown(value)}: expected a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name} = {shown(value)}: expected valid Unicode") from None


def require_flag(name: str, value: object) -> None:
    """Raises UsageError if the value of an argument is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} = {shown(value)}: expected True or False")


def shown(value: object) -> str:
    """A value in a message; Python itself converts no integer of thousands of digits to text."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        bits = number.bit_length()
        return str(number) if bits < MOST_BITS else f"an integer of {bits} bits"
    try:
        return repr(value)
    except ValueError:  # there is such an integer in it
        return f"a {type(value).__name__}"


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


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name."""
    return UsageError(f"unknown {kind} {name!r}; {suggestion(name, known)}")
