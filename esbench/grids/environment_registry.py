"""The tables of benchmark environments by name: those of ``envs/``, of plugins and of scripts.

A file of ``envs/`` holds one environment, or one Atari game, whose protocols are separate
environments. Another package adds an environment through an entry point of the group
``esbench.environments``: its name is the environment's, its value a package with such files.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final, final

from esbench.core.errors import UsageError, shown, suggestion
from esbench.core.registry import find_plugins, load_plugin
from esbench.core.settings import Table, require_shallow

GROUP: Final = "esbench.environments"


def folder() -> Path:
    """The folder ``envs/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "envs"
    return inside if inside.is_dir() else package.parent / "envs"


@final
class EnvironmentRegistry:
    """The tables of environments by name, as in ``envs/``."""

    def __init__(self) -> None:
        self._registered: dict[str, Table] = {}
        self._plugins: dict[str, EntryPoint] | None = None

    def names(self) -> list[str]:
        """All names, sorted; plugins are listed without being imported."""
        return sorted({*self.builtin_names(), *self._registered, *self._find_plugins()})

    def builtin_names(self) -> list[str]:
        """The names of the environments with a file in ``envs/``, sorted."""
        return sorted(_paths(folder()))

    def get(self, name: str) -> tuple[Table, str] | None:
        """The table of an environment and its source for messages; None for an unknown name.

        UsageError if its plugin cannot be imported or has no file for it.
        """
        if path := _paths(folder()).get(name):
            return environments_in(path)[name], str(path)
        if name in self._registered:
            return self._registered[name], f"environment {name}"
        plugin = self._find_plugins().get(name)
        return None if plugin is None else _table_of(plugin)

    def add(self, name: str, table: Table) -> None:
        """Register a table, in the place of one that was registered before.

        UsageError if a file of ``envs/`` or a plugin has that name.
        """
        plugin = self._find_plugins().get(name)
        owner = _paths(folder()).get(name) or (plugin and f"the plugin {plugin.value!r}")
        if owner:
            raise UsageError(
                f"environment {name!r} is registered twice: {owner} has that name; change its "
                "settings in the table [environment] of a grid"
            )
        self._registered[name] = table

    def _find_plugins(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            owners = dict.fromkeys(self.builtin_names(), "esbench")
            self._plugins = find_plugins("environment", GROUP, owners.get)
        return self._plugins


ENVIRONMENTS: Final = EnvironmentRegistry()


def read_toml(path: Path) -> Table:
    """The content of a TOML file; UsageError, with the line, if it cannot be read or parsed."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # tomllib.TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: not valid TOML: too many brackets inside each other") from None
    require_shallow(table, str(path))
    return table


def merged(below: Table, above: Table) -> Table:
    """``below`` with the values of ``above`` on top; tables are merged, arrays are replaced."""
    result = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            result[key] = merged(below[key], above[key])
    return result


def environments_in(source: Path | Table) -> dict[str, Table]:
    """The environments of a file, a folder of files or the content of a file, by name.

    ``shared`` names a file of the folder ``shared`` beside the file, with settings below those of
    the table; a table of ``protocols`` goes on top of them. The name is empty without ``id``.
    UsageError if a file cannot be read, or ``protocols`` has no tables.
    """
    if isinstance(source, dict):
        return _environments(source, folder(), "the table of an environment")
    if source.is_dir():
        return {
            name: table
            for path in sorted(source.glob("*.toml"))
            for name, table in environments_in(path).items()
        }
    return _environments(read_toml(source), source.parent, str(source))


@cache
def _paths(envs: Path) -> dict[str, Path]:
    """The file of each environment in a folder, by its name; other files have none."""
    found = {name: path for path in envs.glob("*.toml") for name in environments_in(path)}
    if (other := found.pop("", None)) and envs == folder():
        raise UsageError(f"{other}: id is missing; expected the Gymnasium name")
    return found


def _environments(table: Table, envs: Path, source: str) -> dict[str, Table]:
    table = dict(table)
    if shared := table.pop("shared", None):
        table = merged(read_toml(envs / "shared" / f"{shared}.toml"), table)
    protocols = table.pop("protocols", {"": {}})
    tables = list(protocols.values()) if isinstance(protocols, dict) else []
    if not tables or not all(isinstance(each, dict) for each in tables):
        raise UsageError(
            f"{source}: protocols = {shown(protocols)}: expected a table that has a table for each "
            "protocol"
        )
    environments = [merged(table, protocol) for protocol in tables]
    return {str(environment.get("id", "")): environment for environment in environments}


def _table_of(plugin: EntryPoint) -> tuple[Table, str]:
    """The table of a plugin's environment and its source; UsageError if it has none."""
    package = load_plugin("environment", plugin)
    folders = [Path(each) for each in getattr(package, "__path__", [])]
    found = {name: path for each in folders for name, path in _paths(each).items()}
    if plugin.name not in found:
        raise UsageError(
            f"plugin {plugin.value!r} is listed as environment {plugin.name!r} in the group "
            f"{GROUP}; expected a package that holds a TOML file with that id "
            f"({suggestion(plugin.name, found)})"
        )
    path = found[plugin.name]
    return environments_in(path)[plugin.name], str(path)
