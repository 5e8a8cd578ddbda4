from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command_line import finished

SCRIPT = """
import os, sys
import esbench.environments.simulator_log
import mujoco
print("glfw" in sys.modules, os.environ.get("MUJOCO_GL"))
"""


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variables", "named"), [({}, False), ({"MUJOCO_GL": "egl"}, True)])
def test_an_import_error_mentions_mujoco_gl_only_if_it_was_set(
    variables: dict[str, str], named: bool, tmp_path: Path
) -> None:
    (tmp_path / "mujoco.py").write_text("raise AttributeError('no library')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = ("-m", "esbench", "run", "--env", "Ant-v5", "--algorithm", "snes")
    code, _, error = finished(*command, env={"PYTHONPATH": path, **variables})
    assert (code, "AttributeError: no library" in error) == (2, True)
    assert ("MUJOCO_GL" in error) == named


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
    code, out, _ = finished("-W", "ignore", "-c", SCRIPT, env=variables)
    assert (code, out.rstrip("\n")) == (0, expected)


@pytest.mark.parametrize(
    "imports", ["import mujoco; log.log_once()", "log.log_once(); import mujoco"]
)
def test_messages_have_the_handler_of_a_worker_whenever_mujoco_is_imported(imports: str) -> None:
    script = (
        f"import esbench.environments.simulator_log as log, sys; {imports}\n"
        "print(mujoco.get_mju_user_warning().__qualname__)\n"
        "with log.silenced(): print(mujoco.get_mju_user_warning().__qualname__)"
    )
    code, out, _ = finished("-c", script)
    assert (code, out.split()) == (
        0,
        ["once_to_stderr.<locals>.handle", "_without_warnings.<locals>.<lambda>"],
    )


def test_a_worker_imports_mujoco_only_with_an_environment_that_needs_it() -> None:
    script = "import esbench.engine.worker, sys; print('mujoco' in sys.modules)"
    assert finished("-c", script)[1] == "False\n"
