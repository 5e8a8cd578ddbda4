"""The rows of a trial on disk, appended: ``metrics.jsonl`` and ``members.jsonl.gz``."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, final

import msgspec
import numpy as np

from esbench.core.errors import DamagedTrialError
from esbench.core.files import LARGEST, disk_errors, replace
from esbench.core.json_text import Json, as_line
from esbench.store.generation_record import GenerationRecord
from esbench.store.schemas import StoredColumn, StoredCount, StoredMembers
from esbench.store.stored_json import MEMBERS, StoredJson


@final
class AppendedFile:
    """A file to append to. Every method raises ``UsageError`` if the file system refuses."""

    def __init__(self, files: StoredJson, path: Path) -> None:
        self.path = path
        self._files = files
        self._file: IO[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the file can be appended to."""
        return self._file is not None

    def open(self) -> None:
        """Open the file, which is created if it is missing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.fdopen(self._files.open(self.path, flags), "ab", buffering=0)

    def append(self, content: bytes) -> None:
        """Append bytes, which other processes can read at once."""
        assert self._file is not None, "open it first"
        with disk_errors(self.path):
            rest = memoryview(content)
            while rest:  # a full disk may accept a part before it fails
                rest = rest[self._file.write(rest) :]

    def sync(self) -> None:
        """Wait until everything is on disk, if the file is open."""
        if self._file is not None:
            with disk_errors(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


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


_CHUNK: Final = 16384  # bytes; zlib copies the rest of a chunk at the end of every part
_GZIP: Final = 16 + zlib.MAX_WBITS


@final
class MembersFile:
    """The members' data of one trial; there are none unless the file exists."""

    def __init__(self, files: StoredJson) -> None:
        self.path = files.path / MEMBERS
        self._files = files
        self._file = AppendedFile(files, self.path)

    def rows(self) -> list[Json]:
        """The objects of all generations, without a torn end."""
        return [row for row, _ in self._parts()]

    def size_at(self, generation: int) -> int:
        """The size of the file after a generation in bytes; DamagedTrialError if it ends before."""
        size = latest = 0
        for row, end in self._parts() if generation else ():
            if row["generation"] > generation:
                break
            size, latest = end, row["generation"]
            if latest == generation:
                break
        if latest not in (0, generation):  # 0: recording starts later
            raise self._damaged(
                f"it ends at generation {latest}, but the checkpoint is of generation {generation}"
            )
        return size

    def begin(self, size: int) -> None:
        """Cut the file to a size, and open it for appending."""
        self._file.open()
        with disk_errors(self.path):
            os.truncate(self.path, size)

    def append(self, generation: int, data: Mapping[str, Any]) -> None:
        """Append arrays and numbers of a generation, if the file is open; NaN becomes null."""
        if self._file.is_open:
            lists = {name: np.asarray(value).tolist() for name, value in data.items()}
            line = msgspec.json.encode({"generation": generation, **lists})
            self._file.append(gzip.compress(line + b"\n", mtime=0))

    def sync(self) -> None:
        """Wait until the data are on disk, if the file is open."""
        self._file.sync()

    def close(self) -> None:
        """Close the file if it is open."""
        self._file.close()

    def _parts(self) -> Iterator[tuple[Json, int]]:
        """Every complete object, with its end in the file in bytes."""
        try:
            data = self._files.bytes(self.path)
        except FileNotFoundError:
            return
        end = latest = 0
        try:
            while True:
                decoder, line = zlib.decompressobj(_GZIP), b""
                while not decoder.eof:
                    if end == len(data):
                        return
                    chunk = data[end : end + _CHUNK]
                    line += decoder.decompress(chunk)
                    if len(line) > LARGEST:
                        raise self._damaged(f"a generation of more than {LARGEST} bytes")
                    end += len(chunk) - len(decoder.unused_data)
                row = msgspec.json.decode(line)
                msgspec.convert(row, StoredMembers)
                if row["generation"] <= latest:
                    raise self._damaged(f"generation {row['generation']} follows {latest}")
                latest = row["generation"]
                if not _is_even(row):
                    raise self._damaged(f"the columns of generation {latest} differ in size")
                yield row, end
        except (zlib.error, msgspec.MsgspecError) as error:
            raise self._damaged(f"it is not readable: {error}") from None

    def _damaged(self, problem: str) -> DamagedTrialError:
        return self._files.damaged(self.path, problem)


def _is_even(row: Json) -> bool:
    """Whether all columns have the same members, and each as many values for all of them.

    A column without members is a number. ValidationError if a value is none.
    """
    returns, lengths = row["return"], row["length"]
    if not returns or [*map(len, lengths)] != [*map(len, returns)]:
        return False
    for column in msgspec.convert(row, dict[str, StoredColumn]).values():
        if isinstance(column, list):
            sizes = {len(each) if isinstance(each, list) else 0 for each in column}
            if len(column) != len(returns) or len(sizes) > 1:
                return False
    return bool(returns[0])
