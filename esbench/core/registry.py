"""Registries of algorithms, policies, behaviors and vector-environment backends, by name.

A class registers itself with the decorator in its own file. All files of a registry's package are
imported, so a new class needs one new file. Another package adds a class through an entry point
of the group; the name of the entry point is the registered name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, final

from esbench.core.errors import (
    USER_CODE_ERRORS,
    MissingPackageError,
    UsageError,
    error_text,
    message_of,
    unknown,
)
from esbench.core.extras import DISTRIBUTION, extra_of, install_command

T = TypeVar("T")
C = TypeVar("C", bound=type)


@final
class Registry(Generic[T]):
    """The classes of one kind by name."""

    def __init__(self, kind: str, package: str, group: str) -> None:
        self.kind = kind
        self.package = package
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        self._has_builtins = False

    def register(self, name: str) -> Callable[[C], C]:
        """A decorator that registers a class as ``name``.

        Raises:
            UsageError: another class has that name already.
        """

        def decorate(cls: C) -> C:
            known = self._classes.get(name)
            plugin = (self._plugins or {}).get(name)
            other = plugin and root_of(plugin.module) != root_of(cls.__module__)
            if other or (known is not None and _path(known) != _path(cls)):
                first = plugin.value if plugin and other else _path(known)
                raise UsageError(
                    f"{self.kind} {name!r} is registered twice: by {first} and {_path(cls)}"
                )
            self._classes[name] = cls
            return cls

        return decorate

    def names(self) -> list[str]:
        """All names, sorted; plugins are listed without being imported."""
        return sorted({*self._load_builtins(), *self._find_plugins()})

    def builtin_names(self) -> list[str]:
        """The names of the built-in classes, sorted."""
        inside = f"{self.package}."
        classes = self._load_builtins().items()
        return sorted(name for name, cls in classes if cls.__module__.startswith(inside))

    def get(self, name: str) -> type[T]:
        """The class registered as ``name``.

        Raises:
            UsageError: no class has that name, or its plugin cannot be imported (the message says
                what to install) or does not register it.
        """
        if name not in self._classes:
            self._load_builtins()
        if name not in self._classes and (plugin := self._find_plugins().get(name)):
            load_plugin(self.kind, plugin)
            if name not in self._classes:
                raise UsageError(
                    f"plugin {plugin.value!r} is listed as {self.kind} {name!r} in the group "
                    f"{self.group}, but does not register that name"
                )
        if name not in self._classes:
            raise unknown(self.kind, name, self.names())
        if root_of(self._classes[name].__module__) != "esbench":
            self._find_plugins()  # none may have that name too
        return self._classes[name]

    def _load_builtins(self) -> dict[str, type[T]]:
        if not self._has_builtins:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
                importlib.import_module(module.name)
            self._has_builtins = True
        return self._classes

    def _find_plugins(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            # A class may be registered already, by another plugin of the same package.
            classes = self._load_builtins().items()
            owners = {name: root_of(cls.__module__) for name, cls in classes}
            self._plugins = find_plugins(self.kind, self.group, owners.get)
        return self._plugins


def find_plugins(
    kind: str, group: str, owner: Callable[[str], str | None]
) -> dict[str, EntryPoint]:
    """The entry points of a group by name; ``owner`` gives the package that has a name, if any.

    UsageError if another package or plugin has the name.
    """
    found: dict[str, EntryPoint] = {}
    for plugin in entry_points(group=group):
        if owner(plugin.name) not in {None, root_of(plugin.module)} or plugin.name in found:
            raise UsageError(
                f"{kind} {plugin.name!r} is registered twice: the plugin {plugin.value!r} takes a "
                "name that is in use"
            )
        found[plugin.name] = plugin
    return found


def load_plugin(kind: str, plugin: EntryPoint) -> Any:
    """Import the object of an entry point; UsageError names what to install."""
    try:
        return plugin.load()
    except UsageError:
        raise
    except USER_CODE_ERRORS as error:
        raise _why_not(f"{kind} {plugin.name!r}", plugin, error) from error


def _why_not(subject: str, plugin: EntryPoint, error: BaseException) -> UsageError:
    name = (error.name or "") if isinstance(error, ImportError) else ""
    if root_of(name) == "esbench":
        return UsageError(
            f"{subject}: its plugin {plugin.value!r} is for another version of esbench "
            f"({message_of(error)})"
        )
    # A missing submodule is of another version; the plugin's own package is installed.
    missing = isinstance(error, ModuleNotFoundError) and "." not in name
    if not missing or name in {"", root_of(plugin.module)}:
        return UsageError(
            f"{subject}: its plugin {plugin.value!r} cannot be imported ({error_text(error)})"
        )
    owner = plugin.dist.name if plugin.dist else DISTRIBUTION
    extra = extra_of(name, owner) or extra_of(plugin.name, owner)
    how = f"it with: {install_command(extra, owner)}" if extra else f"what provides {name!r}"
    return MissingPackageError(f"{subject}: the package {name!r} is not installed; install {how}")


def root_of(module: str) -> str:
    """The top-level package of a module."""
    return module.partition(".")[0]


def _path(cls: type | None) -> str:
    return "" if cls is None else f"{cls.__module__}.{cls.__qualname__}"
