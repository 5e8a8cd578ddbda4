"""What every member did: ``members.jsonl.gz``, one JSON object per generation, if asked for.

Each object is compressed on its own and appended. The file is then a gzip file of many parts, which
``zcat`` prints, whose torn end is recognized, and which can be cut after any generation.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import msgspec
import numpy as np

from esbench.core.errors import DamagedTrialError
from esbench.core.files import LARGEST, disk_errors
from esbench.core.json_text import Json
from esbench.store.appended_file import AppendedFile
from esbench.store.schemas import StoredColumn, StoredMembers
from esbench.store.stored_json import MEMBERS, StoredJson

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
