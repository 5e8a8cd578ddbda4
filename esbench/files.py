"""Reading of regular files, atomic writing, and JSON: bounded, sealed, with arrays, without NaN."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from esbench.errors import DamagedTrialError, UsageError, shown

Json: TypeAlias = dict[str, Any]

SEAL: Final = "sha256"  # key of the digest of a JSON file's other content
LARGEST: Final = 1 << 30  # bytes of a file that is read whole
DEEPEST: Final = 64  # nested tables and lists in JSON
MOST_DIGITS: Final = 100  # of an integer in JSON; the state of a random generator has 39
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
RESUMABLE: Final = "; what was saved before is intact, and the same command resumes from it"


def require_path(name: str, value: object) -> None:
    """Raises UsageError if the argument of a function is no text or path that can exist."""
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} = {shown(value)}: expected a path")
    try:
        os.lstat(value)
    except ValueError as error:
        raise UsageError(f"{name} = {shown(value)}: expected a path; {error}") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{name} = {shown(value)}: {error.strerror}") from None


def as_path(name: str, value: str | Path) -> Path:
    """The path that an argument of a function names; UsageError as ``require_path``."""
    require_path(name, value)
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


def open_regular(path: Path, flags: int = os.O_RDONLY, below: Path | None = None) -> int:
    """Open a regular file and return its descriptor; never waits for a pipe.

    Args:
        path: the file, which may be missing if ``flags`` create it.
        flags: those of ``os.open``.
        below: the folder of a trial that holds ``path``; no link below it is followed. By default,
            links are followed.

    Raises:
        UsageError: it is no regular file; DamagedTrialError below a trial's folder.
        OSError: as ``os.open``.
    """
    if below is not None:
        require_no_links(path, below)
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "no file")
            raise _refusal(path, f"it is {kind}; expected a regular file", below)
    # A pipe that replaced the file meanwhile is not waited for.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)


def require_no_links(path: Path, below: Path) -> None:
    """Raises DamagedTrialError if ``path``, or a folder between it and ``below``, is a link."""
    for place in (path, *path.parents):
        if place == below:
            return
        if place.is_symlink():
            raise _refusal(place, "it is a link; expected a regular file or folder", below)


def _refusal(path: Path, problem: str, below: Path | None) -> UsageError:
    if below is None:
        return UsageError(f"cannot read {path}: {problem}")
    error = DamagedTrialError(f"{path} is damaged ({problem}); remove it")
    error.problem = problem
    return error


def read_bytes(path: Path, below: Path | None = None, largest: int = LARGEST) -> bytes:
    """The content of a regular file of at most ``largest`` bytes.

    Raises:
        FileNotFoundError: it does not exist.
        UsageError: as ``open_regular``, it is larger, or the file system refuses.
    """
    try:
        with os.fdopen(open_regular(path, below=below), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > largest:
                raise _refusal(path, f"it has {size} bytes; expected at most {largest}", below)
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def nearest_path(path: Path, others: Iterable[Path] = ()) -> Path | None:
    """The path beside a missing one, or among ``others``, with the nearest name; None if none."""
    try:
        found = {each.name: each for each in [*path.parent.glob("*"), *others]}
    except OSError:  # a folder that may not be read
        return None
    near = get_close_matches(path.name, found, n=1, cutoff=0.8)
    return found[near[0]] if near else None


def read_json(path: Path) -> Any:
    """The content of a JSON file; FileNotFoundError, or UsageError if it is not readable."""
    text = read_bytes(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: not readable as JSON: {error}") from None


def parse_json(text: bytes) -> Any:
    """Parse strict JSON: no NaN, infinity, long integer, deep nesting or lone surrogate.

    Raises:
        ValueError: it is something else.
    """
    deep = ValueError(f"more than {DEEPEST} levels of nesting")
    try:
        content = json.loads(
            text, parse_constant=_no_number, parse_float=_finite_number, parse_int=_integer
        )
    except RecursionError:
        raise deep from None
    level = [content]
    for _ in range(DEEPEST):
        level = [item for value in level for item in _items(value)]
    if level:
        raise deep
    if b"\\u" in text:  # an escape can stand for half a character, which no output can encode
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text that is not valid Unicode") from None
    return content


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a finite number")


def _finite_number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(f"{text[:MOST_DIGITS]}")


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits; expected at most {MOST_DIGITS}")
    return int(text)


def sealed(content: Json) -> Json:
    """JSON content that ends with the SHA-256 of the rest; NaN and infinity become None."""
    plain = finite(content)
    return {**plain, SEAL: digest_of(plain)}


def digest_of(content: Json) -> str:
    """The SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def replace(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: after a crash, the old or the new content is complete."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
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
