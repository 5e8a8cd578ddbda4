"""Installs esbench and the code under test.

Reads:
    ESBENCH_ACTION: the folder of the action, which is a checkout of esbench.
    ESBENCH_INSTALL: what else pip installs, one requirement per line.
    ESBENCH_CONSTRAINTS: whether the versions are those of esbench's constraints.txt, as "true".
    ESBENCH_COMMAND, ESBENCH_LIGHT: with a command, whether it needs the plugin of pytest only.
    ESBENCH_HISTORY: a branch, whose page ``esbench history`` writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from runner import end_with_error, variable

CPU_BUILDS = "https://download.pytorch.org/whl/cpu"


def commands() -> list[list[str]]:
    """The arguments of Python, in the order of their calls.

    The plugin of pytest needs few of esbench's requirements, see light.py. All of them have
    PyTorch, which on Linux PyPI has with 3 GB of CUDA that no policy of a gate uses: its smaller
    build comes first and alone, so nothing else is taken from that index.
    """
    action = Path(variable("ESBENCH_ACTION"))
    pins = action / "constraints.txt"
    is_pinned = variable("ESBENCH_CONSTRAINTS", "true") == "true"
    wanted = [line.strip() for line in variable("ESBENCH_INSTALL").splitlines() if line.strip()]
    if options := [line for line in wanted if line.startswith("-")]:
        end_with_error(f"install: {options[0]!r} is an option; expected one requirement per line")
    pip = ["-m", "pip", "install"]
    install = [*pip, *(["-c", str(pins)] if is_pinned else [])]
    is_light = variable("ESBENCH_COMMAND") and variable("ESBENCH_LIGHT", "true") == "true"
    if is_light and not variable("ESBENCH_HISTORY"):
        light = str(action / "gate-requirements.txt")
        return [
            [*pip, "--no-deps", str(action)],
            [str(action / "action" / "light.py"), light],
            [*install, "-r", light, *wanted],
        ]
    found = [[*install, str(action), *wanted]]
    torch = re.search(r"^torch==\S+$", pins.read_text(encoding="utf-8"), re.MULTILINE)
    if sys.platform == "linux" and is_pinned and torch:
        found.insert(0, [*pip, "--no-deps", "--index-url", CPU_BUILDS, torch[0]])
    return found


def main() -> None:
    """Install in order; the step ends with the first exit code that is not 0."""
    for words in commands():
        if code := subprocess.run([sys.executable, *words], check=False).returncode:
            raise SystemExit(code)


if __name__ == "__main__":
    main()
