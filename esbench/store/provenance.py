"""Records what a result depends on besides its specification."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import os
import platform
import re
import shlex
import site
import sys
import sysconfig
import threading
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
from esbench.core.errors import USER_CODE_ERRORS, EsbenchError, UsageError
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
_LOCK: Final = threading.RLock()  # trainers may run in several threads
_READ: Final[dict[Path, tuple[str, ModuleSpec | None]]] = {}
"""The files of user code that were read: their versions, and what was imported from them."""
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

    Call it after the environment was made, so that its name is registered. Files and cells are read
    once between two calls of ``read_again``: an edit during a run does not change what it plays.

    What a notebook defines has names such as "__main__:Class", and what the main module registers
    such as "__main__:register('Point-v0')".
    """
    with _LOCK:
        cells = _all_cells(spec)
        own = _own_places(spec, cells)
        found: dict[str, str] = {}
        for module in dict.fromkeys(_modules(spec)):
            if _root(module) not in _ALWAYS_RECORDED:
                found |= _versions(module)
        found |= {name: _digest(path) for name, path in own.items()}
        files = {file for path in own.values() for file in _files(path)} - _READ.keys()
        specs = _import_specs(files)
        _READ.update({file: (_version_of(file), specs.get(file)) for file in files})
        for name in cells:
            found |= _versions(name)
        return dict(sorted(found.items()))


def read_again(specs: Iterable[TrialSpec] = ()) -> None:
    """Read the user code of trials again: files before new workers import them, and cells.

    Raises:
        UsageError: this process has read and imported a file of it that was edited since.
    """
    with _LOCK:
        for found in (_source, _files, _written, _cell):
            found.cache_clear()
        edited = _edited_files()
        if not edited:
            _READ.clear()
        alike = {str({**each.as_json(), "seed": None}): each for each in specs}
        for spec in alike.values():
            places = _own_places(spec, _all_cells(spec)).values()
            if stale := edited & {file for path in places for file in _files(path)}:
                raise UsageError(
                    f"{min(stale)}, or a file that it imports, has changed since this process "
                    "imported it, so its workers would use other code; expected a new process, "
                    "which is a restart of the kernel in a notebook"
                )
            user_code(spec)


def _edited_files() -> set[Path]:
    """The files that this process has read and imported, and that were edited since.

    Not those whose module was reloaded, together with what imports objects from it, nor the script.
    """
    specs = _import_specs(_READ)
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "").resolve()
    changed = {file for file, (before, _) in _READ.items() if before != _version_of(file)}
    live = {file: specs[file] for file in changed - {script} if file in specs}
    edited = {file for file, spec in live.items() if _is_old(spec, _READ[file][1] or spec, file)}
    reloaded = tuple(f"{live[file].name}." for file in live.keys() - edited)
    for file, (_, before) in _READ.items():
        if before is not None and _is_old(specs.get(file), before, file):
            package = before.name if before.submodule_search_locations else before.parent
            names = (
                _resolved(each, package or "") for each in imported_names(file, _written(file))
            )
            if any(name.startswith(reloaded) for name in names):
                edited.add(file)
    return edited


def _is_old(here: ModuleSpec | None, before: ModuleSpec, file: Path) -> bool:
    """Whether a module is what was imported before, and not what was reloaded since an edit."""
    return here is before and not _is_autoreloaded(before.name, file)


def _is_autoreloaded(module: str, file: Path) -> bool:
    """Whether IPython's extension autoreload has loaded a module since its file was edited."""
    shell: Any = getattr(builtins, "get_ipython", lambda: None)()
    with contextlib.suppress(AttributeError, KeyError, OSError):
        reloader = shell.magics_manager.registry["AutoreloadMagics"]._reloader
        return bool(reloader.modules_mtimes[module] >= file.stat().st_mtime)
    return False


def _import_specs(files: Iterable[Path]) -> dict[Path, ModuleSpec]:
    """What the modules of some files were imported as, which another import makes anew."""
    names = {file.name for file in files}
    found: dict[Path, ModuleSpec] = {}
    for module in [*sys.modules.values()] if names else ():
        with contextlib.suppress(*USER_CODE_ERRORS):  # anything may stand for a module
            known = object.__getattribute__(module, "__dict__")  # without a late import
            file, spec = known.get("__file__"), known.get("__spec__")
            if spec and (path := Path(file)).name in names:
                found[path.resolve()] = spec
    return found


def _own_places(spec: TrialSpec, cells: Iterable[str]) -> dict[str, Path]:
    """The user's own modules and packages, and their files."""
    found: dict[str, Path] = {}
    for module in dict.fromkeys(_modules(spec)):
        if _root(module) not in _ALWAYS_RECORDED:
            _add_own(module, found)
    for module in {name for each in cells if (code := _cell(each)) for name in code.modules}:
        if _root(module) not in _NOT_OWN:
            _add_own(module, found)
    return found


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
    for each in imported_names(file, _written(file)):
        yield _resolved(each, ".".join((package, *inner)))


def _resolved(name: str, package: str) -> str:
    """The full name of what a module of a package imports; empty if it is above all packages."""
    with contextlib.suppress(ImportError):
        return resolve_name(name, package)
    return ""


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


def _all_cells(spec: TrialSpec) -> list[str]:
    """The names of what a specification uses of the main module, and of the data therein."""
    found, todo = dict[str, None](), [*_cells(spec)]
    while todo:
        name = todo.pop()
        if name not in found and (code := _cell(name)):
            found[name] = None
            todo += [f"__main__:{each}" for each in code.data]
    return [*found]


@cache
def _cell(name: str) -> CellCode | None:
    """What the main module defines by a name, or registers; None if it is unknown."""
    if not name.startswith(_REGISTERED):
        return cell_code(name.partition(":")[2]) if is_interactive() else None
    spec = registered(ast.literal_eval(name.removeprefix(_REGISTERED)[:-1]))
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


def _digest(path: Path, without: frozenset[str] = frozenset()) -> str:
    """The version of a module's file, or of all modules of a package but those of some folders."""
    return _digest_of(path, tuple((each, _written(each)) for each in _files(path, without)))


def _version_of(file: Path) -> str:
    """The version of one file, whatever it belongs to."""
    return _digest_of(file, ((file, _written(file)),))


@lru_cache(maxsize=10_000)
def _digest_of(path: Path, files: tuple[tuple[Path, object], ...]) -> str:
    digest = hashlib.sha256()
    try:
        for each, _ in files:
            content = each.read_bytes()
            name = each.relative_to(path.parent).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    except OSError as error:
        return f"not readable ({error.strerror})"
    return f"{OWN_FILES}{digest.hexdigest()[:DIGITS]}"


@cache
def _written(file: Path) -> tuple[int, int] | None:
    """The time of the last change of a file and its size, which stand for its content."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
