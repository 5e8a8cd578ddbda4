"""Records what a result depends on besides its specification, for ``trial.json``."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from esbench.grids.trial_spec import TrialSpec
from esbench.store.provenance.own_code import own_code

PACKAGES: Final = (
    "esbench",
    "torch",
    "gymnasium",
    "mujoco",
    "ale-py",
    "numpy",
    "scipy",
    "cmaes",
    "evotorch",
    "evosax",
    "jax",
    "safetensors",
)
_VECTOR_INSTRUCTIONS: Final = re.compile(r"sse4|fma|avx|amx|bmi")


def provenance(spec: TrialSpec | None = None) -> dict[str, Any]:
    """Package versions, git commit, hardware and command of this process.

    Args:
        spec: a trial whose own code is recorded too.
    """
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "own_code": {} if spec is None else own_code(spec),
        "git_commit": _git_commit(),
        "hardware": {
            "machine": platform.machine(),
            "cpu": _cpu("model name") or platform.processor(),
            # Libraries choose their code by these. Rented machines with one name differ in them.
            "instructions": " ".join(
                sorted(filter(_VECTOR_INSTRUCTIONS.match, _cpu("flags").split()))
            ),
            "cores": os.cpu_count(),
            "platform": platform.platform(),
        },
        "command": shlex.join([*_program(), *sys.argv[1:]]),
    }


def _program() -> list[str]:
    """How this program was started: a command, ``python -m MODULE`` or ``python FILE.py``."""
    path = sys.argv[0]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and path == spec.origin:  # only after python -m
        return ["python", "-m", spec.name.removesuffix(".__main__")]
    if path in {"", "-c"}:
        return ["python", path] if path else ["python"]
    name = Path(path).name
    return ["python", name] if name.endswith(".py") else [name]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _git_commit() -> str | None:
    """The commit of the checkout that esbench runs from, with "+" if files have changed."""
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()


def _cpu(key: str) -> str:
    """A line of the kernel's description of the processor; empty if there is none."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""
