"""Which backend plays an environment."""

from __future__ import annotations

from typing import Any, Final

from esbench.environments.backends.base import BACKENDS
from esbench.errors import unknown

AUTO: Final = "auto"
REFERENCE: Final = "gymnasium"


def backend_name(wanted: str, environment_id: str, kwargs: dict[str, Any]) -> str:
    """Return ``wanted``, or for ``auto`` the first backend that serves, the reference one last.

    Only our own backends are asked: a plugin's is used where it is named.
    """
    if wanted != AUTO:
        return wanted
    others = (name for name in BACKENDS.builtin_names() if name != REFERENCE)
    serving = (name for name in others if BACKENDS.get(name).serves(environment_id, kwargs))
    return next(serving, REFERENCE)


def check_backend(name: str) -> None:
    """Refuse a name that is no backend.

    Raises:
        UsageError: it is neither registered nor ``auto``.
    """
    if name != AUTO and name not in (known := BACKENDS.names()):
        raise unknown("backend", name, [AUTO, *known])
