"""Values from Python as JSON holds them, and arguments as code of others receives them.

A tuple is the table {"tuple": [...]}, in TOML too, and a list where a setting has a type. Code of
others gets a tuple, also for a list where the parameter's default or annotation is one. Other
values that JSON lacks are refused.
"""

from __future__ import annotations

import copy
import enum
import inspect
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

from esbench.core.errors import UsageError, shown
from esbench.core.user_code import import_name

TUPLE: Final = "tuple"
KEPT: Final = "tuples are kept"  # marks a setting whose values code of others receives
NAMED: Final = frozenset(  # settings that are names, or lists of names
    {"algorithm", "algorithms", "behavior", "optimizer", "template", "wrapper"}
)
Arguments: TypeAlias = Annotated[dict[str, Any], KEPT]


def plain(value: Any, key: str = "", own: bool = False) -> Any:
    """A value in the types of JSON; ``key`` is its dotted name. A class has its import name.

    UsageError for a value that would arrive as another one, where code of others gets it (``own``).
    """
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, dict):
        if not own:
            value = {
                name: named(name, each) if name in NAMED else each for name, each in value.items()
            }
        # The tables of a policy and of a wrapper, and what ``gymnasium.make`` gets.
        own = own or "wrapper" in value or "factory" in value or ":" in str(value.get("template"))
        return {
            _text(name, key): plain(each, f"{key}.{name}" if key else name, own or name == "kwargs")
            for name, each in value.items()
        }
    if type(value) is tuple:
        return {TUPLE: [plain(each, key, own) for each in value]}
    if isinstance(value, list) or (isinstance(value, tuple) and not own):
        if {*map(type, value)} == {float} and all(map(math.isfinite, value)):
            return [*value]  # the curves of a leaderboard are long
        return [plain(each, key, own) for each in value]
    if isinstance(value, Path) and not own:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{key} = {value}: expected a finite number")
    if isinstance(value, bool | int | float | str | None) and not isinstance(value, enum.Enum):
        return value
    raise UsageError(
        f"{key} = {' '.join(shown(value).split())}: JSON cannot hold a {type(value).__name__}; "
        "expected numbers, text, true or false, or lists, tuples and tables of them"
    )


def named(kind: str, value: Any) -> Any:
    """The import name of a class, also in a list; other values as they are."""
    if type(value) is list:
        return [named(kind, each) for each in value]
    return import_name(kind, value) if inspect.isclass(value) else value


def _text(name: Any, key: str) -> str:
    if isinstance(name, str) and not isinstance(name, enum.Enum):
        return name
    raise UsageError(
        f"{key or 'a table'} has the key {shown(name)}, a {type(name).__name__}; expected text, "
        "because JSON has no other keys"
    )


def is_tuple(value: Any) -> bool:
    """Whether a plain value is a tuple."""
    return isinstance(value, dict) and value.keys() == {TUPLE} and isinstance(value[TUPLE], list)


def received(call: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``plain`` arguments with tuples, for a class or function ``call``."""
    return {
        name: _as_tuple(value) if takes_tuple(call, name) else _restored(value)
        for name, value in arguments.items()
    }


def takes_tuple(call: Callable[..., Any], name: str) -> bool:
    """Whether the default or the annotation of a parameter is a tuple, and no list."""
    try:
        parameter = inspect.signature(call).parameters.get(name)
    except (TypeError, ValueError):  # not known, as of some classes in C
        return False
    if parameter is None:
        return False
    words = re.findall(r"\w+", str(parameter.annotation).lower())
    declared = TUPLE in words and not {"list", "sequence", "iterable", "collection"} & {*words}
    return declared or isinstance(parameter.default, tuple)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else _restored(value)


def _restored(value: Any) -> Any:
    if is_tuple(value):
        return tuple(map(_restored, value[TUPLE]))
    if isinstance(value, dict):
        return {name: _restored(each) for name, each in value.items()}
    return [*map(_restored, value)] if isinstance(value, list) else copy.deepcopy(value)
