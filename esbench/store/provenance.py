"""Records what a result depends on besides its specification."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from esbench.core.escape import printable, without_passwords
from esbench.core.extras import DISTRIBUTION
from esbench.core.git import commit_of
from esbench.core.linux import cpu_info
from esbench.core.processor import arithmetic
from esbench.grids.trial_spec import TrialSpec
from esbench.store.module_files import version_of
from esbench.store.origin import CODE
from esbench.store.own_code import user_code
from esbench.store.package_versions import package_version

PACKAGES: Final = (
    *("torch", "gymnasium", "mujoco", "ale-py", "numpy", "scipy"),
    *("cmaes", "evotorch", "evosax", "jax", "safetensors"),
)
_ITSELF: Final = Path(__file__).resolve().parents[1]
NOT_IN_TRAINING: Final = frozenset({"app", "bench", "cli", "publish", "tuning", "video"})
"""The folders of esbench that training does not import."""
_VECTOR_INSTRUCTIONS: Final = re.compile(r"sse4|fma|avx|amx|bmi")


def provenance(spec: TrialSpec | None = None) -> dict[str, Any]:
    """Versions, git commit, hardware and command of this process, and a trial's own code."""
    return {
        "versions": {
            "python": platform.python_version(),
            "esbench": package_version(DISTRIBUTION),
            CODE: _itself(),
            **{name: package_version(name) for name in PACKAGES},
        },
        "own_code": {} if spec is None else user_code(spec),
        "git_commit": _git_commit(),
        "hardware": {
            "machine": platform.machine(),
            "cpu": cpu_info("model name") or platform.processor(),
            # Libraries choose their code by these. Rented machines with one name differ in them.
            "instructions": " ".join(
                sorted(filter(_VECTOR_INSTRUCTIONS.match, cpu_info("flags").split()))
            ),
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            **({"arithmetic": found} if (found := arithmetic()) else {}),
        },
        "command": command(),
    }


def command() -> str:
    """The command line that started this process, without passwords."""
    return printable(shlex.join(map(without_passwords, [*_program(), *sys.argv[1:]])))


def _program() -> list[str]:
    """How this program was started: a command, ``python -m MODULE`` or ``python FILE.py``."""
    path = sys.argv[0]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and path == spec.origin:  # only after python -m
        return ["python", "-m", spec.name.removesuffix(".__main__")]
    if path in {"", "-c"}:
        return ["python", path] if path else ["python"]
    name = Path(path).name
    if name == "__main__.py":  # in a process that multiprocessing has started
        return ["python", "-m", _package_name(Path(path).parent)]
    return ["python", name] if name.endswith(".py") else [name]


def _package_name(folder: Path) -> str:
    """The import name of a package in a folder."""
    above = folder.parent
    own = folder.name
    return f"{_package_name(above)}.{own}" if (above / "__init__.py").exists() else own


@cache
def _git_commit() -> str | None:
    """The commit of the checkout that esbench runs from, as ``commit_of``."""
    folder = _ITSELF.parent
    return commit_of(folder, ("esbench", "envs"))[0] if (folder / ".git").exists() else None


@cache
def _itself() -> str:
    return version_of(_ITSELF / "__init__.py", without=NOT_IN_TRAINING)


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
