"""Limits count only the time in which this process could run."""

import threading
from types import SimpleNamespace

import pytest

from esbench.core import clock
from esbench.core.clock import TICK, RunningTime, join, within


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time in a list, to be changed."""
    time = [100.0]
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


@pytest.mark.parametrize(
    ("gaps", "seconds"),
    [
        ([], 0.0),
        ([0.5, 0.25, 1.0], 1.75),
        ([0.5, 3600.0, 0.5], 1.0 + TICK),  # Ctrl-Z
        ([30.0] * 10, 10 * TICK),  # a machine that is always late still reaches a limit
    ],
)
def test_a_gap_counts_as_one_tick(now: list[float], gaps: list[float], seconds: float) -> None:
    running = RunningTime()
    for gap in gaps:
        now[0] += gap
        last = running()
    assert (last if gaps else running()) == seconds


def test_what_is_late_at_every_look_is_slow_and_not_stopped(now: list[float]) -> None:
    running = RunningTime(stops=1)
    for _ in range(3):
        now[0] += 30.0
        last = running()
    assert last == TICK + 60.0


@pytest.mark.parametrize(("gap", "waits"), [(0.5, 4), (1e6, 4), (0.25, 8)])
def test_a_limit_is_reached_by_steps_of_a_tick(now: list[float], gap: float, waits: int) -> None:
    found = []
    for wait in within(2.0):
        found.append(wait)
        now[0] += gap
    assert len(found) == waits
    assert max(found) <= TICK


def test_threads_that_do_not_end_are_given_up() -> None:
    ends = threading.Event()
    threads = [threading.Thread(target=ends.wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert not join(threads, 0.01)
    ends.set()
    assert join(threads, 10.0)
    assert join([], 0.0)
