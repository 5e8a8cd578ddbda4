"""The JSON files of a trial's folder: format, types, digest and what to do about damage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import msgspec

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import (
    LARGEST,
    disk_errors,
    open_regular,
    read_bytes,
    replace,
    require_no_links,
)
from esbench.core.json_text import SEAL, Json, as_text, digest_of, parse_json, sealed

FORMAT: Final = 2
KEPT: Final = "kept"  # folder of the earlier checkpoints
MEMBERS: Final = "members.jsonl.gz"


@final
@dataclass(frozen=True)
class StoredJson:
    """Reads and writes files below ``path``, the folder of a trial, and follows no link there."""

    path: Path

    def read(self, name: str, schema: Any) -> Json:
        """The content of a JSON file of the current format, of the type of a ``schema``.

        The digest at its end is compared. A file without one was written by hand.

        Raises:
            DamagedTrialError: the file is missing, not a JSON object, of another type, or edited.
            UsageError: it has another format, or cannot be read.
        """
        path = self.path / name
        try:
            text = self.bytes(path)
        except FileNotFoundError:
            raise self.damaged(path, "it is missing") from None
        try:
            content = parse_json(text)
        except ValueError as error:
            raise self.damaged(path, f"not readable as JSON: {error}") from None
        if not isinstance(content, dict):
            raise self.damaged(path, "expected a JSON object")
        if type(content.get("format")) is not int:
            raise self.damaged(path, "it has no valid 'format'")
        if content["format"] != FORMAT:
            versions = content.get("versions")
            version = versions.get("esbench") if isinstance(versions, dict) else None
            raise UsageError(
                f"{self.path} was written in trial format {content['format']}"
                f"{f' by esbench {version}' if version else ''}; expected format {FORMAT} (use "
                "another output folder, or the version of esbench that wrote it)"
            )
        try:
            msgspec.convert(content, schema)
        except msgspec.ValidationError as error:
            raise self.damaged(path, str(error)) from None
        if content.pop(SEAL, None) not in (None, digest_of(content)):
            raise self.damaged(path, f"its content does not match its {SEAL}")
        return content

    def write(self, name: str, content: Json) -> None:
        """Replace a JSON file atomically, with its format and digest; OSError as the system."""
        require_no_links((self.path / name).parent, self.path)
        replace(self.path / name, as_text(sealed({"format": FORMAT, **content})))

    def bytes(self, path: Path, largest: int = LARGEST) -> bytes:
        """The content of a file of at most ``largest`` bytes.

        FileNotFoundError, or DamagedTrialError if it is no such file.
        """
        try:
            return read_bytes(path, self.path, largest)
        except DamagedTrialError as error:
            raise self.damaged(path, error.problem) from None

    def open(self, path: Path, flags: int) -> int:
        """Open a file to write; DamagedTrialError if it is no regular file, or below a link."""
        with disk_errors(path):
            return open_regular(path, flags, below=self.path)

    def damaged(self, path: Path, problem: str) -> DamagedTrialError:
        """The error that names a damaged file, its problem and the remedy."""
        if path.parent.name == KEPT and not path.name.endswith(".result.json"):
            stem = path.with_name(path.name[:8])
            remedy = f"remove {stem}.json and {stem}-*: training does not need them"
        elif path.parent.name == KEPT or path.name == MEMBERS:
            remedy = "remove it: training does not need it"
        elif path.name == "metrics.jsonl" and (self.path / "result.json").exists():
            remedy = f"its score is intact; remove the folder {self.path} to train it again"
        elif path.name != "result.json":
            remedy = f"remove the folder {self.path} to train that trial again"
        elif path.exists():
            remedy = "remove it, and 'esbench run' scores the trial again"
        else:
            remedy = "the trial is not done, or is being extended at this moment"
        return DamagedTrialError(f"{path} is damaged ({problem}); {remedy}")
