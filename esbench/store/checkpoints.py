"""A trainer's state on disk: JSON, and a safetensors file that it names.

Replacing the JSON is the commit: whatever happens, it names arrays that are there whole. The latest
checkpoint is ``checkpoint/state.json``; those that were kept on the way are
``kept/GENERATION.json``, beside the result of those that were scored.
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
from esbench.grids.trial_spec import TrialSpec, differences, extends
from esbench.store.defaults import completed_if_known
from esbench.store.trial_files import FORMAT, KEPT, Keys, TrialFiles

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

    @property
    def kept(self) -> list[int]:
        """The generations of those that were kept on the way, sorted."""
        stems = [path.stem for path in (self._files.path / KEPT).glob("*.json")]
        return sorted(int(stem) for stem in stems if len(stem) >= 8 and stem.isdecimal())

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
        kept = self.kept
        if generation in kept:
            return self._load_kept(generation, spec)
        latest = self._load(LATEST, spec) if self.has_latest else None
        if generation is None or latest is None:
            return latest
        last: int = latest["progress"]["generation"]
        if generation != last:
            known = sorted({*kept, last})
            raise UsageError(
                f"{self._files.path} has no checkpoint of generation {generation}; expected one "
                f"of {known}, which are all there are (esbench run --keep N keeps more)"
            )
        return latest

    def _load_kept(self, generation: int, spec: TrialSpec) -> Json:
        name = f"{KEPT}/{kept_name(generation)}"
        state = self._load(name, spec)
        found = state["progress"]["generation"]
        if found != generation:
            raise self._files.damaged(self._files.path / name, f"it is of generation {found}")
        return state

    def _load(self, name: str, spec: TrialSpec) -> Json:
        files, path = self._files, self._files.path / name
        content = files.read(name, _STATE_KEYS)
        saved, wanted = files.parsed(path, content["spec"]), spec
        if saved != wanted:  # completing imports what they name
            saved, wanted = completed_if_known(saved), completed_if_known(wanted)
        different = differences(saved, wanted)
        if different and not extends(wanted, saved):  # it was just extended
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
        name = kept_name(state["progress"]["generation"])
        self._write(self._files.path / KEPT / name, state, spec)

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


def kept_name(generation: int, what: str = "json") -> str:
    """Return the name of what was kept of a generation."""
    return f"{generation:08d}.{what}"
