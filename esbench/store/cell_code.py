"""The version of what a notebook or a prompt has defined, which has no file."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

SCALARS: Final = (bool, int, float, complex, str, bytes, type(None), type(...))
PLAIN: Final = (*SCALARS, tuple, frozenset)  # constants, which nothing changes while training


def cell_digest(path: str) -> str | None:
    """A digest of a class or a function of the main module, and of all there that it names.

    None if there is no such thing.
    """
    known, digest = vars(sys.modules["__main__"]), hashlib.sha256()
    todo, seen, met = [path.partition(".")[0]], set[str](), set[int]()
    if todo[0] not in known:
        return None
    while todo:
        name = todo.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for part, names in _parts(known[name], met) if _is_own(known[name]) else ():
            digest.update(f"{name} {part}\n".encode())
            todo += sorted(names)
    return digest.hexdigest()


def _is_own(value: Any) -> bool:
    """Whether a value is a constant, or the main module defines it or its class."""
    return isinstance(value, PLAIN) or getattr(value, "__module__", "") == "__main__"


def _parts(value: Any, met: set[int]) -> Iterator[tuple[str, Sequence[str]]]:
    """The code of a function, or of a class with its plain attributes, and the names therein.

    What other modules define counts by its name. ``met`` are the classes and functions so far.
    """
    if id(value) in met:
        return
    match value:
        case FunctionType():
            met.add(id(value))
            inner: list[Any] = [value.__qualname__]
            if _is_own(value):
                named = tuple((value.__kwdefaults__ or {}).items())
                inner = [value.__code__, value.__defaults__, named]
            for cell in value.__closure__ or ():  # of a decorator, with the decorated function
                with contextlib.suppress(ValueError):  # it is empty
                    inner += [cell.cell_contents] * _is_own(cell.cell_contents)
            for each in inner:
                yield from _parts(each, met)
        case CodeType():
            yield f"{value.co_code.hex()} {value.co_names} {value.co_varnames}", value.co_names
            for each in value.co_consts:
                yield from _parts(each, met)
        case type() if _is_own(value):
            met.add(id(value))
            yield "", [base.__name__ for base in value.__bases__]
            for name, each in sorted(vars(value).items()):
                if not name.startswith("__") or isinstance(each, FunctionType):
                    yield name, ()
                    yield from _parts(each, met)
        case property():
            yield from _parts(value.fget, met)
            yield from _parts(value.fset, met)
        case classmethod() | staticmethod():
            yield from _parts(value.__func__, met)
        case tuple():
            for each in value:
                yield from _parts(each, met)
        case frozenset():
            yield repr(sorted(map(repr, value))), ()
        case _ if isinstance(value, SCALARS):
            yield repr(value), ()
        case _:  # its text may have an address, which is another one in every process
            yield str(getattr(value, "__qualname__", type(value).__qualname__)), ()
