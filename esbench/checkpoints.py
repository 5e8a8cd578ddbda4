"""A trainer's state on disk: JSON, and a safetensors file that it names.

Replacing the JSON is the commit: whatever happens, it names arrays that are there whole. The latest
checkpoint is ``checkpoint/state.json``; those that were kept on the way are
``kept/GENERATION.json``.
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
KEPT: Final = "kept"
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

    @property
    def kept(self) -> list[int]:
        """The generations of those that were kept on the way, sorted."""
        names = (path.stem for path in (self._files.path / KEPT).glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def load(self, spec: TrialSpec, generation: int | None = None) -> Json | None:
        """Return a state; the latest by default, or None if there is none.

        Args:
            spec: of the trial.
            generation: of one that was kept, or the latest one's.

        Raises:
            DamagedTrialError: it is not what was written.
            UsageError: it is of another specification, or of a newer esbench; or no checkpoint of
                that generation was kept.
        """
        latest = self._load(LATEST, spec) if self.has_latest else None
        if generation is None or (latest and latest["progress"]["generation"] == generation):
            return latest
        if generation not in self.kept:
            known = [*self.kept, *([latest["progress"]["generation"]] if latest else [])]
            raise UsageError(
                f"{self._files.path} has no checkpoint of generation {generation}; expected "
                f"one of {known}, which are all there are (esbench run --keep N keeps more)"
            )
        return self._load(_kept_name(generation), spec)

    def _load(self, name: str, spec: TrialSpec) -> Json:
        files, path = self._files, self._files.path / name
        content = files.read(name, _STATE_KEYS)
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
            if files.read(name, _STATE_KEYS)["tensors"] != content["tensors"]:
                return self._load(name, spec)  # the trial runs, and has just saved the next one
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

    def keep(self, state: Json, spec: TrialSpec) -> None:
        """Keep a state beside the latest one.

        Raises:
            UsageError: the file system refuses.
        """
        self._write(self._files.path / _kept_name(state["progress"]["generation"]), state, spec)

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


def _kept_name(generation: int) -> str:
    return f"{KEPT}/{generation:08d}.json"
