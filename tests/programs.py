"""Programs that some tests need besides Python's packages: a browser, a TeX, an OpenGL."""

from __future__ import annotations

import os

import pytest


def require(present: bool, what: str) -> None:
    """Skip a test where a program is missing; fail it where ESBENCH_TEST_PROGRAMS is "required"."""
    if present:
        return
    if os.environ.get("ESBENCH_TEST_PROGRAMS") == "required":
        pytest.fail(f"{what} is not installed here")
    pytest.skip(f"{what} is not installed here")
