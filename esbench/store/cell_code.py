"""The version of what a notebook or a prompt has defined, which has no file."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np
from gymnasium import spaces

from esbench.core.user_code import is_interactive

SCALARS: Final = (bool, int, float, complex, str, bytes, type(None), type(...))
CONTAINERS: Final = (list, dict, set, SimpleNamespace)
DATA: Final = (*SCALARS, *CONTAINERS, tuple, frozenset, spaces.Space, functools.partial)
GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})

Parts: TypeAlias = Iterator[tuple[str, Sequence[str]]]
"""Pieces of text that stand for a value, each with the names in the main module that it uses."""


@final
class CellCode(NamedTuple):
    """A digest of values, and the modules that define what they use from elsewhere."""

    digest: str
    modules: frozenset[str]


def cell_code(path: str) -> CellCode | None:
    """The code of a class or a function of the main module, and of all there that it names.

    None if there is no such thing.
    """
    root = path.partition(".")[0]
    known = vars(sys.modules["__main__"])
    return code_of({root: known[root]}) if root in known else None


def code_of(values: Mapping[str, Any]) -> CellCode:
    """The code of values by their names, and of all in the main module of a notebook they name."""
    known = {**vars(sys.modules["__main__"]), **values}
    digest, reader = hashlib.sha256(), _Reader()
    todo, seen = [*values], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for part, names in reader.parts(known[name]):
            if name in values or _counts(known[name]):
                digest.update(f"{name} {part}\n".encode())
                todo += sorted(names)
    return CellCode(digest.hexdigest(), frozenset(reader.modules))


def _is_own(value: Any) -> bool:
    """Whether the main module of a notebook defines a value or its class."""
    return getattr(value, "__module__", "") == "__main__" and is_interactive()


def _module_of(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _is_array(value: Any) -> bool:
    return hasattr(type(value), "__array__") and hasattr(type(value), "dtype")


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _counts(value: Any) -> bool:
    """Whether a value in the main module is more than a name for what other modules define."""
    return isinstance(value, DATA) or _is_own(value) or _is_array(value) or _is_record(value)


@final
class _Reader:
    """Reads values: each object once, and what other modules define by its name.

    Attributes:
        modules: those other modules.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._met: set[int] = set()

    def parts(self, value: Any) -> Parts:
        """The code of a function, or of a class with its attributes, or data."""
        if id(value) in self._met:
            return
        if isinstance(value, (*CONTAINERS, FunctionType, type)) or _is_own(value):
            self._met.add(id(value))
        match value:
            case FunctionType():
                yield from self._function(value)
            case CodeType():
                steps = dis.get_instructions(value)
                used = [each.argval for each in steps if each.opname in GLOBALS]
                yield f"{value.co_code.hex()} {value.co_names} {value.co_varnames}", used
                yield from self._each(value.co_consts)
            case type() if _is_own(value):
                yield "", [base.__name__ for base in value.__bases__]
                for name, each in sorted(vars(value).items()):
                    if not name.startswith("__") or isinstance(each, FunctionType):
                        yield name, ()
                        yield from self.parts(each)
            case property():
                yield from self._each((value.fget, value.fset))
            case classmethod() | staticmethod():
                yield from self.parts(value.__func__)
            case functools.partial():
                yield from self._each((value.func, value.args, value.keywords))
            case list() | tuple():
                yield f"{len(value)}", ()
                yield from self._each(value)
            case dict():
                yield f"{len(value)}", ()
                yield from self._each([part for item in value.items() for part in item])
            case set() | frozenset():
                yield repr(sorted(map(repr, value))), ()
            case _ if isinstance(value, SCALARS):
                yield repr(value), ()
            case _ if _is_array(value):
                yield _content(value), ()
            case _:
                yield from self._object(value)

    def _each(self, values: Sequence[Any]) -> Parts:
        for value in values:
            yield from self.parts(value)

    def _function(self, value: FunctionType) -> Parts:
        if _is_own(value):
            named = tuple((value.__kwdefaults__ or {}).items())
            yield from self._each((value.__code__, value.__defaults__, named))
        else:
            self.modules.add(_module_of(value))
            yield value.__qualname__, ()
        for cell in value.__closure__ or ():  # of a decorator, with the decorated function
            with contextlib.suppress(ValueError):  # it is empty
                if _counts(cell.cell_contents):
                    yield from self.parts(cell.cell_contents)

    def _object(self, value: Any) -> Parts:
        # Its text may have an address, which is another one in every process.
        yield str(getattr(value, "__qualname__", type(value).__qualname__)), ()
        is_module = isinstance(value, ModuleType)
        self.modules.add(value.__name__ if is_module else _module_of(value))
        yield from self.parts(getattr(value, "__wrapped__", None))
        if _counts(value):
            yield from self._each((type(value), *_state(value)))


def _state(value: Any) -> list[Any]:
    """The attributes of an object and their names, without the random generator of a space."""
    if _is_record(value):
        found = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
    else:
        found = {**getattr(value, "__dict__", {})}
    if isinstance(value, spaces.Space):
        found.pop("_np_random", None)
    return [part for item in sorted(found.items()) for part in item]


def _content(value: Any) -> str:
    """The type, shape and content of an array; only its type if it is of objects or elsewhere."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # such as of a GPU
        array = np.asarray(value)
        if not array.dtype.hasobject:
            content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            return f"{array.dtype.str} {array.shape} {content}"
    return type(value).__qualname__
