"""Messages of a child that has died end, even if a process that it started holds the pipe."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from esbench.engine.child_process import Child, Parent, end, wait_for

LARGE = 10_000_000  # bytes, more than a pipe holds


def hold_the_pipe(flag: Path) -> None:
    """Leave a process that runs until the flag is removed, at most 20 s."""
    if os.fork() == 0:
        for _ in range(400):
            if not flag.exists():
                os._exit(0)
            time.sleep(0.05)
        flag.write_text("not removed")
        os._exit(0)


def die_at_once(_: Parent, flag: Path) -> None:
    hold_the_pipe(flag)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_a_message(parent: Parent, flag: Path) -> None:
    hold_the_pipe(flag)
    parent.send("whole")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    parent.send(bytes(LARGE))


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    path = tmp_path / "flag"
    path.touch()
    return path


def test_a_large_message_to_a_dead_child_is_dropped(flag: Path) -> None:
    child = Child(die_at_once, flag)
    assert wait_for([child]) == [child]
    child.send(bytes(LARGE))
    assert child.receive() is None
    assert flag.read_text() == ""
    flag.unlink()
    end([child])


def test_what_a_dying_child_has_sent_is_received_up_to_the_torn_message(flag: Path) -> None:
    child = Child(die_in_a_message, flag)
    os.waitid(os.P_PID, child.process.pid or 0, os.WEXITED | os.WNOWAIT)
    assert child.receive() == "whole"
    assert child.receive() is None
    assert flag.read_text() == ""
    flag.unlink()
    end([child])
