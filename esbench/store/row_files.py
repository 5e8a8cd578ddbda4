"""The rows of a trial on disk, appended: ``metrics.jsonl`` and ``members.jsonl.gz``."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, final

import msgspec
import numpy as np

from esbench.core.files import disk_errors, read_bytes, replace
from esbench.core.json_text import Json, as_line
from esbench.store.generation_record import GenerationRecord, Return
from esbench.store.stored_json import MEMBERS, StoredCount, StoredMembers, damaged


class AppendedFile(ABC):
    """A file to append to. Every method raises ``UsageError`` if the file system refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Neither can be sent to other processes.
        self._file: IO[bytes] | None = None
        self._digest: hashlib._Hash | None = None

    @abstractmethod
    def begin(self, at: int) -> None:
        """Drop what is behind a place, and open the file for appending."""

    def _append(self, content: bytes) -> None:
        """Append bytes, which other processes can read at once."""
        assert self._file is not None, "begin first"
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
        file, self._file, self._digest = self._file, None, None
        if file is not None:
            with disk_errors(self.path):  # some file systems report only here that they are full
                file.close()


_LOSSES: Final = "dict[str, float]"
_TYPES: Final[dict[str, Any]] = {
    "int": StoredCount,
    "int | None": StoredCount | None,
    "float": float | None,
    "Return": Return | None,
    "str": str,
    _LOSSES: dict[str, float | None],
}
_KINDS: Final[dict[str, Any]] = {"int": np.int64, "str": object}
_FIELDS: Final = {field.name: str(field.type) for field in fields(GenerationRecord)}
_COLUMNS: Final = tuple(name for name, kind in _FIELDS.items() if kind != _LOSSES)


@final
class KnownRows(NamedTuple):
    """How many rows there are at least, and their SHA-256 if known, as another file says."""

    generation: int = 0
    digest: str | None = None


@final
class MetricsFile(AppendedFile):
    """The rows of one trial."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "metrics.jsonl")
        self._written = 0  # rows in the open file, whose digest is ``_digest``

    def records(self, known: KnownRows) -> list[GenerationRecord]:
        """All rows, with NaN for null; DamagedTrialError as in ``columns``."""
        nulls = {key: math.nan for key, kind in _FIELDS.items() if kind in {"float", "Return"}}
        rows: list[Json] = [*map(msgspec.structs.asdict, self._decoded(known, tuple(_FIELDS)))]
        for row in rows:
            row.update((key, nan) for key, nan in nulls.items() if row[key] is None)
            losses = row["losses"].items()
            row["losses"] = {name: math.nan if each is None else each for name, each in losses}
        return [GenerationRecord(**row) for row in rows]

    def columns(self, known: KnownRows, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """The rows as one array per key of ``keys``, each [generations]; by default all but losses.

        Integers are int64, texts objects, and all else float64 with NaN for null.

        Raises:
            DamagedTrialError: a line is not a row, or the rows are not the ``known`` ones.
        """
        names = tuple(dict.fromkeys(("generation", *(keys or _COLUMNS))))
        rows = [msgspec.structs.astuple(row) for row in self._decoded(known, names)]
        by_key = zip(*rows, strict=True) if rows else ((),) * len(names)
        return {
            key: np.array(column, dtype=_KINDS.get(_FIELDS[key], np.float64))
            for key, column in zip(names, by_key, strict=True)
            if key in (keys or _COLUMNS)
        }

    def require(self, known: KnownRows) -> None:
        """Raises DamagedTrialError if the rows are not the ``known`` ones."""
        self._lines(known)

    def digest(self, generation: int) -> str:
        """The SHA-256 of the rows up to a generation."""
        if self._digest is not None and generation == self._written:
            return self._digest.hexdigest()
        return _sha256(self._lines(KnownRows(generation))[:generation]).hexdigest()

    def begin(self, at: int) -> None:
        """Drop the rows after a generation, and open the file for appending."""
        kept = self._lines(KnownRows(at))[:at]
        with disk_errors(self.path.parent):
            replace(self.path, b"".join(line + b"\n" for line in kept))
            self._file = self.path.open("ab", buffering=0)
        self._written, self._digest = at, _sha256(kept)

    def append(self, record: GenerationRecord) -> None:
        """Append one row."""
        row = asdict(record)
        if not record.losses:  # a search has none
            del row["losses"]
        line = as_line(row).encode()
        self._append(line)
        assert self._digest is not None, "begin first"
        self._digest.update(line)
        self._written += 1

    def _decoded(self, known: KnownRows, names: tuple[str, ...]) -> list[Any]:
        """The rows with these keys, the generation among them."""
        lines = self._lines(known)
        try:
            rows: list[Any] = _decoder(names).decode_lines(b"\n".join(lines))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise damaged(self.path, f"a row is not readable: {error}") from None
        # Several rows on one line, or a line twice, are damage too.
        if [row.generation for row in rows] != list(range(1, len(lines) + 1)):
            raise damaged(self.path, f"its {len(lines)} lines are not one row per generation")
        return rows

    def _lines(self, known: KnownRows) -> list[bytes]:
        """The complete lines; the text after the last newline is torn."""
        try:
            lines = read_bytes(self.path).split(b"\n")[:-1]
        except FileNotFoundError:
            lines = []
        generation, digest = known
        if len(lines) < generation:
            problem = f"{generation} rows were written, but only {len(lines)} are readable"
            raise damaged(self.path, problem)
        if digest is not None and _sha256(lines[:generation]).hexdigest() != digest:
            raise damaged(self.path, f"its first {generation} rows do not match their digest")
        return lines


def _sha256(lines: Sequence[bytes]) -> hashlib._Hash:
    return hashlib.sha256(b"".join(line + b"\n" for line in lines))


@lru_cache(maxsize=16)  # a command reads the same few keys of every trial
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of these keys of a row; one of few keys is three times as fast as one of all."""
    types: list[Any] = [(name, _TYPES[_FIELDS[name]]) for name in names if name in _COLUMNS]
    if "losses" in names:
        types.append(("losses", _TYPES[_LOSSES], msgspec.field(default_factory=dict)))
    return msgspec.json.Decoder(msgspec.defstruct("Row", types, gc=False))


_CHUNK: Final = 16384  # bytes; zlib copies the rest of a chunk at the end of every part
_GZIP: Final = 16 + zlib.MAX_WBITS


@final
class MembersFile(AppendedFile):
    """The members' data of one trial; there are none unless the file exists."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / MEMBERS)

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
                break  # what a killed process has left may follow
        if latest not in (0, generation):  # 0: recording starts later
            raise damaged(self.path, f"it ends at generation {latest}, before {generation}")
        return size

    def begin(self, at: int) -> None:
        """Cut the file to a size, and open it for appending."""
        with disk_errors(self.path):
            self._file = self.path.open("ab", buffering=0)
            os.truncate(self.path, at)

    def append(self, generation: int, data: Mapping[str, Any]) -> None:
        """Append arrays and numbers of a generation, if the file is open; NaN becomes null."""
        if self._file is not None:
            lists = {name: np.asarray(value).tolist() for name, value in data.items()}
            line = msgspec.json.encode({"generation": generation, **lists})
            self._append(gzip.compress(line + b"\n", mtime=0))

    def _parts(self) -> Iterator[tuple[Json, int]]:
        """Every complete object, with its end in the file in bytes."""
        try:
            data = read_bytes(self.path)
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
                    end += len(chunk) - len(decoder.unused_data)
                row = msgspec.json.decode(line)
                msgspec.convert(row, StoredMembers)
                if row["generation"] <= latest:
                    raise damaged(self.path, f"generation {row['generation']} follows {latest}")
                latest = row["generation"]
                yield row, end
        except (zlib.error, msgspec.MsgspecError) as error:
            raise damaged(self.path, f"it is not readable: {error}") from None
