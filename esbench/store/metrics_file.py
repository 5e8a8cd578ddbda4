"""The rows of a trial on disk: ``metrics.jsonl``, one JSON object per generation, appended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, Final, final

import numpy as np
from msgspec import MsgspecError, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple
from pydantic_core import from_json

from esbench.files import Json, as_line, disk_errors, read_bytes, replace
from esbench.store.appended_file import AppendedFile
from esbench.store.generation_record import GenerationRecord
from esbench.store.stored_json import StoredJson

_KINDS: Final[dict[str, Any]] = {"int": np.int64, "str": object}
_ROW_TYPES: Final = {
    field.name: _KINDS.get(str(field.type), np.float64) for field in fields(GenerationRecord)
}


@final
class MetricsFile:
    """The rows of one trial. Every method raises ``UsageError`` if the file system refuses."""

    def __init__(self, files: StoredJson) -> None:
        self.path = files.path / "metrics.jsonl"
        self._files = files
        self._file = AppendedFile(self.path)

    def rows(self) -> list[Json]:
        """All rows without a torn last line; DamagedTrialError if another line is not a row."""
        rows = [_as_row(line) for line in self._lines()]
        if rows and rows[-1] is None:
            del rows[-1]
        if None in rows:
            raise self._files.damaged(self.path, f"line {rows.index(None) + 1} is not readable")
        return [row for row in rows if row is not None]

    def columns(self, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """The rows as one array per key of ``keys`` (default all), each [generations].

        Fast enough for thousands of trials, because no row becomes an object. The types are those
        of ``TrialFolder.columns``; DamagedTrialError as in ``rows``, and for a wrong type.
        """
        names = keys or tuple(_ROW_TYPES)
        try:
            lines = self._lines()
            values = [astuple(row) for row in _decoder(names).decode_lines(b"\n".join(lines))]
            whole = len(values) == len(lines)  # several rows on one line are damage too
        except (MsgspecError, UnicodeDecodeError):
            whole = False
        if not whole:  # torn or damaged: ``rows`` decides
            values = [tuple(row[name] for name in names) for row in self.rows()]
        by_key = zip(*values, strict=True) if values else ((),) * len(names)
        columns = {}
        for key, column in zip(names, by_key, strict=True):
            try:
                columns[key] = np.array(column, dtype=_ROW_TYPES[key]).reshape(len(values))
            except (ValueError, TypeError, OverflowError):
                problem = f"a value of {key!r} is not a number"
                raise self._files.damaged(self.path, problem) from None
        return columns

    def begin(self, rows: Sequence[Json]) -> None:
        """Write these rows in place of all others, and open the file for appending."""
        with disk_errors(self.path.parent):
            replace(self.path, "".join(map(as_line, rows)))
        self._file.open()

    def append(self, record: GenerationRecord) -> None:
        """Append one row."""
        self._file.append(as_line(asdict(record)).encode())

    def sync(self) -> None:
        """Wait until the appended rows are on disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file if it is open."""
        self._file.close()

    def _lines(self) -> list[bytes]:
        """The complete lines; the text after the last newline is torn."""
        try:
            return read_bytes(self.path).split(b"\n")[:-1]
        except FileNotFoundError:
            return []


@lru_cache(maxsize=16)  # a command reads the same few keys of every trial
def _decoder(names: tuple[str, ...]) -> Decoder[Any]:
    """A decoder of these keys of a row, three times as fast as one of all keys."""
    types: dict[Any, Any] = {np.int64: int, np.float64: float | None, object: str}
    return Decoder(defstruct("Row", [(name, types[_ROW_TYPES[name]]) for name in names], gc=False))


def _as_row(line: bytes) -> Json | None:
    try:
        row = from_json(line)  # faster than json.loads, with the same float64
    except ValueError:
        return None
    return row if isinstance(row, dict) and row.keys() >= _ROW_TYPES.keys() else None


def as_record(row: Json) -> GenerationRecord:
    """A row as a record, with NaN for null."""
    values: Json = {
        key: math.nan if row[key] is None and key != "max_episode_steps" else row[key]
        for key in _ROW_TYPES
    }
    return GenerationRecord(**values)
