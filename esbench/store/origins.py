"""What trials were made with, and what of it is no longer the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field

from esbench.files import Json
from esbench.settings import Settings, Table, parse

NO_DIGEST_DEPENDS_ON: Final = frozenset({"esbench", "scipy", "safetensors"})


class Origin(Settings):
    """What trials were made with: package versions, hardware and commit."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    hardware: Table = Field(default_factory=dict)
    git_commit: str | None = None


def origin_of(description: Json) -> Origin:
    """Return what a trial was begun with, from its ``trial.json``.

    Raises:
        UsageError: it is not what esbench writes there.
    """
    values = {
        "versions": description.get("versions") or {},
        "hardware": description.get("hardware") or {},
        "git_commit": description.get("git_commit"),
    }
    return parse(Origin, values, "trial.json")


def was_mixed(description: Json) -> bool:
    """Tell whether a trial was resumed under other versions than it began with."""
    first, *resumed = _parts(description)
    return any(
        part.get("versions") != first.get("versions") or changed_code(first, own_code_of(part))
        for part in resumed
    )


def mixture(descriptions: Sequence[Json]) -> list[str]:
    """Return a phrase for each package of which trials have several versions: "numpy 2.3 and 2.4".

    A person's own code is a package too. Those that no digest depends on are left out.
    """
    found: dict[str, dict[str, None]] = {}
    for part in (part for description in descriptions for part in _parts(description)):
        for package, version in (_table(part, "versions") | own_code_of(part)).items():
            if version and package not in NO_DIGEST_DEPENDS_ON:
                found.setdefault(package, {})[str(version)] = None
    several = {package: versions for package, versions in found.items() if len(versions) > 1}
    return [f"{package} {' and '.join(versions)}" for package, versions in several.items()]


def own_code_of(description: Json) -> dict[str, Any]:
    """Return the versions of the code that is neither esbench's nor what it stands on.

    They explain a difference; they are no excuse for one: what a person changes in an algorithm or
    an environment of their own is what the gate is there to see.
    """
    return _table(description, "own_code")


def changed_code(description: Json, here: dict[str, Any]) -> list[str]:
    """Return a phrase for each part of a person's own code that is another one now."""
    before = own_code_of(description)
    return [
        f"{name} {before[name]} then, {here[name]} now"
        for name in before
        if name in here and before[name] != here[name]
    ]


def all_own_code(description: Json) -> list[tuple[str, str]]:
    """Return names and versions of the own code that a trial was begun and resumed with.

    But for packages whose versions are recorded whatever is trained: ``changes`` compares them.
    """
    every = _table(description, "versions")
    return [
        (name, str(version))
        for part in _parts(description)
        for name, version in own_code_of(part).items()
        if name not in every
    ]


def _parts(description: Json) -> list[Json]:
    """Return what a trial was begun and resumed with."""
    resumed = description.get("resumed_with") or []
    return [description, *(part for part in resumed if isinstance(part, dict))]


def _table(description: Json, key: str) -> dict[str, Any]:
    found = description.get(key)
    return found if isinstance(found, dict) else {}


def changes(before: Origin, here: Origin) -> list[str]:
    """Return a phrase for all that lets digests differ although esbench does not: the contract.

    Packages that only one side has are left out: no trial that ran on the other needs them.
    """
    phrases = [
        f"{package} {theirs} then, {mine} now"
        for package, theirs in before.versions.items()
        if package not in NO_DIGEST_DEPENDS_ON
        and theirs
        and (mine := here.versions.get(package))
        and theirs != mine
    ]
    for what, of in (("processor", _processor), ("C library", _c_library)):
        if of(before) != of(here):
            phrases.append(f"{what} {of(before) or '?'} then, {of(here) or '?'} now")
    had, has = (set(str(o.hardware.get("instructions", "")).split()) for o in (before, here))
    if had and has and had != has:
        phrases.append(f"processor with other instructions ({' '.join(sorted(had ^ has))})")
    return phrases


def _processor(origin: Origin) -> str:
    return str(origin.hardware.get("cpu", ""))


def _c_library(origin: Origin) -> str:
    """Return what follows "-with-" in the platform's name; the kernel before it does not matter."""
    return str(origin.hardware.get("platform", "")).partition("-with-")[2]
