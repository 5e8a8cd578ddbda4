"""What esbench adds to Python's imports: old module paths, and what goes with other packages."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final, final

ENVIRONMENTS: Final = "esbench.environments.specifications"  # registers them when it is imported


@final
class MovedModules(MetaPathFinder):
    """The last finder: names the new place of a module whose path has changed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError with the new name of a module of esbench that has moved."""
        if fullname.startswith("esbench."):
            table = Path(__file__).with_name("moved_modules.json")
            moved: dict[str, str] = json.loads(table.read_text(encoding="utf-8"))
            if new := moved.get(fullname):
                raise ModuleNotFoundError(
                    f"{fullname} is now {new}; import public names from esbench itself",
                    name=fullname,
                )
        return None


@final
class LoadedWithin(MetaPathFinder):
    """The first finder: executes a module of another package within a context.

    Importing such a package for this alone would make ``import esbench`` and every worker slow.
    """

    def __init__(self, name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        self._context = context

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own specification, whose loader uses the context."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_within(module: ModuleType) -> None:
                with self._context():
                    load(module)

            spec.loader.exec_module = load_within  # type: ignore[method-assign]
        return spec


def load_within(name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Execute a module in ``context()`` when it is imported; at once, empty, if it has been."""
    if name in sys.modules:
        with context():
            return
    sys.meta_path.insert(0, LoadedWithin(name, context))


@contextlib.contextmanager
def _registering() -> Iterator[None]:
    # Gymnasium has no entry point for packages of environments.
    yield
    importlib.import_module(ENVIRONMENTS)


def install() -> None:
    """Add old module paths, and the environments of esbench in Gymnasium, to this process."""
    sys.meta_path.append(MovedModules())
    load_within("gymnasium", _registering)
