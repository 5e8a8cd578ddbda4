"""The code besides esbench's that a trial runs: whose it is, and whether it has changed."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import gymnasium

from esbench.errors import EsbenchError
from esbench.registry import ALGORITHMS
from esbench.spec import TrialSpec

_DIGITS: Final = 12
# Their versions are recorded whatever is trained.
_KNOWN: Final = frozenset({"esbench", "gymnasium", "ale_py", "evotorch", "evosax"})


def own_code(spec: TrialSpec) -> dict[str, str]:
    """Return the version of the environment's, policy's, behaviour's and algorithm's packages.

    Of what is installed that is the package's version; of a person's own files, "sha256:" and the
    start of the digest of the module, or of all Python files of the package, that they lie in.
    What cannot be found is left out: to make it will say so.
    """
    found: dict[str, str] = {}
    for name in {module.partition(".")[0] for module in _modules(spec)} - _KNOWN:
        files = _files(name)
        if not files:
            continue
        if any(files[0].is_relative_to(folder) for folder in _installed()):
            for distribution in packages_distributions().get(name, []):
                found[distribution] = version(distribution)
        else:
            found[name] = f"sha256:{_digest(files)}"
    return dict(sorted(found.items()))


def _modules(spec: TrialSpec) -> Iterator[str]:
    """Yield the modules that a specification names, or that register what it names."""
    package, _, name = spec.environment.id.rpartition(":")
    yield package
    registered = gymnasium.registry.get(name)
    entry = None if registered is None else registered.entry_point
    if entry is not None:
        yield entry.partition(":")[0] if isinstance(entry, str) else entry.__module__
    for text in (spec.environment.behavior, str(spec.policy.settings.get("factory", ""))):
        yield text.rpartition(":")[0]
    try:
        yield ALGORITHMS.get(spec.algorithm.name).__module__
    except EsbenchError:
        return  # a plugin that is not here


def _files(name: str) -> list[Path]:
    """Return the file of a module, or the Python files of a package."""
    spec = find_spec(name) if name else None
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        folders = sorted(map(Path, spec.submodule_search_locations))
        return [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(paths[name]).resolve() for name in ("purelib", "platlib", "stdlib")]


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:_DIGITS]
