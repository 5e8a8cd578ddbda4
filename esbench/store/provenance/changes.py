"""Compares what trials were made with: package versions, hardware, commit and the user's code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, final

from pydantic import Field

from esbench.core.json_text import Json
from esbench.core.settings import Settings, Table, parse

NO_DIGEST_DEPENDS_ON: Final = frozenset({"esbench", "scipy", "safetensors"})


@final
class Origin(Settings):
    """What trials were made with."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    hardware: Table = Field(default_factory=dict)
    git_commit: str | None = None
    own_code: Annotated[Table, Field(exclude_if=lambda code: not code)] = Field(
        default_factory=dict
    )


def origin_of(description: Json) -> Origin:
    """What a trial was begun with, from its ``trial.json``."""
    values = {key: description[key] for key in Origin.model_fields if description.get(key)}
    return parse(Origin, values, "trial.json")


def place_in(origins: list[Origin], origin: Origin) -> int:
    """The index of an origin, which is appended if the list lacks it."""
    if origin not in origins:
        origins.append(origin)
    return origins.index(origin)


def was_mixed(description: Json) -> bool:
    """Whether a trial was resumed under other versions or hardware, or played by mixed nodes."""
    if description.get("mixed"):
        return True
    first, *resumed = _parts(description)
    return any(
        part.get("versions") != first.get("versions")
        or changed_code(first, user_code_of(part))
        or _other_processor(first, part)
        for part in resumed
    )


def mixture(descriptions: Sequence[Json]) -> list[str]:
    """One phrase per package with several versions among the trials: "numpy 2.3 and 2.4".

    The user's own code counts as a package. Packages that no digest depends on are left out.
    """
    found: dict[str, dict[str, None]] = {}
    for part in (part for description in descriptions for part in _parts(description)):
        for package, version in (_table(part, "versions") | user_code_of(part)).items():
            if version and package not in NO_DIGEST_DEPENDS_ON:
                found.setdefault(package, {})[str(version)] = None
    several = {package: versions for package, versions in found.items() if len(versions) > 1}
    return [f"{package} {' and '.join(versions)}" for package, versions in several.items()]


def changes(before: Origin, here: Origin) -> list[str]:
    """One phrase per change that may change digests although esbench is the same.

    Packages that only one side has are left out, since no trial that ran on the other needs them.
    """
    phrases = [
        f"{package} {theirs} then, {mine} now"
        for package, theirs in before.versions.items()
        if package not in NO_DIGEST_DEPENDS_ON
        and theirs
        and (mine := here.versions.get(package))
        and theirs != mine
    ]
    for what, then in _machine(before).items():
        if then != (now := _machine(here)[what]):
            phrases.append(f"{what} {then or '?'} then, {now or '?'} now")
    had, has = (set(str(o.hardware.get("instructions", "")).split()) for o in (before, here))
    if had and has and had != has:
        phrases.append(f"processor with other instructions ({' '.join(sorted(had ^ has))})")
    return phrases


def user_code_of(description: Json) -> dict[str, Any]:
    """The versions of user code in ``trial.json``.

    They explain a difference but do not excuse it: a change in the user's algorithm or environment
    is what the gate must detect.
    """
    return _table(description, "own_code")


def changed_code(description: Json, here: dict[str, Any]) -> list[str]:
    """One phrase per part of user code that is not the same here."""
    return [
        f"{name} {then} then, {here[name]} now"
        for name, then in user_code_of(description).items()
        if here.get(name, then) != then
    ]


def all_own_code(description: Json) -> list[tuple[str, str]]:
    """The user code that a trial was begun and resumed with, without what ``changes`` compares."""
    every = _table(description, "versions")
    return [
        (name, str(version))
        for part in _parts(description)
        for name, version in user_code_of(part).items()
        if name not in every
    ]


def _parts(description: Json) -> list[Json]:
    """The records of a trial's begin and of every time it was resumed."""
    resumed = description.get("resumed_with") or []
    return [description, *(part for part in resumed if isinstance(part, dict))]


def _table(description: Json, key: str) -> dict[str, Any]:
    found = description.get(key)
    return found if isinstance(found, dict) else {}


def _other_processor(first: Json, part: Json) -> bool:
    before, after = (Origin(hardware=_table(each, "hardware")) for each in (first, part))
    return bool(after.hardware and changes(before, after))


def _machine(origin: Origin) -> dict[str, str]:
    cpu, platform = (str(origin.hardware.get(key, "")) for key in ("cpu", "platform"))
    return {"processor": cpu, "C library": platform.partition("-with-")[2]}  # without the kernel
