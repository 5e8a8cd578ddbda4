"""The user's own code that a trial depends on, its versions, and how it has changed."""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Final

from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS
from esbench.core.errors import USER_CODE_ERRORS, EsbenchError, UsageError
from esbench.core.json_text import Json
from esbench.core.registry import Registry, root_of
from esbench.core.user_code import is_interactive, names_in
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS
from esbench.environments.specifications import module_of, registered, registration
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.policy import POLICIES
from esbench.store.cell_code import CellCode, cell_code, code_of
from esbench.store.imported_names import imported_names
from esbench.store.module_files import (
    OWN_FILES,
    file_version,
    files_of,
    look_again,
    place_of,
    version_of,
    written,
)
from esbench.store.origin import DIGITS, all_own_code
from esbench.store.package_versions import distributions, is_installed, package_version

_ALWAYS_RECORDED: Final = frozenset({"", "esbench", "gymnasium", "ale_py", "evotorch", "evosax"})
_MAIN: Final = frozenset({"__main__", "__mp_main__"})
_REGISTERED: Final = "__main__:register("
_NOT_OWN: Final = _ALWAYS_RECORDED | sys.stdlib_module_names
_LOCK: Final = threading.RLock()  # trainers may run in several threads
_READ: Final[dict[Path, tuple[str, ModuleSpec | None]]] = {}
"""The files of user code that were read: their versions, and what was imported from them."""


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
            if root_of(module) not in _ALWAYS_RECORDED:
                found |= _versions(module)
        found |= {name: version_of(path) for name, path in own.items()}
        files = {file for path in own.values() for file in files_of(path)} - _READ.keys()
        specs = _import_specs(files)
        _READ.update({file: (file_version(file), specs.get(file)) for file in files})
        for name in cells:
            found |= _versions(name)
        return dict(sorted(found.items()))


def read_again(specs: Iterable[TrialSpec] = ()) -> None:
    """Read the user code of trials again: files before new workers import them, and cells.

    Raises:
        UsageError: this process has read and imported a file of it that was edited since.
    """
    with _LOCK:
        look_again()
        _cell.cache_clear()
        edited = _edited_files()
        if not edited:
            _READ.clear()
        alike = {str({**each.as_json(), "seed": None}): each for each in specs}
        for spec in alike.values():
            places = _own_places(spec, _all_cells(spec)).values()
            if stale := edited & {file for path in places for file in files_of(path)}:
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
    changed = {file for file, (before, _) in _READ.items() if before != file_version(file)}
    live = {file: specs[file] for file in changed - {script} if file in specs}
    edited = {file for file, spec in live.items() if _is_old(spec, _READ[file][1] or spec, file)}
    reloaded = tuple(f"{live[file].name}." for file in live.keys() - edited)
    for file, (_, before) in _READ.items():
        if before is not None and _is_old(specs.get(file), before, file):
            package = before.name if before.submodule_search_locations else before.parent
            names = (_resolved(each, package or "") for each in imported_names(file, written(file)))
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
        if root_of(module) not in _ALWAYS_RECORDED:
            _add_own(module, found)
    for module in {name for each in cells if (code := _cell(each)) for name in code.modules}:
        if root_of(module) not in _NOT_OWN:
            _add_own(module, found)
    return found


def _add_own(module: str, found: dict[str, Path]) -> None:
    """Add a module or its package, if it is not installed, and all of that kind it imports."""
    todo = {module}
    while todo:
        name, path = place_of(todo.pop()) or ("", Path())
        if name and name not in found and not is_installed(path):
            found[name] = path
            imported = {each for file in files_of(path) for each in _imports(name, path, file)}
            todo |= {each for each in imported if root_of(each) not in _NOT_OWN}


def _imports(name: str, path: Path, file: Path) -> Iterator[str]:
    """The full names that one file of a module or package imports, which lies at a path."""
    inner = file.relative_to(path.parent).parent.parts
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    if name == "__main__":  # after python -m
        package = sys.modules[name].__package__ or ""
    for each in imported_names(file, written(file)):
        yield _resolved(each, ".".join((package, *inner)))


def _resolved(name: str, package: str) -> str:
    """The full name of what a module of a package imports; empty if it is above all packages."""
    with contextlib.suppress(ImportError):
        return resolve_name(name, package)
    return ""


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
        name: _versions(name).get(name) if there.startswith(OWN_FILES) else package_version(name)
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
    name, path = place_of(module) or ("", Path())
    if not name:
        return {}
    if is_installed(path):
        packages = distributions().get(root_of(module), [])
        return {each: found for each in packages if (found := package_version(each))}
    return {name: version_of(path)}


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
