"""Records what a result depends on besides its specification."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Final

from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import EsbenchError, UsageError
from esbench.core.escape import printable, without_passwords
from esbench.core.extras import DISTRIBUTION
from esbench.core.git import commit_of
from esbench.core.json_text import Json
from esbench.core.linux import cpu_info
from esbench.core.processor import arithmetic
from esbench.core.registry import Registry
from esbench.core.user_code import find_own, is_interactive, names_in
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS
from esbench.environments.specifications import module_of, registered, registration
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.policy import POLICIES
from esbench.store.cell_code import CellCode, cell_code, code_of
from esbench.store.imported_names import imported_names
from esbench.store.origin import CODE, DIGITS, all_own_code

PACKAGES: Final = (
    *("torch", "gymnasium", "mujoco", "ale-py", "numpy", "scipy"),
    *("cmaes", "evotorch", "evosax", "jax", "safetensors"),
)
OWN_FILES: Final = "sha256:"  # begins the version of own files, which are not installed
_ITSELF: Final = Path(__file__).resolve().parents[1]
NOT_IN_TRAINING: Final = frozenset({"app", "bench", "cli", "publish", "tuning", "video"})
"""The folders of esbench that training does not import."""
_ALWAYS_RECORDED: Final = frozenset({"", "esbench", "gymnasium", "ale_py", "evotorch", "evosax"})
_MAIN: Final = frozenset({"__main__", "__mp_main__"})
_REGISTERED: Final = "__main__:register("
_NOT_OWN: Final = _ALWAYS_RECORDED | sys.stdlib_module_names
_MODULES: Final = frozenset({".py", ".so", ".pyd"})  # suffixes
_READ: Final[dict[Path, tuple[bytes, ModuleSpec | None]]] = {}
"""The files of user code that were read: a digest, and what their module was imported as."""
_VECTOR_INSTRUCTIONS: Final = re.compile(r"sse4|fma|avx|amx|bmi")


def provenance(spec: TrialSpec | None = None) -> dict[str, Any]:
    """Versions, git commit, hardware and command of this process, and a trial's own code."""
    return {
        "versions": {
            "python": platform.python_version(),
            "esbench": _package_version(DISTRIBUTION),
            CODE: _itself(),
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


@cache
def _package_version(package: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


@cache
def _git_commit() -> str | None:
    """The commit of the checkout that esbench runs from, as ``commit_of``."""
    folder = _ITSELF.parent
    return commit_of(folder, ("esbench", "envs"))[0] if (folder / ".git").exists() else None


def user_code(spec: TrialSpec) -> dict[str, str]:
    """The version of each package of a trial besides those that are always recorded.

    An installed package has its version; the user's own files have "sha256:" and the start of the
    digest of the module, or of all modules of the package. They are those outside site-packages,
    and so those of an editable install, and those that pip has copied from a folder. So has
    whatever they import, at their top or later. Code that cannot be found is left out.

    Call it after the environment was made, so that its name is registered. Files are read once
    between two calls of ``read_again``: an edit during a run does not change what it plays.

    What a notebook defines has names such as "__main__:Class", and what the main module registers
    such as "__main__:register('Point-v0')".
    """
    found: dict[str, str] = {}
    own: dict[str, Path] = {}
    cells = [*_cells(spec)]
    used = [name for each in cells if (code := _cell(each)) for name in code.modules]
    for module in dict.fromkeys(
        (*_modules(spec), *(each for each in used if _root(each) not in _NOT_OWN))
    ):
        if _root(module) not in _ALWAYS_RECORDED:
            found |= _versions(module)
            _add_own(module, own)
    found |= {name: _digest(path) for name, path in own.items()}
    files = [file for path in own.values() for file in _files(path) if file not in _READ]
    imported = _imported(files)
    _READ.update({file: (_content(file), imported.get(file)) for file in files})
    for name in cells:
        found |= _versions(name)
    return dict(sorted(found.items()))


def read_again(specs: Iterable[TrialSpec]) -> None:
    """Read the files of the user code of trials again before they are run by new workers.

    Raises:
        UsageError: one has changed since this process read it, and was not imported again.
    """
    imported = _imported(_READ)
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    for file, (digest, before) in _READ.items():
        here = imported.get(file)
        is_script = file == Path(script).resolve()
        if here and here is before and digest != _content(file) and not is_script:
            raise UsageError(
                f"{file} has changed since this process imported it; expected a new process, which "
                f"is a restart of the kernel in a notebook, or importlib.reload({here.name})"
            )
    _READ.clear()
    for found in (_source, _files, _digest, imported_names):
        found.cache_clear()
    for spec in specs:
        user_code(spec)


def _imported(files: Iterable[Path]) -> dict[Path, ModuleSpec]:
    """What the modules of some files were imported as, which another import makes anew."""
    names = {file.name for file in files}
    found: dict[Path, ModuleSpec] = {}
    for module in [*sys.modules.values()] if names else ():
        file, spec = (getattr(module, key, None) for key in ("__file__", "__spec__"))
        if file and spec and (path := Path(file)).name in names:
            found[path.resolve()] = spec
    return found


def _content(file: Path) -> bytes:
    """A digest of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""


def _add_own(module: str, found: dict[str, Path]) -> None:
    """Add a module or its package, if it is not installed, and all of that kind it imports."""
    todo = {module}
    while todo:
        name, path = _place(todo.pop()) or ("", Path())
        if name and name not in found and not _is_installed(path):
            found[name] = path
            imported = {each for file in _files(path) for each in _imports(name, path, file)}
            todo |= {each for each in imported if _root(each) not in _NOT_OWN}


def _imports(name: str, path: Path, file: Path) -> Iterator[str]:
    """The full names that one file of a module or package imports, which lies at a path."""
    inner = file.relative_to(path.parent).parent.parts
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    if name == "__main__":  # after python -m
        package = sys.modules[name].__package__ or ""
    for each in imported_names(file):
        with contextlib.suppress(ImportError):  # above all packages
            yield resolve_name(each, ".".join((package, *inner)))


def _root(module: str) -> str:
    return module.partition(".")[0]


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
    return {name: code for name, code in found.items() if not is_of_main(name)}


def is_of_main(name: str) -> bool:
    """Whether a name of user code is that of the running script, or of what a notebook defines."""
    return name.partition(":")[0] == "__main__"


def _versions(module: str) -> dict[str, str]:
    """The version of the package that a module belongs to, by the name of the package."""
    if module.startswith("__main__:"):
        code = _cell(module)
        return {module: f"{OWN_FILES}{code.digest[:DIGITS]}"} if code else {}
    name, path = _place(module) or ("", Path())
    if not name:
        return {}
    if _is_installed(path):
        packages = _distributions().get(_root(module), [])
        return {each: found for each in packages if (found := _package_version(each))}
    return {name: _digest(path)}


def _place(module: str) -> tuple[str, Path] | None:
    """The module, or the package that it belongs to, and its file; None if it has none."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        with contextlib.suppress(ImportError):  # a namespace package, or not found
            return name, _source(name)
    return None


def _modules(spec: TrialSpec) -> Iterator[str]:
    """The modules that a specification names, or that define what it names."""
    module = module_of(spec.environment.id)
    yield module
    if module.startswith("gymnasium.envs.box2d"):
        yield "Box2D"  # the simulator
    for name in names_in(spec.as_json()):
        yield name.rpartition(":")[0]
    for cls in _registered(spec):
        yield cls.__module__
    if (found := registration(spec.environment.id)) and found.module not in _MAIN:
        yield found.module


def _cells(spec: TrialSpec) -> Iterator[str]:
    """The names of what a specification uses of the main module."""
    yield from filter(is_of_main, names_in(spec.as_json()))
    found = registration(spec.environment.id)
    for each in (found and found.spec.entry_point, *_registered(spec)):
        if getattr(each, "__module__", "") == "__main__" and isinstance(each, type):
            yield f"__main__:{each.__name__}"
    if found and found.module in _MAIN:
        yield f"{_REGISTERED}{spec.environment.id!r})"


def _cell(name: str) -> CellCode | None:
    """The code of a class of a notebook, or of what the main module registers; None if unknown."""
    if not name.startswith(_REGISTERED):
        return cell_code(name.partition(":")[2]) if is_interactive() else None
    spec = registered(name.removeprefix(_REGISTERED)[1:-2])
    if spec is None:
        return None
    entry = spec.entry_point
    entry = entry.__name__ if isinstance(entry, type) else entry  # its code counts by its name
    return code_of(
        {"register()": (entry, spec.kwargs, spec.max_episode_steps, spec.additional_wrappers)}
    )


def _registered(spec: TrialSpec) -> Iterator[type]:
    """The registered classes that a specification names."""
    named: list[tuple[Registry[Any], str]] = [
        (ALGORITHMS, spec.algorithm.name),
        (AGENTS, spec.algorithm.name),
        (POLICIES, spec.policy.template if spec.policy else ""),
        (BEHAVIORS, spec.environment.behavior),
        (BACKENDS, spec.environment.backend),
    ]
    for registry, name in named:
        with contextlib.suppress(EsbenchError):  # not registered: "auto" or "package.file:Class"
            yield registry.get(name)


@cache  # only what is found: the rest may lie where user code will add a folder to ``sys.path``
def _source(name: str) -> Path:
    """The file of a module or regular package; ImportError if it has none."""
    file: str | None = None
    if loaded := sys.modules.get(name):
        file = getattr(loaded, "__file__", None)
    else:
        with contextlib.suppress(ValueError):
            spec = find_own(name)
            file = spec.origin if spec is not None and spec.has_location else None
    if file is None or not Path(file).is_file():
        raise ImportError(name)
    return Path(file).resolve()


def _is_installed(path: Path) -> bool:
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
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@cache
def _files(path: Path, without: frozenset[str] = frozenset()) -> list[Path]:
    """A module's file, or the files of all modules of a package, sorted."""
    if path.name != "__init__.py":
        return [path]
    folder = path.parent
    found = (each for each in folder.rglob("*") if each.suffix in _MODULES and each.is_file())
    return sorted(each for each in found if each.relative_to(folder).parts[0] not in without)


@cache
def _itself() -> str:
    return _digest(_ITSELF / "__init__.py", without=NOT_IN_TRAINING)


@cache
def _digest(path: Path, without: frozenset[str] = frozenset()) -> str:
    """The version of a module's file, or of all modules of a package but those of some folders."""
    digest = hashlib.sha256()
    try:
        for each in _files(path, without):
            content = each.read_bytes()
            name = each.relative_to(path.parent).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError as error:
        return f"not readable ({error.strerror})"
    return f"{OWN_FILES}{digest.hexdigest()[:DIGITS]}"


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
