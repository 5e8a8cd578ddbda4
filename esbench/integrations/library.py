"""Optional packages, and the base of the adapters of other libraries' algorithms.

Such a library samples its own population, so the members are stored and their number is the
library's choice. An adapter protects the library from input it may not support: a return that is
not finite becomes the worst finite one. When all returns are equal, the library gets none of them
and draws another population from the same state.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
from pydantic import Field

from esbench.algorithms.base import Algorithm
from esbench.algorithms.search_settings import AlgorithmSettings, Positive
from esbench.core.arrays import Matrix
from esbench.core.errors import UsageError, suggestion
from esbench.core.extras import install_command
from esbench.core.population import StoredPopulation
from esbench.core.registry import root_of


@final
class LazyModule:
    """A module that is imported on first use, so that listing the plugins is fast."""

    def __init__(self, name: str) -> None:
        """Check that the package exists.

        Raises:
            ModuleNotFoundError: the package is not installed.
        """
        package = root_of(name)
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(imported(self._name), attribute)


def imported(name: str) -> ModuleType:
    """A module of a library; UsageError if the library is broken or has another version."""
    try:
        return import_module(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} cannot be imported ({reason})") from error


def optional(name: str, extra: str, user: str) -> Any:
    """A module of an optional package; UsageError, which names ``user`` and the extra to install.

    >>> optional("json", "tune", "tuning").loads("1")
    1
    """
    package = root_of(name)
    # A folder of that name, such as a tracker's own, has a specification without an origin.
    if getattr(find_spec(package), "origin", None) is None:
        raise UsageError(
            f"{user} needs the package {package!r}, which is not installed; install the extra "
            f"{extra!r}: {install_command(extra)}"
        )
    return imported(name)


def sqlite_address(file: Path, extra: str, user: str) -> str:
    """The address of an SQLite file, whose path may have any characters; see ``optional``."""
    url = optional("sqlalchemy", extra, user).URL.create("sqlite", database=str(file))
    return str(url.render_as_string(hide_password=False))


def ffmpeg_program() -> str:
    """The path of the program ffmpeg; UsageError if the extra ``video`` is not installed."""
    user = "an MP4 (a .gif needs no ffmpeg)"
    try:
        return str(optional("imageio_ffmpeg", "video", user).get_ffmpeg_exe())
    except RuntimeError as error:
        raise UsageError(f"{user} needs ffmpeg: {error}") from None


class ExternalSettings(AlgorithmSettings, ABC):
    """Settings of every adapter."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments, by the library's own names."""

    initial_width: Positive = 1.0
    """Half the width of the box around center_init from which algorithms without a center draw
    their first population, uniformly [parameter units]."""


class ExternalAlgorithm(Algorithm[StoredPopulation], ABC):
    """An algorithm of another library; a subclass keeps ``_members`` [N, P] up to date."""

    uses_equal_returns = True
    _members: Matrix

    @final
    def _ask(self) -> StoredPopulation:
        return StoredPopulation(size=len(self._members), stored=self._members)


def spread(members: Matrix) -> float:
    """The standard deviation of members [N, P]: its root mean square over the parameters."""
    return float(np.sqrt(np.mean(np.var(members, axis=0))))


def check_arguments(
    owner: str, given: Collection[str], allowed: Collection[str], ours: Mapping[str, str]
) -> None:
    """Check the names of the arguments ``given`` to the algorithm ``owner``.

    Raises:
        ValueError: a name is not ``allowed``, or it is in ``ours``: a setting replaces it.
    """
    for name in given:
        if name in ours:
            raise ValueError(f"arguments.{name} of {owner}: set {ours[name]} instead")
        if name not in allowed:
            near = suggestion(name, allowed)
            raise ValueError(f"{owner} accepts no argument {name!r} from a table; {near}")
