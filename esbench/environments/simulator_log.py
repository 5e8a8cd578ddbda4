"""MuJoCo's own lines, once each and where they belong.

MuJoCo prints a warning for every model it compiles and for every unstable step, and writes it to a
MUJOCO_LOG.TXT in the current folder, unless a handler is installed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from esbench.errors import UsageError


@contextlib.contextmanager
def _no_windows() -> Iterator[None]:
    """Keep mujoco from looking for GLFW where nothing could be shown anyway.

    GLFW's package starts a Python for every library it finds, to ask for its version; interrupted
    there, that one prints a traceback of its own.
    """
    screens = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform != "linux" or any(os.environ.get(name) for name in screens):
        yield
        return
    before = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]
        if before is not None:
            os.environ["MUJOCO_GL"] = before


with _no_windows():
    try:
        import mujoco
    except Exception as error:  # an AttributeError, for one, if its library is missing
        chosen = os.environ.get("MUJOCO_GL")
        if not chosen:
            raise
        why = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"MUJOCO_GL = {chosen!r}: mujoco cannot be imported with it ({why}); unset it, or "
            "install its OpenGL, on Debian and Ubuntu: apt-get install libosmesa6 for 'osmesa', "
            "libegl1 libegl-mesa0 for 'egl'"
        ) from error


def log_once() -> None:
    """Print each distinct warning of this process once to stderr; a worker's goes to its log."""
    seen: set[str] = set()

    def handle(message: str) -> None:
        kind = message.partition(" Time = ")[0]  # the same instability at another time is the same
        if kind not in seen:
            seen.add(kind)
            print(f"MuJoCo: {message.strip()}", file=sys.stderr, flush=True)  # noqa: T201

    mujoco.set_mju_user_warning(handle)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop the warnings of models built inside the block; the workers log the same ones."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
