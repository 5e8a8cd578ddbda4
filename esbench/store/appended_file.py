"""A file that grows at its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, final

from esbench.core.files import disk_errors
from esbench.store.stored_json import StoredJson


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
