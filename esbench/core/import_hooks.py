"""What ``import esbench`` adds to Python's imports: old module paths, and names in Gymnasium."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
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
class RegisterAfterGymnasium(MetaPathFinder):
    """The first finder: registers the environments of esbench once Gymnasium is imported.

    Gymnasium has no entry point for packages of environments, and importing it here would make
    ``import esbench`` slow.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own specification, whose loader also registers the environments."""
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                importlib.import_module(ENVIRONMENTS)

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Add both to the imports of this process."""
    sys.meta_path.append(MovedModules())
    if "gymnasium" in sys.modules:
        importlib.import_module(ENVIRONMENTS)
    else:
        sys.meta_path.insert(0, RegisterAfterGymnasium())
