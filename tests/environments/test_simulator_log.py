from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
import esbench.environments.simulator_log
print("glfw" in sys.modules, os.environ.get("MUJOCO_GL"))
"""


@pytest.mark.parametrize(("variables", "blamed"), [({}, False), ({"MUJOCO_GL": "egl"}, True)])
def test_an_import_error_mentions_mujoco_gl_only_if_it_was_set(
    variables: dict[str, str], blamed: bool, tmp_path: Path
) -> None:
    (tmp_path / "mujoco.py").write_text("raise AttributeError('no library')")
    environment = {key: value for key, value in os.environ.items() if key != "MUJOCO_GL"}
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "esbench", "run", "--env", "Ant-v5", "--algorithm", "snes"],
        env={**environment, "PYTHONPATH": path, **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "AttributeError: no library" in done.stderr
    assert ("MUJOCO_GL" in done.stderr) == blamed


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a window can always be opened")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "False None"),
        ({"DISPLAY": ":0"}, "True None"),
        ({"MUJOCO_GL": "glfw"}, "True glfw"),
    ],
)
def test_the_package_glfw_is_imported_only_if_there_may_be_a_screen(
    variables: dict[str, str], expected: str
) -> None:
    hidden = {"MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.rstrip("\n") == expected
