"""The rows of a trial on disk: ``metrics.jsonl``, one JSON object a generation, appended."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from typing import IO, Any, Final, final

import numpy as np
from msgspec import MsgspecError, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple
from pydantic_core import from_json

from esbench.files import Json, as_line, disk_errors, read_bytes, replace
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_files import TrialFiles

_KINDS: Final[dict[str, Any]] = {"int": np.int64, "str": object}
_ROW_TYPES: Final = {
    field.name: _KINDS.get(str(field.type), np.float64) for field in fields(GenerationRecord)
}
_ROW_KEYS: Final = {field.name for field in fields(GenerationRecord) if field.default is MISSING}
# Of rows that were written before there were these keys, they are null.
_LATER_KEYS: Final = _ROW_TYPES.keys() - _ROW_KEYS


@final
class MetricsFile:
    """The rows of one trial. Reading never changes them."""

    def __init__(self, files: TrialFiles) -> None:
        self.path = files.path / "metrics.jsonl"
        self._files = files
        self._file: IO[bytes] | None = None

    def rows(self) -> list[Json]:
        """Return all of them, without a torn last line.

        Raises:
            DamagedTrialError: any other line is not a row.
        """
        rows = [_as_row(line) for line in self._lines()]
        if rows and rows[-1] is None:
            del rows[-1]
        if None in rows:
            raise self._files.damaged(self.path, f"line {rows.index(None) + 1} is not readable")
        return [row for row in rows if row is not None]

    def columns(self, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the rows key by key: the values of ``keys`` (all by default), [generations].

        For reading thousands of trials: it makes no object of a row. Whole numbers are int64, other
        numbers float64 with NaN for null, and so is ``max_episode_steps``; texts are objects.

        Raises:
            DamagedTrialError: what ``rows`` raises, or a value is no number where one belongs.
        """
        names = keys or tuple(_ROW_TYPES)
        try:
            lines = self._lines()
            values = [astuple(row) for row in _decoder(names).decode_lines(b"\n".join(lines))]
            whole = len(values) == len(lines)  # rows that are no lines are damage too
        except (MsgspecError, UnicodeDecodeError):
            whole = False
        if not whole:  # torn, or damaged: ``rows`` tells which
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
        """Make these rows all there are, and stay ready to append.

        Raises:
            UsageError: the file system refuses.
        """
        with disk_errors(self.path.parent):
            replace(self.path, "".join(map(as_line, rows)))
            self._file = self.path.open("ab", buffering=0)

    def append(self, record: GenerationRecord) -> None:
        """Append one row.

        Raises:
            UsageError: the file system refuses.
        """
        assert self._file is not None, "begin first"
        with disk_errors(self.path):
            rest = memoryview(as_line(asdict(record)).encode())
            while rest:  # a full disk takes a part first, and refuses the rest
                rest = rest[self._file.write(rest) :]

    def sync(self) -> None:
        """Return when what was appended is safe on disk.

        Raises:
            UsageError: the file system refuses.
        """
        assert self._file is not None, "begin first"
        with disk_errors(self.path.parent):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; nothing, if it is not open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lines(self) -> list[bytes]:
        """Return the whole lines; what follows the last newline is torn."""
        try:
            return read_bytes(self.path).split(b"\n")[:-1]
        except FileNotFoundError:
            return []


@lru_cache(maxsize=16)  # a command asks for the same few keys of every trial
def _decoder(names: tuple[str, ...]) -> Decoder[Any]:
    """Return what reads only these keys of a row, in a third of the time of reading all."""
    parts: list[Any] = []
    for name in names:
        kind = _ROW_TYPES[name]
        of = {np.int64: int, np.float64: float | None, object: str}[kind]
        parts.append((name, of, None) if name in _LATER_KEYS else (name, of))
    return Decoder(defstruct("Row", parts, kw_only=True, gc=False))


def _as_row(line: bytes) -> Json | None:
    """Return a line of ``metrics.jsonl``, or None if it is no whole row."""
    try:
        row = from_json(line)  # a quarter of the time of json.loads, and the same float64
    except ValueError:
        return None
    if not isinstance(row, dict) or not row.keys() >= _ROW_KEYS:
        return None
    return row | dict.fromkeys(_LATER_KEYS - row.keys())


def as_record(row: Json) -> GenerationRecord:
    """Return a row as a record; null is NaN again."""
    values: Json = {
        key: math.nan if row[key] is None and key != "max_episode_steps" else row[key]
        for key in _ROW_TYPES
    }
    return GenerationRecord(**values)
