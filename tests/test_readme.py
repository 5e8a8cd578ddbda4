"""What the README shows works as written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run

from esbench.grids.environment_files import read_toml
from esbench.grids.grid_file import parse_grid
from esbench.training.trials import grid_trials

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_scripts_run(number: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(blocks("python")[number])
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_agent_is_gated(tmp_path: Path) -> None:
    (text,) = blocks("py")
    (tmp_path / "test_my_agent.py").write_text(text)
    for options in (["--esbench-update"], []):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        assert (tmp_path / "esbench-baseline.json").exists()


def test_commands_run_one_after_the_other(esbench: Run, tmp_path: Path) -> None:
    """``esbench run`` in a process of its own, as it would be typed, and the others in this one."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) >= 9
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)
        assert program == "esbench"
        if arguments[0] == "run":
            done = subprocess.run(
                [sys.executable, "-m", "esbench", *arguments],
                cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code, out, err = esbench(*arguments)
        assert (code, err) == (0, ""), line
        assert out


def test_the_grid_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "grid.toml").write_text(text)
    grid = parse_grid(read_toml(tmp_path / "grid.toml"), "README")
    assert len(grid_trials(grid, tmp_path, "README")) == 2 * 2 * 3


def test_there_are_exactly_two_set_up_commands_and_ci_runs_them() -> None:
    commands = [line for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 2
    assert commands[0].endswith("esbench run quick")
    assert commands[1].endswith("tox")
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_files_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:esbench|envs|plots|results)/[\w./-]+\.\w+)`", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 250
