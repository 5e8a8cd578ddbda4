"""What trials were made with besides their specification, and how that of several differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, final

from pydantic import AfterValidator, Field

from esbench.core.json_text import Json
from esbench.core.settings import Settings, Table, parse

DIGITS: Final = 12  # of digests and commits
COMMIT: Final = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})\+?\Z"  # of Git; "+" if files had changed
COMMIT_FORM: Final = "a commit of 40 hexadecimal digits, with + if files had changed"
CODE: Final = "esbench code"  # the version of the files of esbench that training imports
ITSELF: Final = frozenset({"esbench", CODE})  # a gate judges what has changed in it
NO_DIGEST_DEPENDS_ON: Final = frozenset({"scipy", "safetensors"})


def checked_commit(text: str) -> str:
    """A commit that a file names; ValueError for other text, which pages would show."""
    if not re.match(COMMIT, text):
        raise ValueError(f"expected {COMMIT_FORM}")
    return text


@final
class Origin(Settings):
    """What trials were made with."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    hardware: Table = Field(default_factory=dict)
    git_commit: Annotated[str, AfterValidator(checked_commit)] | None = None
    own_code: Annotated[Table, Field(exclude_if=lambda code: not code)] = Field(
        default_factory=dict
    )


def origin_of(description: Json, source: str = "trial.json") -> Origin:
    """What a trial was begun with, from its ``trial.json`` or another source."""
    values = {key: description[key] for key in Origin.model_fields if description.get(key)}
    return parse(Origin, values, source)


def place_in(origins: list[Origin], origin: Origin) -> int:
    """The index of an origin, which is appended if the list lacks it."""
    if origin not in origins:
        origins.append(origin)
    return origins.index(origin)


def differences_within(description: Json) -> list[str]:
    """How the parts of a trial differ: code, versions, processors, or nodes that played together.

    One phrase for each difference, so empty for a trial whose digests can be compared.
    """
    first, *resumed = _parts(description)
    origins = [Origin(hardware=part.get("hardware") or {}) for part in (first, *resumed)]
    moved = [
        phrase for each in origins[1:] if each.hardware for phrase in changes(origins[0], each)
    ]
    nodes = ["nodes that differ"] * bool(description.get("mixed"))
    return list(dict.fromkeys([*map(" ".join, mixture([description]).items()), *moved, *nodes]))


def mixture(descriptions: Sequence[Json]) -> dict[str, str]:
    """The versions of each package that has several among the trials: "2.3 and 2.4" for numpy.

    The user's own code counts as a package, and so does the code of esbench: other parts of it, or
    another commit, are no difference. Packages that no digest depends on are left out.
    """
    found: dict[str, dict[str, str]] = {}
    for part in (part for description in descriptions for part in _parts(description)):
        own = _versions_of(part) | user_code_of(part)
        version, commit = own.pop("esbench", None), part.get("git_commit") or ""
        if code := own.pop(CODE, None) or version:  # a version that did not record it is another
            changed = "+" * commit.endswith("+")
            shown = f"{code} (commit {commit[:DIGITS]}{changed})" if commit else code
            found.setdefault("esbench", {}).setdefault(code, shown)
        for package, used in own.items():
            if used and package not in NO_DIGEST_DEPENDS_ON:
                found.setdefault(package, {})[str(used)] = str(used)
    return {name: " and ".join(own.values()) for name, own in found.items() if len(own) > 1}


def is_same_esbench(before: Origin, here: Origin) -> bool:
    """Whether both are known to have the same code of esbench, at least by a clean commit."""
    codes = before.versions.get(CODE), here.versions.get(CODE)
    if all(codes):
        return codes[0] == codes[1]
    commit = here.git_commit or "+"
    return commit == before.git_commit and not commit.endswith("+")


def changes(before: Origin, here: Origin, itself: bool = False) -> list[str]:
    """One phrase per change that may change digests although esbench is the same.

    With ``itself``, a change of the code of esbench is named too. Packages that only one side has
    are left out, since no trial that ran on the other needs them.
    """
    left_out = NO_DIGEST_DEPENDS_ON | (ITSELF - {CODE} if itself else ITSELF)
    phrases = [
        f"{package} {theirs} then, {mine} now"
        for package, theirs in before.versions.items()
        if package not in left_out
        and theirs
        and (mine := here.versions.get(package))
        and theirs != mine
    ]
    then, now = _machine(before), _machine(here)
    phrases += [
        f"{what} {then[what] or '?'} then, {now[what] or '?'} now"
        for what in then
        if what in now and then[what] != now[what]
    ]
    had, has = (set(str(o.hardware.get("instructions", "")).split()) for o in (before, here))
    if "libm" not in then.keys() | now.keys() and had and has and had != has:
        phrases.append(f"processor with other instructions ({' '.join(sorted(had ^ has))})")
    return phrases


def user_code_of(description: Json) -> dict[str, Any]:
    """The versions of user code in ``trial.json``.

    They explain a difference but do not excuse it: a change in the user's algorithm or environment
    is what the gate must detect.
    """
    return description.get("own_code") or {}


def changed_code(description: Json, here: dict[str, Any]) -> list[str]:
    """One phrase per part of user code that is not the same here."""
    return [
        f"{name} {then} then, {here[name]} now"
        for name, then in user_code_of(description).items()
        if here.get(name, then) != then
    ]


def all_own_code(description: Json) -> list[tuple[str, str]]:
    """The user code that a trial was begun and resumed with, without what ``changes`` compares."""
    every = _versions_of(description)
    return [
        (name, str(version))
        for part in _parts(description)
        for name, version in user_code_of(part).items()
        if name not in every
    ]


def _parts(description: Json) -> list[Json]:
    """The records of a trial's begin and of every time it was resumed."""
    return [description, *(description.get("resumed_with") or [])]


def _versions_of(description: Json) -> dict[str, Any]:
    return description.get("versions") or {}


def _machine(origin: Origin) -> dict[str, str]:
    """What bits depend on besides packages: any processor of the baseline is the same."""
    arithmetic = origin.hardware.get("arithmetic")
    cpu, platform = (str(origin.hardware.get(key, "")) for key in ("cpu", "platform"))
    library = platform.partition("-with-")[2]  # without the kernel
    own = arithmetic if isinstance(arithmetic, dict) else {"processor": cpu}
    return {"C library": library, **{name: str(value) for name, value in own.items()}}
