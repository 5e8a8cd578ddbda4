"""Versions of installed packages."""

from __future__ import annotations

import contextlib
import site
import sysconfig
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path


@cache
def package_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def is_installed(path: Path) -> bool:
    """Whether the version of a package says what is in the file."""
    folder = next((each for each in _installed() if path.is_relative_to(each)), None)
    return folder is not None and path.relative_to(folder).parts[0] not in _of_checkouts(folder)


@cache
def _of_checkouts(folder: Path) -> frozenset[str]:
    """The names in site-packages that pip has copied from a folder, whose version may stay."""
    found: set[str] = set()
    for source in folder.glob("*.dist-info/direct_url.json"):
        with contextlib.suppress(OSError, ValueError):
            if '"dir_info"' in source.read_text(encoding="utf-8"):
                record = source.with_name("RECORD").read_text(encoding="utf-8")
                found.update(line.split("/")[0].split(",")[0] for line in record.splitlines())
    return frozenset(found)


@cache
def _installed() -> set[Path]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("purelib", "platlib", "stdlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return {Path(folder).resolve() for folder in folders}


@lru_cache(maxsize=1)  # slow
def distributions() -> dict[str, list[str]]:
    """The installed packages by the modules and packages that they provide."""
    return dict(packages_distributions())
