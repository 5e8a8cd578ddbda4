"""Chooses the backend that plays an environment."""

from __future__ import annotations

from typing import Any, Final

from esbench.environments.backends.base import BACKENDS
from esbench.errors import unknown

AUTO: Final = "auto"
GYMNASIUM: Final = "gymnasium"


def backend_name(wanted: str, environment_id: str, kwargs: dict[str, Any]) -> str:
    """``wanted``; for "auto" the first backend that serves the environment.

    The Gymnasium loop comes last. Backends of plugins are used only if they are named.
    """
    if wanted != AUTO:
        return wanted
    others = (name for name in BACKENDS.builtin_names() if name != GYMNASIUM)
    serving = (name for name in others if BACKENDS.get(name).serves(environment_id, kwargs))
    return next(serving, GYMNASIUM)


def check_backend(name: str) -> None:
    """Check that a backend exists.

    Raises:
        UsageError: it is neither registered nor "auto".
    """
    if name != AUTO and name not in (known := BACKENDS.names()):
        raise unknown("backend", name, [AUTO, *known])
