"""Trackers that misbehave, and the trials that they must not touch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import finished
from fake_trials import make_records, make_trials, write_trial
from watchers import Watcher

from esbench import Tracker
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment import tracking
from esbench.experiment.run_grid import run_grid
from esbench.experiment.tracking import TrackedGrid
from esbench.experiment.trials import Trial
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]


class Own(Tracker):
    """Keeps what it receives; ``behave`` is called with the name of every call."""

    def __init__(self, folder: Path, behave: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(folder)
        self.behave = behave
        self.steps: list[int] = []
        self.calls: list[str] = []

    def start(self, run: Any) -> int:
        self._called("start")
        return -1

    def log(self, run: Any, rows: Sequence[Any]) -> None:
        self._called("log")
        self.steps += [step for step, numbers in rows if "generation" in numbers]

    def end(self, run: Any, outcome: str, files: Any) -> None:
        self._called(f"end {outcome}")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.behave(name)


def fail(name: str) -> None:
    raise ConnectionError("the server is gone")


def leave(name: str) -> None:
    raise SystemExit(3)


def fail_at_the_end(name: str) -> None:
    if name == "end done":
        raise OSError("disk full")


def hang(name: str) -> None:
    time.sleep(1000)


def tracked(pool: WorkerPool, trial: Trial, own: Own) -> tuple[list[str], list[GenerationRecord]]:
    """Train a trial; return the warnings and its rows."""
    warnings: list[str] = []
    grid = TrackedGrid(Watcher(), {"own": own}, own.folder.parent, warnings.append, lambda *_: None)
    assert run_grid([trial], pool, grid) == ["done"]
    grid.close()
    return warnings, trial.folder.records()


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (fail, "ConnectionError: the server is gone"),
        (fail_at_the_end, "disk full"),
        (leave, "SystemExit"),
        (hang, "0.3 s"),
    ],
)
def test_a_bad_tracker_is_dropped_with_one_warning_and_changes_no_bit(
    behave: Callable[[str], None],
    reason: str,
    make_trial: Make,
    pool: WorkerPool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "CLOSE_SECONDS", 0.3)
    own = Own(tmp_path / "out" / "own", behave)
    (warning,), rows = tracked(pool, make_trial(), own)
    assert reason in warning
    assert "'own'" in warning
    assert own.calls.count("start") == 1
    alone = replace(make_trial(), folder=TrialFolder(tmp_path / "alone"))
    run_grid([alone], pool, Watcher())
    digests = [record.digest for record in alone.folder.records()]
    assert [record.digest for record in rows] == digests
    assert alone.folder.result()["returns"] == make_trial().folder.result()["returns"]


def feed(root: Path, own: Own, generations: int, warn: Callable[[str], None]) -> TrackedGrid:
    """Send a trial's events to a tracker, faster than any training."""
    (trial,) = make_trials(root, seeds=[0])
    records = make_records([0.0] * generations)
    write_trial(trial, records, 1.0)
    grid = TrackedGrid(Watcher(), {"own": own}, root, warn, lambda *_: None)
    grid.trial_started(trial, 0)
    for record in records:
        grid.generation_done(trial, record)
    grid.trial_ended(trial, "done", "")
    return grid


def test_a_tracker_that_falls_behind_is_dropped_while_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "MOST_EVENTS", 50)
    warnings: list[str] = []
    own = Own(tmp_path / "own")
    grid = feed(tmp_path, own, 200, warnings.append)
    (warning,) = warnings  # before it is closed
    assert "50" in warning
    grid.close()
    assert warnings == [warning]
    assert own.calls.count("end done") == 0
    # What it lost is written when the grid is run again.
    again = TrackedGrid(Watcher(), {"own": own}, tmp_path, pytest.fail, lambda *_: None)
    again.trial_ended(make_trials(tmp_path, seeds=[0])[0], "skipped", "")
    again.close()
    assert own.steps == list(range(100, 20_100, 100))


HANGING = """
import signal
from pathlib import Path
from test_tracking import Own, feed, hang
from esbench.experiment import tracking
tracking.CLOSE_SECONDS = 0.2
signal.alarm(30)  # kills a process that does not end
feed(Path("out"), Own(Path("out/own"), hang), 3, print).close()
print("closed")
"""


def test_the_process_ends_while_a_tracker_hangs(tmp_path: Path) -> None:
    code, out, err = finished("-c", HANGING, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.endswith("closed\n")
