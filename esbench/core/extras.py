"""The extras of esbench and of plugins, and the commands that install them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "esbench-rl"  # "esbench" on the package index is another project
# Modules whose package has another name, or comes with an extra of Gymnasium.
_PACKAGES: Final = {"Box2D": "gymnasium[box2d]", "pygame": "gymnasium[classic-control]"}
_COLLECTIONS: Final = frozenset({"test", "docs"})  # extras for developers hold all others
_CHECKOUT: Final = Path(__file__).resolve().parents[2]


def extra_of(module: str, owner: str = DISTRIBUTION) -> str | None:
    """The extra of a distribution that installs a module; None if there is none, or no owner."""
    wanted = _normalized(_PACKAGES.get(module, module))
    try:
        found = distribution(owner).metadata
    except PackageNotFoundError:
        return None
    for requirement in found.get_all("Requires-Dist", []):
        name, _, marker = requirement.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        package = re.match(r"[\w.-]+(\[[\w.,-]+\])?", name.strip())
        if extra and package and extra[1] not in _COLLECTIONS and _normalized(package[0]) == wanted:
            return extra[1]
    extras: list[str] = found.get_all("Provides-Extra", [])
    return next((each for each in extras if _normalized(each) == wanted), None)


def install_command(extra: str, owner: str = DISTRIBUTION) -> str:
    """The command that adds an extra to a distribution as it is installed here.

    An editable checkout stays editable, and esbench keeps the versions of its constraints.
    """
    place, is_editable = _place(owner)
    if place is None:
        return f"{_pip()} install {shlex.quote(f'{owner}[{extra}]')}"
    if isinstance(place, str):
        return f"{_pip()} install {shlex.quote(f'{owner}[{extra}] @ {place}')}"
    folder = "." if place == Path.cwd() else str(place)
    constraints = place / "constraints.txt"
    words = [_pip(), "install"]
    if constraints.is_file():
        words += ["-c", shlex.quote("constraints.txt" if folder == "." else str(constraints))]
    return " ".join([*words, *["-e"] * is_editable, shlex.quote(f"{folder}[{extra}]")])


def _place(owner: str) -> tuple[Path | str | None, bool]:
    """The folder or the address that a distribution is from, None of an index; whether editable."""
    try:
        text = distribution(owner).read_text("direct_url.json")
    except PackageNotFoundError:  # its folder is on the path
        return (_CHECKOUT, True) if owner == DISTRIBUTION else (None, False)
    if text is None:
        return None, False
    origin = json.loads(text)
    address = urlsplit(origin["url"])
    if "dir_info" in origin and address.scheme == "file":
        return Path(unquote(address.path)), bool(origin["dir_info"].get("editable"))
    return str(origin["url"]), False


def _pip() -> str:
    """The pip of this Python, as a shell finds it."""
    own = Path(sys.prefix) / "bin" / "pip"
    if not own.exists():
        return "uv pip" if shutil.which("uv") else "pip"
    if shutil.which("pip") == str(own):
        return "pip"
    short = os.path.relpath(own)
    return shlex.quote(str(own) if short.startswith("..") else short)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
