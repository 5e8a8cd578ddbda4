"""Code of the user's own, which is imported by names such as "package.file:Class".

Data, which are trials, baselines and leaderboards, may have names that others have written. A name
is *trusted* if it is of esbench, the ALE, ``torch.optim`` or of a wrapper of Gymnasium that writes
no files, or if the user of this process has given it: in Python, on the command line or in a grid.
``require_trusted`` checks the names in data before anything is imported.

The command line finds modules in the current folder too, but ``sys.path`` has that only from the
first import of user code on: a file there must not stand for a module that is not installed.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from esbench.core.errors import (
    USER_CODE_ERRORS,
    UsageError,
    error_text,
    import_hint,
    location,
    message_of,
    suggestion,
)
from esbench.core.json_text import Json

TRUSTED: Final[set[str]] = set()  # names that the user of this process has given
FOLDERS: Final[list[str]] = []  # searched for user code after ``sys.path``
_WRITES_FILES: Final = "RecordVideo"


def names_in(spec: Json) -> Iterator[str]:
    """The names of code in a specification, or a part: every text with a colon but paths."""
    rest: list[Any] = [{**spec, "init_from": None}]
    while rest:
        match rest.pop():
            case str() as text if ":" in text:
                yield text
            case dict() as table:
                rest += reversed(table.values())
            case list() as values:
                rest += reversed(values)


def require_trusted(specs: Iterable[Json], source: object, trusted: bool = False) -> None:
    """Raises UsageError, with all names, if specifications name code that is not trusted.

    If they are ``trusted``, this process trusts their names from now on.
    """
    own = own_names(specs)
    if trusted:
        TRUSTED.update(own)
    elif own:
        raise UsageError(
            f"{source} names code that would be run: {', '.join(map(repr, own))}; read that code, "
            "then use --trust (in Python, trust=True)"
        )


def own_names(specs: Iterable[Json]) -> list[str]:
    """The names in specifications that are not trusted."""
    names = dict.fromkeys(name for spec in specs for name in names_in(spec))
    return [name for name in names if not _is_trusted(name)]


def _is_trusted(name: str) -> bool:
    module, _, path = name.partition(":")
    if module == "gymnasium.wrappers" and path != _WRITES_FILES:
        from gymnasium import wrappers

        return path in wrappers.__all__
    is_known = f"{module}.".startswith(("esbench.", "torch.optim.")) or module == "ale_py"
    return is_known or name in TRUSTED


def import_object(kind: str, name: str, base: type = object, or_function: bool = False) -> Any:
    """The user's object with a name such as "package.file:Class"; ``kind`` is for messages.

    Raises:
        UsageError: it cannot be imported, or is no concrete subclass of ``base``, unless that is
            ``object``, nor, with ``or_function``, a function that its package defines.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise UsageError(f"{kind} {name!r}: expected a file and a name in it, as in 'mine:Mine'")
    # Imported again, a script would register its environments and classes twice.
    script = sys.modules["__main__"] if module_name == script_name() else None
    target: Any = script or import_user_module(kind, name, module_name)
    module: str = target.__name__
    for part in path.split("."):
        known = getattr(target, "__dict__", {})
        if part not in known and module_name == "__main__":
            raise UsageError(
                f"{kind} {name!r}: other processes cannot import what a notebook, a prompt or a "
                "file without a module's name defines; expected workers=0, which plays in this "
                "process, or it in a file such as mine.py"
            )
        if part not in known:
            public = [key for key in known if not key.startswith("_")]
            own = [key for key in public if getattr(known[key], "__module__", "") == module_name]
            near = suggestion(part, own or public)
            raise UsageError(f"{kind} {name!r}: {module_name!r} has no {part!r}; {near}")
        target = known[part]
    is_base = inspect.isclass(target) and issubclass(target, base)
    is_right = is_base and not inspect.isabstract(target)
    if base is object or is_right or (or_function and _is_function_of(target, module)):
        return target
    missing = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
    expected = f"a subclass of {base.__module__}.{base.__name__}{missing and f' with {missing}'}"
    expected += f", or a function that {module_name} defines" if or_function else ""
    raise UsageError(f"{kind} {name!r} is no such {kind}; expected {expected}")


def _is_function_of(target: Any, module: str) -> bool:
    """Whether an object is a function of a package, which is not esbench."""
    if not inspect.isfunction(target):
        return False
    own, root = (str(each).partition(".")[0] for each in (target.__module__, module))
    return own == root != "esbench"


def import_user_module(kind: str, name: str, module: str) -> Any:
    """The module of a user's object; UsageError, which names the object, if it fails."""
    try:
        return import_own(module)
    except UsageError:
        raise
    except USER_CODE_ERRORS as error:
        why = message_of(error) if isinstance(error, ImportError) else error_text(error)
        if isinstance(error, ModuleNotFoundError) and error.name:
            why = f"{why}; {import_hint(module if module.endswith('.py') else error.name)}"
        raise UsageError(
            f"{kind} {name!r}: cannot import {module!r} ({why}{location(error)})"
        ) from error


def import_own(module: str) -> ModuleType:
    """Import a module of user code, which may be in ``FOLDERS``; ImportError for one of Python."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ImportError("it is a module of Python; expected user code")
    sys.path += [folder for folder in FOLDERS if folder not in sys.path]
    return importlib.import_module(module)


def find_own(module: str) -> ModuleSpec | None:
    """As ``importlib.util.find_spec``, for a module of user code."""
    before = sys.path
    sys.path = [*before, *FOLDERS]
    try:
        return find_spec(module)
    finally:
        sys.path = before


def import_name(kind: str, cls: type) -> str:
    """The name by which ``import_object`` finds a class, also in other processes.

    A class of the running script has the name of the script's file. UsageError for a class inside a
    function.
    """
    if "<locals>" in cls.__qualname__:
        raise UsageError(
            f"{kind} {cls!r}: expected a class defined at the top level of a file, so that other "
            "processes can import it"
        )
    is_own = cls.__module__ in {"__main__", "__mp_main__"}
    return f"{script_name() if is_own else cls.__module__}:{cls.__qualname__}"


def is_interactive() -> bool:
    """Whether this is a notebook or a prompt, what it defines being unknown to other processes."""
    return getattr(sys.modules["__main__"], "__file__", None) in {None, "<stdin>"}


def script_name() -> str:
    """The module name of the running script; "__main__" if it cannot be imported by a name."""
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None:  # a notebook or a prompt
        return "__main__"
    name: str = spec.name if spec else Path(file).resolve().stem
    if not spec and "." in name:  # Python would import "train" for "train.v2"
        return "__main__"
    with contextlib.suppress(ImportError, ValueError):
        found = find_spec(name)
        if found and found.origin and Path(found.origin).resolve() == Path(file).resolve():
            return name
    return "__main__"
