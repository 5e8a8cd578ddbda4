"""What trials were made with, and what of it is no longer the same."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from esbench.files import Json
from esbench.settings import Settings, Table

NO_DIGEST_DEPENDS_ON: Final = frozenset({"esbench", "scipy", "safetensors"})


class Origin(Settings):
    """What trials were made with: package versions, hardware and commit."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    hardware: Table = Field(default_factory=dict)
    git_commit: str | None = None


def origin_of(description: Json) -> Origin:
    """Return what a trial was made with, from its ``trial.json``; resumed, what it ended with."""
    latest = (description.get("resumed_with") or [description])[-1]
    return Origin(
        versions=latest.get("versions") or {},
        hardware=description.get("hardware") or {},
        git_commit=description.get("git_commit"),
    )


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
    then, now = before.hardware.get("cpu"), here.hardware.get("cpu")
    if then != now:
        phrases.append(f"processor {then} then, {now} now")
    had, has = (set(o.hardware.get("instructions", "").split()) for o in (before, here))
    if had and has and had != has:
        phrases.append(f"processor with other instructions ({' '.join(sorted(had ^ has))})")
    return phrases
