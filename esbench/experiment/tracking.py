"""Passes what trials record to trackers, in a thread each; a tracker never delays a trial."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, final

from esbench.core.clock import join
from esbench.core.errors import error_text
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Outcome, Watcher
from esbench.grids.trial_spec import flatten
from esbench.integrations.trackers.tracker import TrackedRow, TrackedRun, Tracker
from esbench.store.generation_record import GenerationRecord

PERIOD_SECONDS: Final = 1.0  # between two writes, so that one write holds many rows
MOST_EVENTS: Final = 10_000  # that wait for a tracker; one generation each
CLOSE_SECONDS: Final = 30.0  # for every trial that is not yet written when training ends
TRACKED: Final = ("trial_started", "generation_done", "trial_ended")
FILES: Final = {".png", ".gif", ".mp4"}

Draw: TypeAlias = Callable[[Trial, Path], object]
"""Writes figures of a trial to a folder."""
_Event: TypeAlias = tuple[str, Trial, Any]


@final
class TrackedGrid:
    """A ``Watcher`` that passes events to another one and to trackers.

    A tracker that raises, hangs or falls behind is dropped; ``warn`` is called once with the
    reason. Runs that are complete are not written again; those that a tracker lost are, when the
    grid is run again.
    """

    def __init__(
        self,
        watcher: Watcher,
        trackers: Mapping[str, Tracker],
        root: Path,
        warn: Callable[[str], None],
        draw: Draw,
    ) -> None:
        self._watcher = watcher
        self._lanes = [_TrackerThread(name, trackers[name], root, warn, draw) for name in trackers]

    def close(self) -> None:
        """Wait until the trackers have written everything, or drop them."""
        for lane in self._lanes:
            lane.close()

    @property
    def views(self) -> list[str]:
        """Of each tracker that was not dropped, how to see what it wrote."""
        kept = [lane for lane in self._lanes if lane.tracker.view and not lane.dropped]
        return [f"{lane.name}: {lane.tracker.view}" for lane in kept]

    def __getattr__(self, event: str) -> Callable[..., None]:
        """A method of ``Watcher``; trackers receive the calls of those in ``TRACKED``."""

        def happened(trial: Trial, *details: Any) -> None:
            getattr(self._watcher, event)(trial, *details)
            if event in TRACKED:
                for lane in self._lanes:
                    lane.post((event, trial, details[0]))

        return happened


@final
class _TrackerThread:
    """One tracker, its events that wait, and the thread that calls it."""

    def __init__(
        self, name: str, tracker: Tracker, root: Path, warn: Callable[[str], None], draw: Draw
    ) -> None:
        self.name, self.tracker, self._root = name, tracker, root
        self._warn, self._draw = warn, draw
        self._events: deque[_Event] = deque()
        # The open runs and their last logged steps, by folder of the trial.
        self._runs: dict[Path, TrackedRun] = {}
        self._steps: dict[Path, int] = {}
        self._closing = threading.Event()
        self.dropped = False
        self._ended = 0  # trials
        # A daemon, because the process must end while a tracker hangs.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def post(self, event: _Event) -> None:
        """Let the thread handle an event; returns at once."""
        if len(self._events) >= MOST_EVENTS:
            self._drop(f"{MOST_EVENTS} generations wait for it")
        elif not self.dropped:
            self._events.append(event)

    def close(self) -> None:
        """Wait until all is written, while every ``CLOSE_SECONDS`` at least one trial is."""
        self._closing.set()
        ended = -1
        while not join([self._thread], CLOSE_SECONDS) and ended < self._ended:
            ended = self._ended
        if self._thread.is_alive():
            self._drop(f"it did not end a run within {CLOSE_SECONDS:g} s")

    def _drop(self, reason: str) -> None:
        if not self.dropped:
            self.dropped = True
            self._events.clear()
            self._warn(
                f"tracker {self.name!r} stopped: {reason}; training is not affected, and the same "
                "command writes later what is missing"
            )

    def _work(self) -> None:
        try:
            closing = False
            while not (closing or self.dropped):
                closing = self._closing.wait(PERIOD_SECONDS)
                self._handle_events()
            for path in [] if self.dropped else list(self._runs):
                self.tracker.end(self._runs.pop(path), "interrupted", [])
        except BaseException as error:  # of the tracker, which may raise anything
            self._drop(error_text(error))

    def _handle_events(self) -> None:
        """Handle all events that wait; the rows of a trial are logged together."""
        rows: dict[Path, list[TrackedRow]] = {}
        while self._events and not self.dropped:
            kind, trial, detail = self._events.popleft()
            path = trial.folder.path
            if kind == "generation_done":
                rows.setdefault(path, []).append(_row(detail))
                continue
            self._log(path, rows.pop(path, []))
            if kind == "trial_started":
                self._start(trial, detail)
            elif detail != "elsewhere":
                self._end(trial, detail)
        for path, waiting in rows.items():
            self._log(path, waiting)

    def _start(self, trial: Trial, generations: int) -> None:
        """Open the trial's run if it is not open; log the earlier generations that it lacks."""
        path = trial.folder.path
        if path not in self._runs:
            run = _describe(trial, self._root)
            self._marker(run).unlink(missing_ok=True)  # of a trial that is extended
            self._runs[path], self._steps[path] = run, self.tracker.start(run)
        if generations:
            self._log(path, [_row(record) for record in trial.folder.records()[:generations]])

    def _log(self, path: Path, rows: Sequence[TrackedRow]) -> None:
        """Log rows, without those that a resumed trial has computed again."""
        if self.dropped or not rows:
            return
        if new := [row for row in rows if row[0] > self._steps[path]]:
            self.tracker.log(self._runs[path], new)
            self._steps[path] = new[-1][0]

    def _end(self, trial: Trial, outcome: Outcome) -> None:
        path = trial.folder.path
        if outcome == "skipped":
            if self._marker(_describe(trial, self._root)).exists():
                return
            self._start(trial, len(trial.folder.records()))
        run = self._runs.pop(path, None)
        if run is None or self.dropped:  # a trial that failed before it started has no run
            return
        if outcome == "failed":
            self.tracker.end(run, "failed", [])
            return
        score = trial.folder.result()["score"]
        if score is not None:
            self.tracker.log(run, [(self._steps[path], {"score": score})])
        with TemporaryDirectory() as drawn:
            self._draw(trial, Path(drawn))
            files = sorted({*Path(drawn).iterdir(), *path.iterdir()})
            self.tracker.end(run, "done", [each for each in files if each.suffix in FILES])
        marker = self._marker(run)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        self._ended += 1

    def _marker(self, run: TrackedRun) -> Path:
        """The empty file that says that this run is complete, where the tracker writes now."""
        return self.tracker.folder / ".complete" / _digest(run.id, self.tracker.view)


def _row(record: GenerationRecord) -> TrackedRow:
    """The numbers of a record that were measured: those that are not None or NaN."""
    values = {**asdict(record), **record.losses}
    numbers = {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not math.isnan(value)
    }
    return record.env_steps, numbers


def _describe(trial: Trial, root: Path) -> TrackedRun:
    """The run of a trial that has begun.

    Its id depends on when the trial was created and where, so that a trial that replaces another
    one, or a copy elsewhere, has a run of its own.
    """
    path = trial.folder.path
    created = str(trial.folder.description().get("created"))
    return TrackedRun(
        id=_digest(created, str(path.resolve())),
        name=trial.name,
        group=root.resolve().name,
        path=path.relative_to(root).as_posix(),
        config=flatten({"labels": trial.labels, **trial.spec.as_json()}),
    )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
