"""The files of modules and packages, and versions by their contents.

Each file is looked at once, until ``look_again``.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from esbench.core.user_code import find_own
from esbench.store.origin import DIGITS

OWN_FILES: Final = "sha256:"  # begins the version of own files, which are not installed
_MODULES: Final = frozenset({".py", ".so", ".pyd"})  # suffixes


def place_of(module: str) -> tuple[str, Path] | None:
    """The module, or the package that it belongs to, and its file; None if it has none."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        with contextlib.suppress(ImportError):  # a namespace package, or not found
            return name, source_of(name)
    return None


@cache  # only what is found: the rest may lie where user code will add a folder to ``sys.path``
def source_of(name: str) -> Path:
    """The file of a module or regular package; ImportError if it has none."""
    file: str | None = None
    if loaded := sys.modules.get(name):
        file = getattr(loaded, "__file__", None)
    else:
        with contextlib.suppress(ValueError):
            spec = find_own(name)
            file = spec.origin if spec is not None and spec.has_location else None
    if file is None or not Path(file).is_file():
        raise ImportError(name)
    return Path(file).resolve()


@cache
def files_of(path: Path, without: frozenset[str] = frozenset()) -> list[Path]:
    """A module's file, or the files of all modules of a package, sorted."""
    if path.name != "__init__.py":
        return [path]
    folder = path.parent
    found = (each for each in folder.rglob("*") if each.suffix in _MODULES and each.is_file())
    return sorted(each for each in found if each.relative_to(folder).parts[0] not in without)


def version_of(path: Path, without: frozenset[str] = frozenset()) -> str:
    """The version of a module's file, or of all modules of a package but those of some folders."""
    return _digest_of(path, tuple((each, written(each)) for each in files_of(path, without)))


def file_version(file: Path) -> str:
    """The version of one file, whatever it belongs to."""
    return _digest_of(file, ((file, written(file)),))


@lru_cache(maxsize=10_000)
def _digest_of(path: Path, files: tuple[tuple[Path, object], ...]) -> str:
    digest = hashlib.sha256()
    try:
        for each, _ in files:
            content = each.read_bytes()
            name = each.relative_to(path.parent).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError as error:
        return f"not readable ({error.strerror})"
    return f"{OWN_FILES}{digest.hexdigest()[:DIGITS]}"


@cache
def written(file: Path) -> tuple[int, int] | None:
    """The time of the last change of a file and its size, which stand for its content."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def look_again() -> None:
    """Forget which files there are, and their times. Contents are read again if these differ."""
    for found in (source_of, files_of, written):
        found.cache_clear()
