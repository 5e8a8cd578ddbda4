"""The code besides esbench's that a trial runs: whose it is, and whether it has changed."""

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
from typing import Any, Final, NamedTuple

from esbench.algorithms.base import ALGORITHMS
from esbench.environments.backends.base import BACKENDS
from esbench.environments.behaviors.base import BEHAVIORS
from esbench.environments.make import module_of
from esbench.errors import EsbenchError
from esbench.files import Json
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.base import POLICIES
from esbench.registry import Registry
from esbench.store.origins import all_own_code

_DIGITS: Final = 12
_SHA256: Final = "sha256:"
# Their versions are recorded whatever is trained.
_KNOWN: Final = frozenset({"", "esbench", "gymnasium", "ale_py", "evotorch", "evosax"})


class _Source(NamedTuple):
    """Where a module or package lies: its Python files, below a folder."""

    folder: Path
    files: tuple[Path, ...]


def own_code(spec: TrialSpec) -> dict[str, str]:
    """Return the version of each package that a trial needs besides those that are always recorded.

    Of the environment, policy, behaviour, backend and algorithm. If it is installed, that is the
    package's version; of a person's own files, "sha256:" and the start of the digest of the module,
    or of all Python files of the package. What cannot be found is left out: this is a record, and
    stops no trial.

    To be called once the environment was made, so that its name is registered. Files are looked at
    once a process: a process goes on with what it has imported, whatever is edited meanwhile.
    """
    found: dict[str, str] = {}
    for module in dict.fromkeys(_modules(spec)):
        if module.partition(".")[0] not in _KNOWN:
            found |= _versions(module)
    return dict(sorted(found.items()))


def changed_since(description: Json) -> list[str]:
    """Return the names of the own code that is another here and now than in any part of a trial.

    Of what its ``trial.json`` has recorded, so that nothing need be registered. What cannot be
    found is left out.
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
    """Return the version of the package that a module belongs to, by the package's name."""
    for name in _prefixes(module):
        source = _source(name)
        if source is None:  # a folder of packages; or nothing
            continue
        if any(source.folder.is_relative_to(folder) for folder in _installed()):
            return {each: version(each) for each in _distributions().get(name.split(".")[0], [])}
        return {name: _digest(source)}
    return {}


def _modules(spec: TrialSpec) -> Iterator[str]:
    """Yield the modules that a specification names, or that hold what it names."""
    package, _, name = spec.environment.id.rpartition(":")
    yield package
    yield module_of(name)
    for text in (spec.environment.behavior, str(spec.policy.settings.get("factory", ""))):
        yield text.rpartition(":")[0]
    named: list[tuple[Registry[Any], str]] = [
        (ALGORITHMS, spec.algorithm.name),
        (POLICIES, spec.policy.template),
        (BEHAVIORS, spec.environment.behavior),
        (BACKENDS, spec.environment.backend),
    ]
    for registry, name in named:
        try:
            yield registry.get(name).__module__
        except EsbenchError:  # named by its module, or a plugin that is not here
            continue


def _prefixes(module: str) -> Iterator[str]:
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _source(name: str) -> _Source | None:
    """Return where a module or regular package lies; None if it is neither, or without files."""
    file: str | None
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)  # what is built in has none
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


@lru_cache(maxsize=1)  # a quarter of a second
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@cache  # apart from the modules' names, so that ``changed_since`` sees what ``own_code`` has seen
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
