"""The JSON files of a trial's folder: read, checked, and told apart from what is damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.errors import UsageError
from esbench.files import Json, read_bytes
from esbench.grids.trial_spec import TrialSpec
from esbench.settings import parse

FORMAT: Final = 1
KEPT: Final = "kept"  # the folder of what was kept on the way
Keys: TypeAlias = Mapping[str, type | tuple[type, ...]]


class DamagedTrialError(UsageError):
    """A stored trial cannot be read; the message says which file, and what to remove."""


@final
@dataclass(frozen=True)
class TrialFiles:
    """The files of one trial, below ``path``."""

    path: Path

    def read(self, name: str, keys: Keys) -> Json:
        """Return a JSON file of a format this esbench knows, with at least ``keys`` in it.

        Raises:
            DamagedTrialError: it is missing, is no JSON object, or lacks a key.
            UsageError: it is of a newer esbench, or cannot be read.
        """
        path = self.path / name
        try:
            text = read_bytes(path)
        except FileNotFoundError:
            raise self.damaged(path, "it is missing") from None
        try:
            content = json.loads(text)
        except ValueError as error:
            raise self.damaged(path, f"not readable as JSON: {error}") from None
        if not isinstance(content, dict):
            raise self.damaged(path, "expected a JSON object")
        written = content.get("format")
        if isinstance(written, int) and written > FORMAT:
            raise UsageError(
                f"{path}: written by a newer esbench (format {written}, this one reads up to "
                f"{FORMAT}); upgrade esbench, or use another output folder"
            )
        self.require(path, content, {"format": int, **keys})
        return content

    def require(self, path: Path, table: Json, keys: Keys) -> None:
        """Raise ``DamagedTrialError`` if a table lacks a key, or has one of another type."""
        for key, kind in keys.items():
            if key not in table or not isinstance(table[key], kind):
                raise self.damaged(path, f"it has no valid {key!r}")

    def parsed(self, path: Path, spec: Json) -> TrialSpec:
        """Return a stored specification; raises ``DamagedTrialError`` if it is none."""
        try:
            return parse(TrialSpec, spec, "specification")
        except UsageError as error:
            raise self.damaged(path, str(error).replace("\n", "; ")) from None

    def damaged(self, path: Path, problem: str) -> DamagedTrialError:
        """Return the error that says what is wrong with a file, and what to do."""
        if path.parent.name == KEPT:
            remedy = "remove it: training does not need it"
        elif path.name == "metrics.jsonl" and (self.path / "result.json").exists():
            remedy = f"its score is whole; remove the folder {self.path} to train it again"
        elif path.name != "result.json":
            remedy = f"remove the folder {self.path} to start that trial over"
        elif path.exists():
            remedy = "remove it, and the same command scores the trial again"
        else:
            remedy = "the trial is not done, or is being extended just now"
        return DamagedTrialError(f"{path} is damaged ({problem}); {remedy}")
