from __future__ import annotations

import pytest

from esbench.catalogue import catalogue
from esbench.environments import environment_names
from esbench.grid import grid_names
from esbench.registry import ALGORITHMS, BACKENDS, POLICIES

NAMES = {
    "algorithms": ALGORITHMS.names(),
    "environments": environment_names(),
    "policies": POLICIES.names(),
    "backends": BACKENDS.names(),
    "grids": grid_names(),
}


@pytest.mark.parametrize("kind", NAMES)
def test_everything_is_listed_with_one_line(kind: str) -> None:
    listed = dict(catalogue(kind))
    assert list(listed) == list(NAMES[kind])
    assert listed
    for text in listed.values():
        assert text
        assert "\n" not in text
