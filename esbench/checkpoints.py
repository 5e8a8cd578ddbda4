"""A trainer's state on disk: JSON, and a safetensors file that it names.

Replacing the JSON is the commit: whatever happens, it names arrays that are there whole. The latest
checkpoint is ``checkpoint/state.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, final

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from esbench.errors import UsageError
from esbench.files import (
    Json,
    as_text,
    disk_errors,
    read_bytes,
    replace,
    with_arrays,
    without_arrays,
)
from esbench.spec import TrialSpec, differences, extends
from esbench.trial_files import FORMAT, Keys, TrialFiles

LATEST: Final = "checkpoint/state.json"
_STATE_KEYS: Final[Keys] = {"tensors": str, "state": dict, "spec": dict}


@final
class Checkpoints:
    """The checkpoints of one trial."""

    def __init__(self, files: TrialFiles) -> None:
        self._files = files

    @property
    def has_latest(self) -> bool:
        """Whether there is one to go on from."""
        return (self._files.path / LATEST).exists()

    def load(self, spec: TrialSpec) -> Json | None:
        """Return the latest state, or None if there is none.

        Args:
            spec: of the trial.

        Raises:
            DamagedTrialError: it is not what was written.
            UsageError: it is of another specification, or of a newer esbench.
        """
        if not self.has_latest:
            return None
        files, path = self._files, self._files.path / LATEST
        content = files.read(LATEST, _STATE_KEYS)
        saved = files.parsed(path, content["spec"])
        different = differences(saved, spec)
        if different and not extends(spec, saved):  # it was just extended
            raise UsageError(
                f"{path} is a checkpoint of another specification: {'; '.join(different)}"
            )
        tensors = path.parent / content["tensors"]
        try:
            data = read_bytes(tensors)
        except FileNotFoundError:
            if files.read(LATEST, _STATE_KEYS)["tensors"] != content["tensors"]:
                return self.load(spec)  # the trial runs, and has just saved the next one
            raise files.damaged(tensors, "it is missing") from None
        try:
            state: Json = with_arrays(content["state"], safetensors.numpy.load(data))
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise files.damaged(tensors, f"its arrays are not readable: {error}") from None
        files.require(path, state, {"progress": dict})
        files.require(path, state["progress"], {"generation": int})
        return state

    def save(self, state: Json, spec: TrialSpec) -> None:
        """Make a state the latest one; returns when it is safe on disk.

        Raises:
            UsageError: the file system refuses.
        """
        path = self._files.path / LATEST
        tensors = self._write(path, state, spec)
        with disk_errors(path.parent):
            for old in path.parent.glob("*.safetensors"):
                if old != tensors:
                    old.unlink()

    def _write(self, path: Path, state: Json, spec: TrialSpec) -> Path:
        """Write a state to ``path``, and its arrays beside it; return their file."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        plain = without_arrays(state, arrays)
        tensors = path.with_name(f"{state['progress']['generation']:08d}.safetensors")
        content = {
            "format": FORMAT,
            "tensors": tensors.name,
            "state": plain,
            "spec": spec.model_dump(mode="json"),
        }
        with disk_errors(path.parent):
            path.parent.mkdir(exist_ok=True)
            replace(tensors, safetensors.numpy.save(arrays))
            replace(path, as_text(content))
        return tensors
