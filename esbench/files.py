"""Files that are whole or absent, whatever happens, and JSON that holds arrays and no NaN."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from esbench.errors import UsageError

Json: TypeAlias = dict[str, Any]

RESUMABLE: Final = "; what was saved before is intact, and the same command resumes from it"


@contextlib.contextmanager
def disk_errors(path: Path, then: str = RESUMABLE) -> Iterator[None]:
    """Turn what the file system refuses (full, read-only, not a folder) into one sentence.

    For writing only: a file that cannot be read is another matter, see ``read_bytes``.

    Args:
        path: what is being written, for errors that name no file.
        then: ends the sentence: what this means for the person.

    Raises:
        UsageError: names the file, or ``path`` if the error names none.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename2 or error.filename or path}: "
            f"{error.strerror or error}{then}"
        ) from error


def read_bytes(path: Path) -> bytes:
    """Return a file's content.

    Raises:
        FileNotFoundError: there is none; what that means, the caller knows.
        UsageError: the file system refuses.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def replace(path: Path, content: str | bytes) -> None:
    """Write a file so that, whatever happens, the old or the new one is there whole.

    Raises:
        OSError: the file system refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_temporaries(folder: Path) -> None:
    """Remove what killed processes left half written; nobody may be writing in ``folder``.

    Raises:
        OSError: the file system refuses.
    """
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically, its folder too.

    Raises:
        UsageError: the file system refuses.
    """
    with disk_errors(path, then=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)


def as_line(row: Json) -> str:
    """Return JSON on one line, newline included; what is not finite is null."""
    return json.dumps(_finite(row), separators=(",", ":"), allow_nan=False) + "\n"


def as_text(content: Json) -> str:
    """Return JSON for people to read; what is not finite is null."""
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Return JSON without NaN or infinity, which JSON does not know: they become null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def without_arrays(value: Any, arrays: dict[str, Any], name: str = "") -> Any:
    """Return nested tables with every array moved to ``arrays`` under its dotted name."""
    if isinstance(value, dict):
        return {
            key: without_arrays(item, arrays, f"{name}.{key}" if name else key)
            for key, item in value.items()
        }
    if isinstance(value, np.ndarray):
        arrays[name] = np.array(value, order="C")  # ascontiguousarray would add a dimension to 0-d
        return {"$tensor": name}
    return value


def with_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    """Return what ``without_arrays`` took apart.

    Raises:
        KeyError: an array is not in ``arrays``.
    """
    if isinstance(value, dict):
        if set(value) == {"$tensor"}:
            return arrays[value["$tensor"]]
        return {key: with_arrays(item, arrays) for key, item in value.items()}
    return value
