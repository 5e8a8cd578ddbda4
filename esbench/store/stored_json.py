"""The JSON files of a trial's folder: format, keys and what to do about damage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.errors import DamagedTrialError, UsageError
from esbench.files import Json, read_bytes

FORMAT: Final = 2
KEPT: Final = "kept"  # folder of the earlier checkpoints
MEMBERS: Final = "members.jsonl.gz"
Keys: TypeAlias = "Mapping[str, type | tuple[type, ...] | Keys]"
"""Required keys with the types of their values, or the keys of nested tables."""


@final
@dataclass(frozen=True)
class StoredJson:
    """Reads the JSON files below ``path``, the folder of a trial."""

    path: Path

    def read(self, name: str, keys: Keys) -> Json:
        """The content of a JSON file of the current format that has at least ``keys``.

        Raises:
            DamagedTrialError: the file is missing, not a JSON object, or lacks a key.
            UsageError: it has another format, or cannot be read.
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
        self.require(path, content, {"format": int})
        if content["format"] != FORMAT:
            versions = content.get("versions")
            version = versions.get("esbench") if isinstance(versions, dict) else None
            raise UsageError(
                f"{self.path} was written in trial format {content['format']}"
                f"{f' by esbench {version}' if version else ''}; expected format {FORMAT} (use "
                "another output folder, or the version of esbench that wrote it)"
            )
        self.require(path, content, keys)
        return content

    def require(self, path: Path, table: Json, keys: Keys) -> None:
        """Raises DamagedTrialError if a table lacks a key, or has it with another type."""
        for key, kind in keys.items():
            expected = dict if isinstance(kind, Mapping) else kind
            if key not in table or not isinstance(table[key], expected):
                raise self.damaged(path, f"it has no valid {key!r}")
            if isinstance(kind, Mapping):
                self.require(path, table[key], kind)

    def damaged(self, path: Path, problem: str) -> DamagedTrialError:
        """The error that names a damaged file, its problem and the remedy."""
        if path.parent.name == KEPT or path.name == MEMBERS:
            remedy = "remove it: training does not need it"
        elif path.name == "metrics.jsonl" and (self.path / "result.json").exists():
            remedy = f"its score is intact; remove the folder {self.path} to train it again"
        elif path.name != "result.json":
            remedy = f"remove the folder {self.path} to train that trial again"
        elif path.exists():
            remedy = "remove it, and the same command scores the trial again"
        else:
            remedy = "the trial is not done, or is being extended at this moment"
        return DamagedTrialError(f"{path} is damaged ({problem}); {remedy}")
