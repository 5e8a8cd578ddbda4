"""The version of what a notebook or a prompt has defined, which has no file."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import pathlib
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np
from gymnasium import spaces

from esbench.core.errors import USER_CODE_ERRORS
from esbench.core.user_code import is_interactive

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
TEXTS: Final = (*PLAIN, pathlib.PurePath)
CONTAINERS: Final = (list, dict, set, deque, SimpleNamespace)
DATA: Final = (*CONTAINERS, spaces.Space)
GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
DEEPEST: Final = 100  # containers in containers; what is deeper does not count

Parts: TypeAlias = Iterator[tuple[str, Sequence[str]]]
"""Pieces of text that stand for a value, each with the names in the main module that it uses."""


@final
class CellCode(NamedTuple):
    """A digest of a value in the main module, and what it uses besides.

    Attributes:
        modules: those that define what it uses from elsewhere.
        data: the names of lists, tables, arrays and objects in the main module.
    """

    digest: str
    modules: frozenset[str]
    data: frozenset[str]


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
    digest, reader, data = hashlib.sha256(), _Reader(), set[str]()
    todo, seen = [*values], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        if name not in values and _is_data(known[name]):
            data.add(name)
            continue
        for part, names in reader.parts(known[name]):
            digest.update(f"{name} {part}\n".encode(errors="backslashreplace"))
            todo += sorted(names)
    return CellCode(digest.hexdigest(), frozenset(reader.modules), frozenset(data))


def _is_own(value: Any) -> bool:
    """Whether the main module of a notebook defines a value or its class."""
    with contextlib.suppress(*USER_CODE_ERRORS):
        return getattr(value, "__module__", "") == "__main__" and is_interactive()
    return False


def _is_array(value: Any) -> bool:
    return hasattr(type(value), "__array__") and hasattr(type(value), "dtype")


def _is_data(value: Any) -> bool:
    """Whether a value is an object that a program can change."""
    if isinstance(value, type | FunctionType | functools.partial):
        return False
    own = _is_own(value) and not hasattr(type(value), "__wrapped__") and not _wrapped(value)
    return isinstance(value, DATA) or _is_array(value) or dataclasses.is_dataclass(value) or own


def _wrapped(value: Any) -> Any:
    """The function inside of one that a decorator has made."""
    return inspect.getattr_static(value, "__wrapped__", None)


@final
class _Reader:
    """Reads values: each object once, and what other modules define by its name.

    Attributes:
        modules: those other modules.
    """

    def __init__(self, met: Sequence[int] = ()) -> None:
        self.modules: set[str] = set()
        self._met = set(met)
        self._depth = 0

    def parts(self, value: Any) -> Parts:
        """The code of a function, or of a class with its attributes, or data.

        An object that cannot be read counts by its type.
        """
        if id(value) in self._met or self._depth > DEEPEST:
            return
        if isinstance(value, (*DATA, FunctionType, type)) or _is_own(value):
            self._met.add(id(value))
        self._depth += 1
        try:
            yield from self._parts(value)
        except USER_CODE_ERRORS:
            yield type(value).__qualname__, ()
        finally:
            self._depth -= 1

    def _parts(self, value: Any) -> Parts:
        match value:
            case FunctionType():
                yield from self._function(value)
            case CodeType():
                yield from self._code(value)
            case type() if _is_own(value):
                yield from self._each(value.__bases__)
                for name, each in sorted(vars(value).items()):
                    if not name.startswith("__") or isinstance(each, FunctionType):
                        yield name, ()
                        yield from self.parts(each)
            case property():
                yield from self._each((value.fget, value.fset))
            case classmethod() | staticmethod():
                yield from self.parts(value.__func__)
            case functools.cached_property():
                yield from self.parts(value.func)
            case functools.partial():
                yield from self._each((value.func, value.args, value.keywords))
            case MethodType():
                yield from self._each((value.__func__, value.__self__))
            case list() | tuple() | deque() if all(type(each) in PLAIN for each in value):
                yield repr(value), ()
            case list() | tuple() | deque():
                yield f"{len(value)}", ()
                yield from self._each(value)
            case dict():
                yield f"{len(value)}", ()
                yield from self._each([part for item in value.items() for part in item])
            case set() | frozenset():
                yield from self._set(value)
            case int() if not isinstance(value, bool):
                yield hex(value), ()  # a long one has no repr
            case _ if isinstance(value, TEXTS):
                yield repr(value), ()
            case _ if _is_array(value):
                yield _array_digest(value), ()
            case _:
                yield from self._object(value)

    def _each(self, values: Sequence[Any]) -> Parts:
        for value in values:
            yield from self.parts(value)

    def _set(self, values: set[Any] | frozenset[Any]) -> Parts:
        """The elements, whose order is another one in every process."""
        texts, used = list[str](), set[str]()
        for each in values:
            reader = _Reader(tuple(self._met))
            parts = [*reader.parts(each)]
            texts.append(repr([text for text, _ in parts]))
            used.update(name for _, names in parts for name in names)
            self.modules |= reader.modules
        yield repr(sorted(texts)), sorted(used)

    def _code(self, value: CodeType) -> Parts:
        steps = [*dis.get_instructions(value)]
        self.modules.update(str(each.argval) for each in steps if each.opname == "IMPORT_NAME")
        used = [each.argval for each in steps if each.opname in GLOBALS]
        yield f"{value.co_code.hex()} {value.co_names} {value.co_varnames}", used
        yield from self._each(value.co_consts)

    def _function(self, value: FunctionType) -> Parts:
        if _is_own(value):
            named = tuple((value.__kwdefaults__ or {}).items())
            yield from self._each((value.__code__, value.__defaults__, named))
        else:
            yield from self._foreign(value)
        for cell in value.__closure__ or ():  # of a decorator, with the decorated function
            with contextlib.suppress(ValueError):  # it is empty
                if _is_own(cell.cell_contents) or isinstance(cell.cell_contents, (*TEXTS, *DATA)):
                    yield from self.parts(cell.cell_contents)

    def _object(self, value: Any) -> Parts:
        yield from self._foreign(value)
        if wrapped := _wrapped(value):
            yield from self.parts(wrapped)
        if _is_data(value):
            yield from self._each((type(value), *_state(value)))

    def _foreign(self, value: Any) -> Parts:
        """The name of an object; its text may have an address, another one in every process."""
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
            yield value.__name__, ()
            return
        module = getattr(value, "__module__", None) or type(value).__module__
        names = (getattr(value, key, None) for key in ("__qualname__", "__name__"))
        name = next((each for each in names if isinstance(each, str)), type(value).__qualname__)
        self.modules.add(str(module))
        yield f"{module} {name}", ()


def _state(value: Any) -> list[Any]:
    """The attributes of an object and their names, without the random generator of a space."""
    slots = [each for cls in type(value).__mro__ for each in getattr(cls, "__slots__", ())]
    found = {each: getattr(value, each, None) for each in slots if isinstance(each, str)}
    found |= vars(value) if hasattr(type(value), "__dict__") and hasattr(value, "__dict__") else {}
    if isinstance(value, spaces.Space):
        found.pop("_np_random", None)
    return [part for item in sorted(found.items(), key=lambda item: str(item[0])) for part in item]


def _array_digest(value: Any) -> str:
    """The type, shape and content of an array; only its type if it is of objects or elsewhere."""
    with contextlib.suppress(*USER_CODE_ERRORS):  # such as of a GPU
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        if not array.dtype.hasobject:
            content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            return f"{array.dtype.str} {array.shape} {content}"
    return type(value).__qualname__
