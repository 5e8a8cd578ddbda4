"""The user's own code that a trial runs: its version, and whether it has changed."""

from __future__ import annotations

import contextlib
import hashlib
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from esbench.algorithms.base import ALGORITHMS
from esbench.environments.backends.base import BACKENDS
from esbench.environments.behaviors.base import BEHAVIORS
from esbench.environments.make import module_of
from esbench.errors import EsbenchError
from esbench.files import Json
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.base import POLICIES
from esbench.registry import Registry
from esbench.store.provenance.changes import all_own_code

_DIGITS: Final = 12
_SHA256: Final = "sha256:"
_ALWAYS_RECORDED: Final = frozenset({"", "esbench", "gymnasium", "ale_py", "evotorch", "evosax"})


@final
class _Source(NamedTuple):
    """The Python files of a module or package, below a folder."""

    folder: Path
    files: tuple[Path, ...]


def own_code(spec: TrialSpec) -> dict[str, str]:
    """The version of each package of a trial besides those that are always recorded.

    These are the packages of the environment, policy, behavior, backend and algorithm. An installed
    package has its version; the user's own files have "sha256:" and the start of the digest of the
    module, or of all Python files of the package. Code that cannot be found is left out.

    Call it after the environment was made, so that its name is registered. Files are read once per
    process, because a process keeps using the code that it has imported.
    """
    found: dict[str, str] = {}
    for module in dict.fromkeys(_modules(spec)):
        if module.partition(".")[0] not in _ALWAYS_RECORDED:
            found |= _versions(module)
    return dict(sorted(found.items()))


def changed_since(description: Json) -> list[str]:
    """The names of the own code in a ``trial.json`` that is not the same here and now.

    Nothing needs to be registered for it. Code that cannot be found is left out.
    """
    changed = [
        name
        for name, before in all_own_code(description)
        if (here := _version_here(name, before)) is not None and here != before
    ]
    return list(dict.fromkeys(changed))


def _version_here(name: str, before: str) -> str | None:
    if before.startswith(_SHA256):
        return _versions(name).get(name)
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return None


@cache
def _versions(module: str) -> dict[str, str]:
    """The version of the package that a module belongs to, by the name of the package."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        source = _source(name)
        if source is None:  # a namespace package, or not found
            continue
        if any(source.folder.is_relative_to(folder) for folder in _installed()):
            return {each: version(each) for each in _distributions().get(parts[0], [])}
        return {name: _digest(source)}
    return {}


def _modules(spec: TrialSpec) -> Iterator[str]:
    """The modules that a specification names, or that define what it names."""
    package, _, name = spec.environment.id.rpartition(":")
    yield package
    yield module_of(name)
    for text in (spec.environment.behavior, str(getattr(spec.policy.settings, "factory", ""))):
        yield text.rpartition(":")[0]
    named: list[tuple[Registry[Any], str]] = [
        (ALGORITHMS, spec.algorithm.name),
        (POLICIES, spec.policy.template),
        (BEHAVIORS, spec.environment.behavior),
        (BACKENDS, spec.environment.backend),
    ]
    for registry, name in named:
        with contextlib.suppress(EsbenchError):  # not registered: "auto" or "package.file:Class"
            yield registry.get(name).__module__


def _source(name: str) -> _Source | None:
    """The files of a module or regular package; None if it has none."""
    file: str | None
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
    else:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            return None
        file = spec.origin if spec is not None and spec.has_location else None
    if file is None or not Path(file).is_file():
        return None
    path = Path(file).resolve()
    if path.name != "__init__.py":
        return _Source(path.parent, (path,))
    files = sorted(each for each in path.parent.rglob("*.py") if each.is_file())
    return _Source(path.parent, tuple(files))


def _installed() -> set[Path]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("purelib", "platlib", "stdlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return {Path(folder).resolve() for folder in folders}


@lru_cache(maxsize=1)  # slow
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@cache  # by content, so that all names of one package agree
def _digest(source: _Source) -> str:
    digest = hashlib.sha256()
    try:
        for path in source.files:
            content = path.read_bytes()
            name = path.relative_to(source.folder).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError as error:
        return f"not readable ({error.strerror})"
    return f"{_SHA256}{digest.hexdigest()[:_DIGITS]}"
