"""What a running trial reads and writes, apart from training: its folder, or one elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

from esbench.core.arrays import State
from esbench.core.json_text import Json
from esbench.experiment.trainer import Recorder
from esbench.experiment.trials import Trial
from esbench.store.generation_record import GenerationRecord
from esbench.store.provenance.record import changed_since, command, now


@final
@dataclass(frozen=True)
class Start:
    """The checkpoint and the records from which training continues."""

    history: list[GenerationRecord]  # up to the checkpoint
    state: State | None  # of the trainer; None at the beginning
    records_members: bool  # whether the members' data are stored
    notes: list[str]  # to display with the result


class TrialRecorder(Recorder, Protocol):
    """Writes the records, checkpoints and result of a trial; methods raise ``UsageError``."""

    folder: Path
    """The folder of ``log.txt``."""

    def begin(self, about: Json) -> Start:
        """Prepare for new records of a trainer that runs where ``about`` says, and resume."""

    def keep(self, state: State) -> None:
        """Save the state as the latest checkpoint, and keep a copy of it."""

    def record_nodes(self, nodes: Json) -> None:
        """Store what ``Engine.nodes`` says."""

    def finish(self, result: Json) -> None:
        """Store the result; the trial is done."""

    def fail(self, traceback: str) -> None:
        """Store the error of a failed trial."""


@final
class FolderRecorder:
    """Writes to the folder of a trial, which is locked."""

    def __init__(self, trial: Trial) -> None:
        self.folder = trial.folder.path
        self._trial = trial

    def begin(self, about: Json) -> Start:
        """As ``TrialRecorder`` says; UsageError as ``TrialFolder.begin``."""
        trial, folder = self._trial, self._trial.folder
        description = {
            "labels": trial.labels,
            "inherited": list(trial.inherited),
            "defaults": list(trial.spec.algorithm.defaults),
            "created": now(),
            **about,
            "command": command(),
        }
        late = trial.record_members and not folder.records_members
        history = folder.begin(trial.spec, description, trial.extend, trial.record_members)
        trial.record_scores()
        notes = [f"started with {other}"] if (other := other_code(trial)) else []
        if late and history:
            notes.append(f"members recorded from generation {len(history) + 1}")
        return Start(history, folder.load_checkpoint(), folder.records_members, notes)

    def append(self, record: GenerationRecord, members: Mapping[str, Any]) -> None:
        """Append one row, and the members' data if they are stored."""
        self._trial.folder.append(record, members)

    def checkpoint(self, state: State) -> None:
        """Save the state after the rows so far, and wait until it is on disk."""
        self._trial.folder.checkpoint(state)

    def keep(self, state: State) -> None:
        """Save the state as the latest checkpoint, and keep a copy of it."""
        self._trial.folder.keep(state)

    def record_nodes(self, nodes: Json) -> None:
        """Store what ``Engine.nodes`` says."""
        self._trial.folder.record_nodes(nodes)

    def finish(self, result: Json) -> None:
        """Write the result; the trial is done."""
        self._trial.folder.finish(result)

    def fail(self, traceback: str) -> None:
        """Write the error of a failed trial."""
        self._trial.folder.fail(traceback)

    def log(self, output: bytes) -> None:
        """Append the output of environments that another machine has logged."""
        self._trial.folder.append_log(output)


def other_code(trial: Trial) -> str:
    """What a stored trial was trained with that is another version here; empty if nothing."""
    changed = " and ".join(changed_since(trial.folder.description()))
    return changed and f"a different version of {changed}"
