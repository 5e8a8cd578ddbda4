"""The type of the fixture ``esbench``, which runs the command line within the tests' process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""``esbench ARGUMENTS``: exit code, stdout and stderr."""
