"""What the machine refuses is one sentence about the limit, not an error of a trial."""

import errno
import resource
import subprocess
import threading
from typing import Any

import pytest

from esbench.core import process
from esbench.core.errors import LimitError, limit_error
from esbench.core.process import reserve_descriptors
from esbench.engine.child_process import Child
from esbench.experiment import trial_processes
from esbench.experiment.trial_processes import TrialServer


def _execute_child(*_: object) -> None:  # the name of the function of subprocess that forks
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def refused(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def raised(call: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def chained() -> None:
    try:
        refused()
    except RuntimeError:
        raise ValueError("what user code makes of it") from None


def read_nothing() -> None:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("error", "free", "limited"),
    [
        (raised(_execute_child), True, True),
        (raised(read_nothing), False, False),  # of a socket that does not wait
        (raised(refused), True, True),
        (raised(chained), True, True),
        (OSError(errno.EMFILE, "Too many open files"), True, True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True, True),
        (OSError(errno.ENOSPC, "No space left on device"), False, False),
        (MemoryError(), False, True),  # without ulimit -v, user code wants too much
        (ImportError("x.so: failed to map segment from shared object"), False, True),
        (ImportError("No module named 'x'"), False, False),
        (RuntimeError("the simulator fell over"), False, False),
    ],
)
def test_errors_that_say_a_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch, error: Exception, free: bool, limited: bool
) -> None:
    for most, expected in ((resource.RLIM_INFINITY, free), (10**9, limited)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        assert isinstance(limit_error(error), LimitError) == expected


@pytest.mark.parametrize(
    ("soft", "hard", "more", "raised_to"),
    [(10**6, 10**6, 500, None), (100, 10**6, 500, 500), (100, 200, 500, "refused")],
)
def test_the_soft_limit_of_open_files_is_raised_up_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, more: int, raised_to: Any
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    if raised_to == "refused":
        with pytest.raises(LimitError, match="200 are allowed|at most 200"):
            reserve_descriptors(more)
        return
    reserve_descriptors(more)
    assert [hard for _, hard in limits] == ([] if raised_to is None else [hard])
    assert all(raised_to < soft < raised_to + 1000 for soft, _ in limits)


@pytest.mark.parametrize("what", ["process", "thread"])
def test_a_refused_process_ends_the_grid_and_fails_no_trial(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "process":
        monkeypatch.setattr(subprocess.Popen, "_execute_child", _execute_child)
    else:
        monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(LimitError, match="ulimit -u"):
        Child(trial_processes.trial_main)
    server = TrialServer()
    server.assign(0, 0, (process.occupy_streams, ()), None)
    ((place, error),) = server.receive(0)
    assert (place, type(error)) == (0, LimitError)
