"""Paths, reading of regular files and atomic writing."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from esbench.core.errors import UsageError, shown
from esbench.core.json_text import parse_json

# What ``safe_name`` needs of two labels, as the end of a message.
DISTINCT_LABELS: Final = "expected labels that differ in letters, digits or . + -"
LOG_BYTES: Final = 2**20
LEFT_OUT: Final = re.compile(rb"\n\[(\d+) bytes are left out here\]\n")
RESUMABLE: Final = "; what was saved before is intact, and the same command resumes from it"


def safe_name(text: str) -> str:
    """A text as a file name: only letters, digits and ``_ . + -``, and not only dots."""
    return re.sub(r"[^\w.+-]|^\.+$", "_", text)


def distinct_names(texts: Iterable[str]) -> dict[str, str]:
    """The file name of each text; where several would have the same one, later ones are numbered.

    >>> distinct_names(["a/b", "a_b"])
    {'a/b': 'a_b', 'a_b': 'a_b-2'}
    """
    found: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        taken = {name.lower() for name in found.values()}  # some file systems ignore the case
        name, stem, number = safe_name(text), safe_name(text), 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}-{number}"
        found[text] = name
    return found


def as_path(name: str, value: str | Path) -> Path:
    """The path that an argument of a function names; UsageError for another type or no text."""
    if not isinstance(value, str | Path) or value == "":
        raise UsageError(f"{name} = {shown(value)}: expected a path")
    return Path(value)


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
    """The content of a regular file.

    Raises:
        FileNotFoundError: it does not exist.
        UsageError: it is something else, or the file system refuses.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait
            raise UsageError(f"cannot read {path}: expected a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def require_folder(path: Path) -> None:
    """Raises UsageError if something that is no folder is at a path or above it."""
    try:
        found = next((each for each in (path, *path.parents) if each.exists()), path)
        is_file = found.exists() and not found.is_dir()
    except OSError as error:  # for example, a name that is too long
        raise UsageError(f"{path}: {error.strerror}; expected a folder") from None
    if is_file:
        raise UsageError(f"{found} is a file; expected a folder")


def nearest_path(path: Path, others: Iterable[Path] = ()) -> Path | None:
    """The path with the nearest name to a missing one, or None.

    It is in the same folder (in the nearest one, if that is missing, too), or one of ``others``.
    """
    folder: Path | None = path.parent
    try:
        if not path.parent.exists():
            folder = nearest_path(path.parent)
        beside = folder.glob("*") if folder else ()
        found = {each.name: each for each in [*beside, *others]}
    except OSError:  # a folder that may not be read
        return None
    near = get_close_matches(path.name, found, n=1, cutoff=0.8)
    return found[near[0]] if near else None


def read_text(path: Path) -> str:
    """The content of a text file of the user's, without a byte-order mark.

    Raises:
        FileNotFoundError: it does not exist.
        UsageError: it is not in UTF-8, or as ``read_bytes``.
    """
    data = read_bytes(path)
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or 0 in data[:4]:
        found = "it is in UTF-16 or UTF-32"
    else:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            found = f"line {line} has the byte 0x{data[error.start]:02x}, as in Latin-1"
    raise UsageError(f"{path}: not readable as UTF-8: {found}; expected it saved in UTF-8")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; UsageError, with the line, if it cannot be read or parsed."""
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def read_json(path: Path) -> Any:
    """The content of a JSON file; FileNotFoundError, or UsageError if it is not readable."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: not readable as JSON: {error}") from None


def replace(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: after a crash, the old or the new content is complete."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def shorten_log(path: str | Path) -> None:
    """Keep the first and the last ``LOG_BYTES`` of a log that is four times as long.

    Other processes may append to it; what they write in this moment can be lost.
    """
    with contextlib.suppress(OSError):  # there is no log, or no access
        if Path(path).stat().st_size <= 4 * LOG_BYTES:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            before = LEFT_OUT.match(os.pread(descriptor, 99, LOG_BYTES))
            last = os.pread(descriptor, LOG_BYTES, size - LOG_BYTES)
            left_out = size - 2 * LOG_BYTES + (int(before[1]) - len(before[0]) if before else 0)
            os.ftruncate(descriptor, LOG_BYTES)
            os.write(descriptor, b"\n[%d bytes are left out here]\n" % left_out + last)
        finally:
            os.close(descriptor)


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files of killed processes; no process may write in ``folder``."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
