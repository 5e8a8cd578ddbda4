"""A file that grows at its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, final

from esbench.files import disk_errors


@final
class AppendedFile:
    """A file to append to. Every method raises ``UsageError`` if the file system refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the file can be appended to."""
        return self._file is not None

    def open(self) -> None:
        """Open the file, which is created if it is missing."""
        with disk_errors(self.path):
            self._file = self.path.open("ab", buffering=0)

    def append(self, content: bytes) -> None:
        """Append bytes, which other processes can read at once."""
        assert self._file is not None, "open it first"
        with disk_errors(self.path):
            rest = memoryview(content)
            while rest:  # a full disk may accept a part before it fails
                rest = rest[self._file.write(rest) :]

    def sync(self) -> None:
        """Wait until everything is on disk."""
        assert self._file is not None, "open it first"
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None
