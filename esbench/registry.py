"""Names to classes, for algorithms, policies, behaviors and vector-environment backends.

A class registers itself with the decorator in its own file; a package on the side adds one through
an entry point of the group (its name must be the registered name). Built-in files are found by
looking into their package, so adding one means adding one file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from esbench.errors import UsageError, unknown

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """The classes of one kind by name."""

    def __init__(self, kind: str, package: str, group: str) -> None:
        self.kind = kind
        self.package = package
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._plugins: dict[str, EntryPoint] | None = None

    def register(self, name: str) -> Callable[[C], C]:
        """Return the decorator that registers a class as ``name``.

        Raises:
            UsageError: another class has that name already.
        """

        def decorate(cls: C) -> C:
            known = self._classes.get(name)
            if known is not None and _path(known) != _path(cls):
                raise UsageError(
                    f"{self.kind} {name!r} is registered twice: by {_path(known)} and {_path(cls)}"
                )
            self._classes[name] = cls
            return cls

        return decorate

    def names(self) -> list[str]:
        """Return every name, sorted; plugins are listed without being imported."""
        return sorted({*self._load_builtins(), *self._find_plugins()})

    def builtin_names(self) -> list[str]:
        """Return the names of the package's own classes, sorted; the same in every process."""
        inside = f"{self.package}."
        classes = self._load_builtins().items()
        return sorted(name for name, cls in classes if cls.__module__.startswith(inside))

    def get(self, name: str) -> type[T]:
        """Return the class registered as ``name``.

        Raises:
            UsageError: no class has that name, or its plugin cannot be imported (the message says
                what to install) or does not register it.
        """
        if name not in self._classes:
            self._load_builtins()
        if name not in self._classes and (plugin := self._find_plugins().get(name)):
            self._import(plugin)
            if name not in self._classes:
                raise UsageError(
                    f"plugin {plugin.value!r} is listed as {self.kind} {name!r} in the group "
                    f"{self.group}, but does not register that name"
                )
        if name not in self._classes:
            raise unknown(self.kind, name, self.names())
        return self._classes[name]

    def _import(self, plugin: EntryPoint) -> None:
        try:
            plugin.load()
        except UsageError:
            raise
        except Exception as error:  # what a plugin imports may be missing, broken or too old
            reason = _why_not(plugin, error)
            raise UsageError(f"{self.kind} {plugin.name!r}: {reason}") from error

    def _load_builtins(self) -> dict[str, type[T]]:
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
            importlib.import_module(module.name)
        return self._classes

    def _find_plugins(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            classes = self._load_builtins()
            found: dict[str, EntryPoint] = {}
            for plugin in entry_points(group=self.group):
                # Its class may be registered already, by another plugin of the same package.
                known = classes.get(plugin.name)
                taken = known is not None and _package(known.__module__) != _package(plugin.module)
                if taken or plugin.name in found:
                    raise UsageError(
                        f"{self.kind} {plugin.name!r} is registered twice: the plugin "
                        f"{plugin.value!r} takes a name that is in use"
                    )
                found[plugin.name] = plugin
            self._plugins = found
        return self._plugins


def _why_not(plugin: EntryPoint, error: Exception) -> str:
    """Return why a plugin cannot be imported, and what to install if that is all."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    # A submodule that is missing is another version's, and the plugin's own package is not missing.
    if not missing or "." in missing or missing == _package(plugin.module):
        why = f"{type(error).__name__}: {error}"
        return f"its plugin {plugin.value!r} cannot be imported ({why})"
    return f"the package {missing!r} is not installed; {_how_to_install(plugin, missing)}"


def _how_to_install(plugin: EntryPoint, missing: str) -> str:
    """Return what to install: the extra that the plugin's distribution names after the plugin."""
    distribution = plugin.dist
    extras = distribution.metadata.get_all("Provides-Extra", []) if distribution else []
    for extra in extras:
        if distribution and _normalized(extra) == _normalized(plugin.name):
            return f"install it with: pip install '{distribution.name}[{extra}]'"
    return f"install the package that provides {missing!r}"


def _normalized(extra: str) -> str:
    return extra.lower().replace("_", "-").replace(".", "-")


def _package(module: str) -> str:
    return module.partition(".")[0]


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
