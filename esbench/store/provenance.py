"""Records what a result depends on besides its specification, and compares it with another one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, final

from pydantic import Field

from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import EsbenchError
from esbench.core.escape import printable, without_passwords
from esbench.core.json_text import Json
from esbench.core.processor import arithmetic, cpu_info
from esbench.core.registry import DISTRIBUTION, Registry
from esbench.core.settings import Settings, Table, parse
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS
from esbench.environments.specifications import module_of
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.policy import POLICIES

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
        for package, used in (_versions_of(part) | user_code_of(part)).items():
            if used and package not in NO_DIGEST_DEPENDS_ON:
                found.setdefault(package, {})[str(used)] = None
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


def _other_processor(first: Json, part: Json) -> bool:
    before, after = (Origin(hardware=each.get("hardware") or {}) for each in (first, part))
    return bool(after.hardware and changes(before, after))


def _machine(origin: Origin) -> dict[str, str]:
    """What bits depend on besides packages: any processor of the baseline is the same."""
    arithmetic = origin.hardware.get("arithmetic")
    cpu, platform = (str(origin.hardware.get(key, "")) for key in ("cpu", "platform"))
    library = platform.partition("-with-")[2]  # without the kernel
    own = arithmetic if isinstance(arithmetic, dict) else {"processor": cpu}
    return {"C library": library, **{name: str(value) for name, value in own.items()}}


PACKAGES: Final = (
    *("torch", "gymnasium", "mujoco", "ale-py", "numpy", "scipy"),
    *("cmaes", "evotorch", "evosax", "jax", "safetensors"),
)
_DIGITS: Final = 12
OWN_FILES: Final = "sha256:"  # begins the version of own files, which are not installed
_ALWAYS_RECORDED: Final = frozenset({"", "esbench", "gymnasium", "ale_py", "evotorch", "evosax"})
_VECTOR_INSTRUCTIONS: Final = re.compile(r"sse4|fma|avx|amx|bmi")


def provenance(spec: TrialSpec | None = None) -> dict[str, Any]:
    """Versions, git commit, hardware and command of this process, and a trial's own code."""
    return {
        "versions": {
            "python": platform.python_version(),
            "esbench": _package_version(DISTRIBUTION),
            **{name: _package_version(name) for name in PACKAGES},
        },
        "own_code": {} if spec is None else user_code(spec),
        "git_commit": _git_commit(),
        "hardware": {
            "machine": platform.machine(),
            "cpu": cpu_info("model name") or platform.processor(),
            # Libraries choose their code by these. Rented machines with one name differ in them.
            "instructions": " ".join(
                sorted(filter(_VECTOR_INSTRUCTIONS.match, cpu_info("flags").split()))
            ),
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            **({"arithmetic": found} if (found := arithmetic()) else {}),
        },
        "command": command(),
    }


def command() -> str:
    """The command line that started this process, without passwords."""
    return printable(shlex.join(map(without_passwords, [*_program(), *sys.argv[1:]])))


def _program() -> list[str]:
    """How this program was started: a command, ``python -m MODULE`` or ``python FILE.py``."""
    path = sys.argv[0]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and path == spec.origin:  # only after python -m
        return ["python", "-m", spec.name.removesuffix(".__main__")]
    if path in {"", "-c"}:
        return ["python", path] if path else ["python"]
    name = Path(path).name
    if name == "__main__.py":  # in a process that multiprocessing has started
        return ["python", "-m", _package_name(Path(path).parent)]
    return ["python", name] if name.endswith(".py") else [name]


def _package_name(folder: Path) -> str:
    """The import name of a package in a folder."""
    above = folder.parent
    own = folder.name
    return f"{_package_name(above)}.{own}" if (above / "__init__.py").exists() else own


def _package_version(package: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def _git_commit() -> str | None:
    """The commit of the checkout that esbench runs from, as ``commit_of``."""
    folder = Path(__file__).resolve().parents[2]
    return commit_of(folder, ("esbench", "envs"))[0] if (folder / ".git").exists() else None


def commit_of(folder: Path, own: Sequence[str] = ()) -> tuple[str | None, str | None]:
    """The commit of the checkout that a folder is in, and its date.

    The commit ends with "+" if files have changed, or files are new in the folders ``own``.
    """
    try:
        commit, date = _git(folder, "show", "-s", "--format=%H %cI", "HEAD").split()
        changed = _git(folder, "status", "--porcelain", "-uno")
        new = own and _git(folder, "ls-files", "--others", "--exclude-standard", "--", *own)
        return commit + ("+" if changed or new else ""), date
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()


def user_code(spec: TrialSpec) -> dict[str, str]:
    """The version of each package of a trial besides those that are always recorded.

    An installed package has its version; the user's own files have "sha256:" and the start of the
    digest of the module, or of all Python files of the package. Code that cannot be found is left
    out.

    Call it after the environment was made, so that its name is registered. Files are read once per
    process, because a process keeps using the code that it has imported.
    """
    found: dict[str, str] = {}
    for module in dict.fromkeys(_modules(spec)):
        if module.partition(".")[0] not in _ALWAYS_RECORDED:
            found |= _versions(module)
    return dict(sorted(found.items()))


def changed_since(description: Json) -> list[str]:
    """The names of the user code in a ``trial.json`` that has changed; it need not exist here."""
    changed: list[str] = []
    for name, before in all_own_code(description):
        here = code_here({name: before})[name]
        if here not in {None, before} and name not in changed:
            changed.append(name)
    return changed


def code_here(code: Mapping[str, str]) -> dict[str, str | None]:
    """The versions that user code, as ``user_code`` returns it, has here; None if it is missing."""
    return {
        name: _versions(name).get(name) if there.startswith(OWN_FILES) else _package_version(name)
        for name, there in code.items()
    }


def importable_code(specs: Iterable[TrialSpec]) -> dict[str, str]:
    """The ``user_code`` of trials that other machines can import: all but that of the script."""
    found = {name: code for spec in specs for name, code in user_code(spec).items()}
    found.pop("__main__", None)
    return found


@cache
def _versions(module: str) -> dict[str, str]:
    """The version of the package that a module belongs to, by the name of the package."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        path = _source(name)
        if path is None:  # a namespace package, or not found
            continue
        if any(path.is_relative_to(folder) for folder in _installed()):
            return {each: version(each) for each in _distributions().get(parts[0], [])}
        return {name: _digest(path)}
    return {}


def _modules(spec: TrialSpec) -> Iterator[str]:
    """The modules that a specification names, or that define what it names."""
    yield spec.environment.id.rpartition(":")[0]
    module = module_of(spec.environment.id)
    yield module
    if module.startswith("gymnasium.envs.box2d"):
        yield "Box2D"  # the simulator
    for text in (
        spec.environment.behavior,
        *(each.wrapper for each in spec.environment.wrappers),
        spec.algorithm.name,
        getattr(spec.algorithm.settings, "optimizer", ""),
        getattr(spec.policy.settings, "factory", "") if spec.policy else "",
    ):
        yield str(text).rpartition(":")[0]
    named: list[tuple[Registry[Any], str]] = [
        (ALGORITHMS, spec.algorithm.name),
        (AGENTS, spec.algorithm.name),
        (POLICIES, spec.policy.template if spec.policy else ""),
        (BEHAVIORS, spec.environment.behavior),
        (BACKENDS, spec.environment.backend),
    ]
    for registry, name in named:
        with contextlib.suppress(EsbenchError):  # not registered: "auto" or "package.file:Class"
            yield registry.get(name).__module__


def _source(name: str) -> Path | None:
    """The file of a module or regular package; None if it has none."""
    file: str | None = None
    if loaded := sys.modules.get(name):
        file = getattr(loaded, "__file__", None)
    else:
        with contextlib.suppress(ImportError, ValueError):
            spec = find_spec(name)
            file = spec.origin if spec is not None and spec.has_location else None
    return Path(file).resolve() if file is not None and Path(file).is_file() else None


def _installed() -> set[Path]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("purelib", "platlib", "stdlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return {Path(folder).resolve() for folder in folders}


@lru_cache(maxsize=1)  # slow
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@cache
def _digest(path: Path) -> str:
    """The version of a module's file, or of all Python files of a package."""
    digest, files = hashlib.sha256(), [path]
    if path.name == "__init__.py":
        files = sorted(each for each in path.parent.rglob("*.py") if each.is_file())
    try:
        for each in files:
            content = each.read_bytes()
            name = each.relative_to(path.parent).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError as error:
        return f"not readable ({error.strerror})"
    return f"{OWN_FILES}{digest.hexdigest()[:_DIGITS]}"


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
