"""Commands in processes of their own that share what is imported, for campaigns."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from esbench import cli
from esbench.core.errors import EsbenchError

SECONDS: Final = 240.0  # of a command; a machine may be slow, and a pipe is waited for forever
MEMORY: Final = 6 << 30  # bytes of addresses; endless files need more
CODES: Final = frozenset({0, 1, 2, 3, 4})


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is None if it did not, negative if a signal ended it."""

    code: int | None
    out: str
    err: str

    @property
    def crash(self) -> str:
        """No end, a traceback or an undocumented exit code; empty if it is none of these."""
        if self.code is None:
            return f"still runs after {SECONDS:g} s"
        if "Traceback (most recent call last)" in self.out + self.err:
            return f"a traceback: {self.err.strip().splitlines()[-1][:300]}"
        if self.code not in CODES:
            return f"exit code {self.code}: {self.err.strip()[-300:]}"
        return ""

    @property
    def fault(self) -> str:
        """What no command may do, whatever its input; empty if it did nothing of it."""
        if self.crash:
            return self.crash
        if self.code == 2 and len(self.err.strip().splitlines()) != 1:
            return f"not one sentence: {self.err.strip()[:300]!r}"
        return ""


def esbench(arguments: Sequence[str], folder: Path) -> Ended:
    """Run ``esbench ARGUMENTS`` in a folder, in a process of its own that is killed if it hangs."""
    return started(arguments, folder).end()


def started(arguments: Sequence[str], folder: Path) -> Started:
    """``esbench ARGUMENTS`` in a process of its own, in a folder."""

    def command() -> None:
        sys.argv = ["esbench", *arguments]
        cli.main()

    return Started(command, folder)


def with_code(function: Callable[[], object]) -> None:
    """Call a function, whose errors of the package become exit codes as in the command line."""
    try:
        function()
    except EsbenchError as error:
        print(f"esbench: {error}".replace("\n", " "), file=sys.stderr)
        sys.exit(2)


class Started:
    """A copy of this process that calls a function."""

    def __init__(self, function: Callable[[], object], folder: Path) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  closed in end
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        self._code: int | None = None
        if not self.pid:
            _child(function, folder, *(file.fileno() for file in self._files))

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code is None

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until a condition holds, it ends, or ``SECONDS`` are over."""
        deadline, pause = time.monotonic() + SECONDS, 0.001
        while self.runs and not until() and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def end(self) -> Ended:
        """Wait for its end, which is forced in the end."""
        self.wait()
        code = None if self.runs else self._code
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if code is None:
            os.waitpid(self.pid, 0)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return Ended(code, *texts)


def forked(function: Callable[[], object], folder: Path) -> Ended:
    """Call a function in a copy of this process."""
    return Started(function, folder).end()


def _child(function: Callable[[], object], folder: Path, out: int, err: int) -> None:
    """Never returns."""
    code = 0
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        vars(sys.modules["__main__"]).pop("__file__", None)  # workers need not import it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        function()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:  # before or after the command, which handles its own
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 70
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
