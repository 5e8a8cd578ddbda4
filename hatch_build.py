"""Puts the rows of the leaderboard with small policies into the wheel, as ``esbench/zoo``."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOST_BYTES = 2_000_000  # compressed, of all files


class Zoo(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the files; an editable installation finds those of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to what is built."""
        if version != "editable":
            build_data["force_include"].update(small_rows(Path(self.root) / "results"))


def small_rows(results: Path) -> dict[str, str]:
    """The files of the rows with the smallest policies, by their places in the package."""
    found: dict[str, str] = {}
    size = 0
    policies = sorted((results / "policies").glob("*.safetensors"), key=_size)
    for path in policies:
        row = results / "leaderboard" / f"{path.stem}.json"
        size += sum(len(zlib.compress(each.read_bytes())) for each in (path, row))
        if size > MOST_BYTES:
            break
        found |= {str(each): f"esbench/zoo/{each.parent.name}/{each.name}" for each in (path, row)}
    return found


def _size(path: Path) -> tuple[int, str]:
    return path.stat().st_size, path.name
