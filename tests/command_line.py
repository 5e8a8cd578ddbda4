"""The command line run within the tests' process, and Python run in another one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from esbench import cli
from esbench.core import process
from esbench.core.user_code import FOLDERS
from esbench.store import module_files, own_code
from esbench.store.imported_names import imported_names

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""The fixture ``esbench``: ``esbench ARGUMENTS`` gives exit code, stdout and stderr."""


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make ``folder`` the current one, and undo in the end what commands do to imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", list(sys.argv))
        yield
    FOLDERS.clear()


def forget_user_code() -> None:
    """Forget what user code was looked at, as another process would not know it."""
    module_files.look_again()
    module_files._digest_of.cache_clear()
    imported_names.cache_clear()
    own_code._READ.clear()


def execute(*arguments: str) -> int:
    """Run ``esbench ARGUMENTS`` and return its exit code; signals are handled as before."""
    sys.argv = ["esbench", *arguments]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    finally:
        process._interrupts.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
    code = exit_.value.code
    return code if isinstance(code, int) else 0


def python(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start Python in a process that can import what this one can; its output is piped."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {**os.environ, **paths, **options.pop("env", {})}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **options)


def finished(*arguments: str, **options: Any) -> tuple[int, str, str]:
    """Run Python in another process: exit code, stdout and stderr."""
    with python(*arguments, **options) as process:
        out, err = process.communicate()
    return process.returncode, out, err


def alive(pid: int) -> bool:
    """Whether a process runs."""
    status = Path(f"/proc/{pid}/status")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" not in status.read_text()
    return False


def children(main: str) -> list[int]:
    """The child processes of this one that run a function of esbench with this name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            status, words = (folder / "status").read_text(), (folder / "cmdline").read_text()
            if f"PPid:\t{os.getpid()}\n" in status and words.endswith(f"\0{main}\0"):
                found.append(int(folder.name))
    return found


def end_soon(pids: Iterable[int]) -> bool:
    """Whether all of some processes end within ten seconds."""
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """The time and content of every file below ``folder``."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}
