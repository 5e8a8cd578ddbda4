from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import esbench.environments.simulator_log
print("glfw" in sys.modules, os.environ.get("MUJOCO_GL"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a window can always be opened")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "False None"),
        ({"MUJOCO_GL": ""}, "False "),
        ({"DISPLAY": ":0"}, "True None"),
        ({"MUJOCO_GL": "glfw"}, "True glfw"),
    ],
)
def test_mujoco_looks_for_windows_only_where_there_may_be_some(
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
