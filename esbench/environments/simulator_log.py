"""Sends the messages of MuJoCo to stderr, each distinct one once.

Without a handler, MuJoCo prints a warning for every model it compiles and for every unstable step,
and writes it to a MUJOCO_LOG.TXT in the current folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Final

from esbench.core.errors import UsageError
from esbench.core.process import interrupts_delayed


@contextlib.contextmanager
def _no_windows() -> Iterator[None]:
    """Keep mujoco from loading GLFW on a machine without a screen.

    The GLFW package starts a Python process for every library it finds. If that process is
    interrupted, it prints a traceback.
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


CHOSEN: Final = os.environ.get("MUJOCO_GL")  # by the user
with interrupts_delayed(), _no_windows():  # mujoco takes Ctrl-C for a missing library
    try:
        import mujoco
    except Exception as error:  # a missing library can raise an AttributeError
        why = f"{type(error).__name__}: {error}"
        if not CHOSEN:
            raise UsageError(f"mujoco cannot be imported ({why})") from error
        raise UsageError(
            f"MUJOCO_GL = {CHOSEN!r}: mujoco cannot be imported with it ({why}); unset it, or "
            "install its OpenGL, on Debian and Ubuntu: apt-get install libosmesa6 for 'osmesa', "
            "libegl1 libegl-mesa0 for 'egl'"
        ) from error


def log_once() -> None:
    """Print each distinct warning of this process once to stderr, which a worker's log holds."""
    seen: set[str] = set()

    def handle(message: str) -> None:
        kind = message.partition(" Time = ")[0]  # the same instability occurs at several times
        if kind not in seen:
            seen.add(kind)
            print(f"MuJoCo: {message.strip()}", file=sys.stderr, flush=True)  # noqa: T201

    mujoco.set_mju_user_warning(handle)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop the warnings of MuJoCo, and Gymnasium's about spaces, of what is made in the block.

    The workers log them.
    """
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="gymnasium")
            yield
    finally:
        mujoco.set_mju_user_warning(before)
