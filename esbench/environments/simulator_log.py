"""Sends the messages of MuJoCo to stderr, each distinct one once.

Without a handler, MuJoCo prints a warning for every model it compiles and for every unstable step,
and writes it to a MUJOCO_LOG.TXT in the current folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

from esbench.core.errors import UsageError
from esbench.core.import_hooks import load_within
from esbench.core.linux import is_linux
from esbench.core.process import ENVIRON, Jointly, interrupts_delayed

Handler: TypeAlias = Callable[[str], None] | None


@final
class Handling:
    """What happens to the messages of MuJoCo in this process, also before it is imported."""

    def __init__(self) -> None:
        self._handler: Handler = None

    def use(self, handler: Handler) -> Handler:
        """Set a handler and return the one before."""
        if "mujoco" in sys.modules:
            import mujoco  # waits for a thread that imports it

            self._handler = mujoco.get_mju_user_warning()
            mujoco.set_mju_user_warning(handler)
        before, self._handler = self._handler, handler
        return before

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """A block that imports mujoco; on a machine without a screen, without its windows.

        The GLFW package starts a Python process for every library it finds. If that process is
        interrupted, it prints a traceback.
        """
        with ENVIRON, interrupts_delayed():  # mujoco takes Ctrl-C for a missing library
            chosen = os.environ.get("MUJOCO_GL")
            screens = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
            blind = is_linux() and not any(map(os.environ.get, screens))
            if blind:
                os.environ["MUJOCO_GL"] = "disabled"
            try:
                yield
            except Exception as error:  # a missing library can raise an AttributeError
                advice = f"; MUJOCO_GL = {chosen!r}: unset it, or install its OpenGL"
                why = f"{type(error).__name__}: {error}"
                raise UsageError(
                    f"mujoco cannot be imported ({why}){advice if chosen else ''}"
                ) from error
            finally:
                if blind:
                    del os.environ["MUJOCO_GL"]
                if chosen is not None:
                    os.environ["MUJOCO_GL"] = chosen
        if self._handler is not None:
            self.use(self._handler)


HANDLING: Final = Handling()
load_within("mujoco", HANDLING.loading)


def once_to_stderr() -> Callable[[str], None]:
    """A handler that prints each distinct warning once to stderr, which a log may hold."""
    seen: set[str] = set()

    def handle(message: str) -> None:
        kind = message.partition(" Time = ")[0]  # the same instability occurs at several times
        if kind not in seen:
            seen.add(kind)
            print(f"MuJoCo: {message.strip()}", file=sys.stderr, flush=True)  # noqa: T201

    return handle


def log_once() -> None:
    """Print each distinct warning of this process once to stderr, which a worker's log holds."""
    HANDLING.use(once_to_stderr())


@contextlib.contextmanager
def handled(handler: Callable[[str], None]) -> Iterator[None]:
    """A block whose messages of MuJoCo go to ``handler``."""
    before = HANDLING.use(handler)
    try:
        yield
    finally:
        HANDLING.use(before)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with handled(lambda message: None), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="gymnasium")
        yield


silenced: Final = Jointly(_without_warnings)
"""Drops the warnings of MuJoCo, and Gymnasium's about spaces, of what is made in the block.

The workers log them.
"""
