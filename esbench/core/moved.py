"""Names the new place of a module whose path of 0.2.0 or of an early 0.3.0 is imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import final


@final
class MovedModules(MetaPathFinder):
    """The last finder, which Python asks for modules that no other one has found."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
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


def install() -> None:
    """Let imports of old module paths name the new ones."""
    sys.meta_path.append(MovedModules())
