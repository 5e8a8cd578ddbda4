"""What the adapters of other libraries share.

Such a library samples its population itself, so its members are stored, and there are as many as it
likes. It meets nothing that it might not be made for: a return that is not finite becomes the worst
finite one, and when all returns are equal it is told nothing and draws another population where it
stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, final

import numpy as np
from pydantic import Field

from esbench.algorithms.base import Algorithm
from esbench.algorithms.population import StoredPopulation
from esbench.algorithms.settings import AlgorithmSettings, Positive
from esbench.arrays import Matrix
from esbench.errors import UsageError, suggestion


@final
class LazyModule:
    """A module that is imported when something of it is first used.

    So that a plugin is listed in no time: these libraries take seconds to import.
    """

    def __init__(self, name: str) -> None:
        """Name a module.

        Raises:
            ModuleNotFoundError: its package is not installed.
        """
        package = name.partition(".")[0]
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(imported(self._name), attribute)


def imported(name: str) -> ModuleType:
    """Return a module of a library.

    Raises:
        UsageError: it cannot be imported: it is broken, or of another version.
    """
    try:
        return import_module(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} cannot be imported ({reason})") from error


class LibrarySettings(AlgorithmSettings):
    """Settings of every adapter."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments, by the library's own names."""

    initial_width: Positive = 1.0
    """Algorithms without a centre draw their first population uniformly from a box about
    center_init; this is half its width [parameter units]."""


class LibraryAlgorithm(Algorithm[StoredPopulation]):
    """An algorithm of another library; a subclass keeps ``_members`` [N, P] up to date."""

    _members: Matrix

    @property
    def sigma(self) -> float:
        """The deviation of the members about their mean (the root mean square over parameters)."""
        return float(np.sqrt(np.mean(np.var(self._members, axis=0))))

    def _ask(self) -> StoredPopulation:
        return StoredPopulation(size=len(self._members), stored=self._members)


def check_name(name: str, kind: str, known: Collection[str]) -> None:
    """Refuse a name that the library does not have.

    Raises:
        ValueError: it is not among the ``known`` ones.
    """
    if name not in known:
        raise ValueError(f"expected {kind}; {suggestion(name, known)}")


def check_arguments(
    owner: str, given: Collection[str], allowed: Collection[str], ours: Mapping[str, str]
) -> None:
    """Refuse arguments that an algorithm does not take, or not from a table.

    Args:
        owner: the algorithm's name.
        given: the names of the arguments.
        allowed: the names that may be given.
        ours: the settings that take an argument's place.

    Raises:
        ValueError: the first that is wrong, and the nearest name.
    """
    for name in given:
        if name in ours:
            raise ValueError(f"arguments.{name} is not for {owner} here: set {ours[name]} instead")
        if name not in allowed:
            near = suggestion(name, allowed)
            raise ValueError(f"{owner} takes no argument {name!r} from a table; {near}")
