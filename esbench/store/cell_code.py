"""The version of what a notebook or a prompt has defined, which has no file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

PLAIN: Final = (bool, int, float, str, bytes, tuple, type(None))  # constants whose text is known


def cell_digest(path: str) -> str | None:
    """A digest of a class or a function of the main module, and of all there that it names.

    None if there is no such thing.
    """
    known, digest = vars(sys.modules["__main__"]), hashlib.sha256()
    todo, seen = [path.partition(".")[0]], set[str]()
    if todo[0] not in known:
        return None
    while todo:
        name = todo.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        is_own = getattr(known[name], "__module__", "") == "__main__"
        for part, names in _parts(known[name]) if is_own or isinstance(known[name], PLAIN) else ():
            digest.update(f"{name} {part}\n".encode())
            todo += sorted(names)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[tuple[str, Sequence[str]]]:
    """The code of a function, or of a class with its plain attributes, and the names therein."""
    match value:
        case FunctionType():
            yield from _parts(value.__code__)
            yield from _parts(value.__defaults__)
        case CodeType():
            yield f"{value.co_code.hex()} {value.co_names} {value.co_varnames}", value.co_names
            for each in value.co_consts:
                yield from _parts(each)
        case type():
            yield "", [base.__name__ for base in value.__bases__]
            for name, each in sorted(vars(value).items()):
                if not name.startswith("__") or isinstance(each, FunctionType):
                    yield name, ()
                    yield from _parts(each)
        case property():
            yield from _parts(value.fget)
        case classmethod() | staticmethod():
            yield from _parts(value.__func__)
        case _ if isinstance(value, PLAIN):
            yield repr(value), ()
