"""What there is to choose from, with one line each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from esbench.environments import environment_names, load_environment
from esbench.grid import grid_names, read_grid
from esbench.registry import ALGORITHMS, BACKENDS, POLICIES, Registry


def catalogue(kind: str) -> Iterator[tuple[str, str]]:
    """Yield name and description of every algorithm, environment, policy, backend or grid."""
    match kind:
        case "algorithms":
            yield from _classes(ALGORITHMS)
        case "policies":
            yield from _classes(POLICIES)
        case "backends":
            yield from _classes(BACKENDS)
        case "environments":
            for name in environment_names():
                yield name, load_environment(name).description
        case "grids":
            for name in grid_names():
                yield name, str(read_grid(name)[0].get("description", ""))


def _classes(registry: Registry[Any]) -> Iterator[tuple[str, str]]:
    for name in registry.names():
        text = inspect.getdoc(registry.get(name)) or ""
        yield name, text.partition("\n")[0]
