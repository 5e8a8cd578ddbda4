"""The rows of a trial on disk: ``metrics.jsonl``, one JSON object per generation, appended."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import msgspec
import numpy as np

from esbench.core.files import disk_errors, replace
from esbench.core.json_text import Json, as_line
from esbench.store.appended_file import AppendedFile
from esbench.store.generation_record import GenerationRecord
from esbench.store.schemas import StoredCount
from esbench.store.stored_json import StoredJson

_TYPES: Final[dict[str, Any]] = {
    "int": StoredCount,
    "int | None": StoredCount | None,
    "float": float | None,
    "str": str,
}
_KINDS: Final[dict[str, Any]] = {"int": np.int64, "str": object}
_FIELDS: Final = {field.name: str(field.type) for field in fields(GenerationRecord)}


@final
class KnownRows(NamedTuple):
    """How many rows there are at least, and their SHA-256 if known, according to another file."""

    file: str  # "checkpoint" or "result"
    generation: int = 0
    digest: str | None = None


@final
class MetricsFile:
    """The rows of one trial. Every method raises ``UsageError`` if the file system refuses."""

    def __init__(self, files: StoredJson) -> None:
        self.path = files.path / "metrics.jsonl"
        self._files = files
        self._file = AppendedFile(files, self.path)
        self._written = 0  # rows in the open file
        self._digest: hashlib._Hash | None = None  # of them; it cannot be sent to other processes

    def rows(self, known: KnownRows) -> list[Json]:
        """All rows without a torn last line.

        DamagedTrialError if another line is not a row, or the rows are not the ``known`` ones.
        """
        lines = self._lines(known)
        rows, decode = [], _decoder(tuple(_FIELDS)).decode
        for number, line in enumerate(lines, start=1):
            try:
                row = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                torn = not isinstance(error, msgspec.ValidationError)
                if torn and number == len(lines):
                    break
                problem = f"line {number} is not readable: {error}"
                raise self._files.damaged(self.path, problem) from None
            if row.generation != number:
                problem = f"line {number} is of generation {row.generation}"
                raise self._files.damaged(self.path, problem)
            rows.append(msgspec.structs.asdict(row))
        return rows

    def columns(self, known: KnownRows, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """The rows as one array per key of ``keys`` (default all), each [generations].

        Fast enough for thousands of trials, because no row becomes an object. The types are those
        of ``TrialFolder.columns``; DamagedTrialError as in ``rows``.
        """
        names = tuple(dict.fromkeys(("generation", *(keys or _FIELDS))))
        lines = self._lines(known)
        try:
            values = [
                msgspec.structs.astuple(row)
                for row in _decoder(names).decode_lines(b"\n".join(lines))
            ]
        except (msgspec.DecodeError, UnicodeDecodeError):
            values = []
        # Several rows on one line, or a line twice, are damage too.
        if [row[0] for row in values] != list(range(1, len(lines) + 1)):
            values = [tuple(row[name] for name in names) for row in self.rows(known)]
        by_key = zip(*values, strict=True) if values else ((),) * len(names)
        return {
            key: np.array(column, dtype=_KINDS.get(_FIELDS[key], np.float64))
            for key, column in zip(names, by_key, strict=True)
            if key in (keys or _FIELDS)
        }

    def require(self, known: KnownRows) -> None:
        """Raises DamagedTrialError if the rows are not the ``known`` ones."""
        self._lines(known)

    def digest(self, generation: int) -> str:
        """The SHA-256 of the rows up to a generation."""
        if self._digest is not None and generation == self._written:
            return self._digest.hexdigest()
        return _sha256(self._lines(KnownRows("checkpoint", generation))[:generation]).hexdigest()

    def begin(self, generation: int) -> None:
        """Drop the rows after a generation, and open the file for appending."""
        kept = self._lines(KnownRows("checkpoint", generation))[:generation]
        with disk_errors(self.path.parent):
            replace(self.path, b"".join(line + b"\n" for line in kept))
        self._file.open()
        self._written, self._digest = generation, _sha256(kept)

    def append(self, record: GenerationRecord) -> None:
        """Append one row."""
        line = as_line(asdict(record)).encode()
        self._file.append(line)
        assert self._digest is not None, "begin first"
        self._digest.update(line)
        self._written += 1

    def sync(self) -> None:
        """Wait until the appended rows are on disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file if it is open."""
        self._file.close()
        self._digest = None

    def _lines(self, known: KnownRows) -> list[bytes]:
        """The complete lines; the text after the last newline is torn."""
        try:
            lines = self._files.bytes(self.path).split(b"\n")[:-1]
        except FileNotFoundError:
            lines = []
        file, generation, digest = known
        if len(lines) < generation:
            problem = f"the {file} is of generation {generation}, but only {len(lines)} rows"
            raise self._files.damaged(self.path, f"{problem} are readable")
        if digest is not None and _sha256(lines[:generation]).hexdigest() != digest:
            problem = f"its first {generation} rows do not match the digest in the {file}"
            raise self._files.damaged(self.path, problem)
        return lines


def _sha256(lines: Sequence[bytes]) -> hashlib._Hash:
    return hashlib.sha256(b"".join(line + b"\n" for line in lines))


@lru_cache(maxsize=16)  # a command reads the same few keys of every trial
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of these keys of a row; one of few keys is three times as fast as one of all."""
    types = [(name, _TYPES[_FIELDS[name]]) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Row", types, gc=False))


def as_record(row: Json) -> GenerationRecord:
    """A row as a record, with NaN for null."""
    values: Json = {
        key: math.nan if row[key] is None and kind == "float" else row[key]
        for key, kind in _FIELDS.items()
    }
    return GenerationRecord(**values)
