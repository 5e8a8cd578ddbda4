"""Sends the messages of MuJoCo to stderr, each distinct one once.

Without a handler, MuJoCo prints a warning for every model it compiles and for every unstable step,
and writes it to a MUJOCO_LOG.TXT in the current folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final

from esbench.core.errors import UsageError
from esbench.core.process import ENVIRON, Jointly, interrupts_delayed


def _import_mujoco() -> Any:
    """Import mujoco; on a machine without a screen, without its windows.

    The GLFW package starts a Python process for every library it finds. If that process is
    interrupted, it prints a traceback.
    """
    chosen = os.environ.get("MUJOCO_GL")
    screens = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    blind = sys.platform == "linux" and not any(map(os.environ.get, screens))
    if blind:
        os.environ["MUJOCO_GL"] = "disabled"
    try:
        return importlib.import_module("mujoco")
    except Exception as error:  # a missing library can raise an AttributeError
        advice = f"; MUJOCO_GL = {chosen!r}: unset it, or install its OpenGL" if chosen else ""
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"mujoco cannot be imported ({why}){advice}") from error
    finally:
        if blind:
            del os.environ["MUJOCO_GL"]
        if chosen is not None:
            os.environ["MUJOCO_GL"] = chosen


with ENVIRON, interrupts_delayed():  # mujoco takes Ctrl-C for a missing library
    mujoco = _import_mujoco()


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
def _without_warnings() -> Iterator[None]:
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="gymnasium")
            yield
    finally:
        mujoco.set_mju_user_warning(before)


silenced: Final = Jointly(_without_warnings)
"""Drops the warnings of MuJoCo, and Gymnasium's about spaces, of what is made in the block.

The workers log them.
"""
