"""TensorBoard: one event file per trial, written with TensorBoard's own writer (no torch)."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from PIL import Image

from esbench.integrations.library import optional
from esbench.integrations.trackers.tracker import (
    Ending,
    TrackedRow,
    TrackedRun,
    Tracker,
    register_tracker,
    tagged,
)

IMAGES: Final = {".png", ".gif"}  # TensorBoard plays a GIF; it shows no MP4


@register_tracker("tensorboard")
@final
class TensorBoard(Tracker):
    """Event files in ``OUT/tensorboard``; those of a resumed trial are written anew."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.view = shlex.join(["tensorboard", "--logdir", str(folder)])
        parts = (
            "summary.writer.event_file_writer",
            "compat.proto.event_pb2",
            "compat.proto.summary_pb2",
            "plugins.hparams.summary_v2",
        )
        self._writers, self._events, self._summaries, self._hparams = (
            optional(f"tensorboard.{part}", "tensorboard", "tracker 'tensorboard'")
            for part in parts
        )
        self._runs: dict[str, Any] = {}  # writers by id
        self._steps: dict[str, int] = {}  # the last by id

    def start(self, run: TrackedRun) -> int:
        """Open a new event file in place of earlier ones."""
        folder = self.folder / run.path
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        writer = self._runs[run.id] = self._writers.EventFileWriter(str(folder))
        # A running TensorBoard has read the old file: it drops all steps from 0.
        log = self._events.SessionLog(status=self._events.SessionLog.START)
        writer.add_event(self._events.Event(wall_time=time.time(), step=0, session_log=log))
        self._steps[run.id] = 0
        self._add(run, self._hparams.hparams_pb(_hparams(run), trial_id=run.id))
        return -1

    def log(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """One event per row."""
        for step, numbers in rows:
            self._steps[run.id] = step
            value = self._summaries.Summary.Value
            tags = tagged(numbers).items()
            values = [value(tag=name, simple_value=number) for name, number in tags]
            self._add(run, self._summaries.Summary(value=values))
        self._runs[run.id].flush()

    def end(self, run: TrackedRun, outcome: Ending, files: Sequence[Path]) -> None:
        """Add images under the names of their files, and close the event file."""
        for path in files:
            if path.suffix in IMAGES:
                with Image.open(path) as opened:
                    width, height = opened.size
                image = self._summaries.Summary.Image(
                    width=width, height=height, encoded_image_string=path.read_bytes()
                )
                value = self._summaries.Summary.Value(tag=path.stem, image=image)
                self._add(run, self._summaries.Summary(value=[value]))
        self._runs.pop(run.id).close()

    def _add(self, run: TrackedRun, summary: Any) -> None:
        event = self._events.Event(wall_time=time.time(), step=self._steps[run.id], summary=summary)
        self._runs[run.id].add_event(event)


def _hparams(run: TrackedRun) -> dict[str, bool | float | str]:
    """The configuration in the types that TensorBoard knows."""
    known = (bool, int, float, str)
    return {
        key: value if isinstance(value, known) else json.dumps(value)
        for key, value in run.config.items()
    }
