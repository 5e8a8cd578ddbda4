"""Atomic writing of files, and JSON with arrays and without NaN."""

from __future__ import annotations

import contextlib
import json
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
    """Turn errors of writing (disk full, read-only, not a folder) into a UsageError.

    It names the file, or ``path`` if the error names none, and ends with ``then``.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename2 or error.filename or path}: "
            f"{error.strerror or error}{then}"
        ) from error


def read_bytes(path: Path) -> bytes:
    """The content of a file; FileNotFoundError, or UsageError if the file system refuses."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def replace(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: after a crash, the old or the new content is complete."""
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
    """Remove the temporary files of killed processes; no process may write in ``folder``."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically, and its folder; UsageError if the file system refuses."""
    with disk_errors(path, then=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)


def as_line(row: Json) -> str:
    """JSON on one line, with a newline; NaN and infinity become null."""
    return json.dumps(finite(row), separators=(",", ":"), allow_nan=False) + "\n"


def as_text(content: Json) -> str:
    """Indented JSON; NaN and infinity become null."""
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """A value with None for NaN and infinity, which JSON lacks."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def without_arrays(value: Any, arrays: dict[str, Any], name: str = "") -> Any:
    """A nested table in which each array is moved to ``arrays`` under its dotted name."""
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
    """The inverse of ``without_arrays``; KeyError if an array is missing."""
    if isinstance(value, dict):
        if set(value) == {"$tensor"}:
            return arrays[value["$tensor"]]
        return {key: with_arrays(item, arrays) for key, item in value.items()}
    return value
