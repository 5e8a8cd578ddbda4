"""Offscreen rendering: the OpenGL library and the image size of MuJoCo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import gymnasium

from esbench.core.errors import UsageError

# Fastest first. EGL uses a GPU if there is one.
OFFSCREEN: Final = ("egl", "osmesa")
SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
SIZE: Final = 320  # pixels
MISSING: Final = (
    "MuJoCo cannot render: neither EGL nor OSMesa works and there is no screen; install one of "
    "them, on Debian and Ubuntu: apt-get install libegl1 libegl-mesa0 (or libosmesa6)"
)


@contextlib.contextmanager
def without_screen(env: gymnasium.Env[Any, Any]) -> Iterator[None]:
    """Render without a screen inside the block.

    ``MUJOCO_GL`` and ``SDL_VIDEODRIVER`` are left unchanged where they are set.

    Raises:
        UsageError: It is a MuJoCo environment, no OpenGL library works, and there is no screen.
    """
    added: dict[str, str] = {}
    if sys.platform == "linux":
        if "SDL_VIDEODRIVER" not in os.environ:
            added["SDL_VIDEODRIVER"] = "dummy"  # read by pygame
        if is_mujoco(env) and "MUJOCO_GL" not in os.environ:
            if name := offscreen_opengl():
                added["MUJOCO_GL"] = name
            elif not any(os.environ.get(name) for name in SCREENS):
                raise UsageError(MISSING)
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)


def offscreen_opengl() -> str | None:
    """The first OpenGL library that works without a screen, or None."""
    # Each is tried in its own process, because a failure leaves PyOpenGL unusable.
    for name in OFFSCREEN:
        script = f"from mujoco.{name} import GLContext; GLContext(8, 8).make_current()"
        environment = {**os.environ, "MUJOCO_GL": name, "PYOPENGL_PLATFORM": name}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=False
        )
        if done.returncode == 0:
            return name
    return None


def is_mujoco(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether an environment derives from Gymnasium's ``MujocoEnv``, without importing MuJoCo."""
    module = sys.modules.get("gymnasium.envs.mujoco.mujoco_env")
    return module is not None and isinstance(env.unwrapped, module.MujocoEnv)


def draw_lightly(env: gymnasium.Env[Any, Any], kwargs: dict[str, Any]) -> None:
    """Make a MuJoCo environment render small images without shadows, which is faster.

    Call it before the first image. A size in ``kwargs`` is kept.
    """
    if not is_mujoco(env):
        return
    inner: Any = env.unwrapped
    inner.model.vis.quality.shadowsize = inner.model.vis.quality.offsamples = 0
    if "width" not in kwargs and "height" not in kwargs:
        inner.mujoco_renderer.width = inner.mujoco_renderer.height = SIZE
