"""The checkpoints of a trial: a trainer's state as JSON, and the safetensors file that it names.

The JSON has digests of the arrays, of the rows so far and of itself, which are compared whenever a
checkpoint is loaded.

The latest checkpoint is ``checkpoint/state.json``; earlier ones that were kept are
``kept/GENERATION.json``. The arrays are written first, to a file that is named by its content. Then
the JSON is replaced atomically, so it always names complete arrays.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from esbench.core.arrays import with_arrays, without_arrays
from esbench.core.errors import UsageError
from esbench.core.files import disk_errors, read_bytes, replace
from esbench.core.json_text import Json
from esbench.grids.trial_spec import differences, extends
from esbench.store.row_files import KnownRows, MetricsFile
from esbench.store.stored_json import (
    CHECKPOINT,
    KEPT,
    StoredCheckpoint,
    damaged,
    read_stored,
    write_stored,
)

LATEST: Final = f"{CHECKPOINT}/state.json"


@final
class Checkpoints:
    """The checkpoints of one trial.

    Every method raises ``UsageError`` if the file system refuses.
    """

    def __init__(self, folder: Path, metrics: MetricsFile) -> None:
        self._folder = folder
        self._metrics = metrics

    @property
    def has_latest(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return (self._folder / LATEST).exists()

    @property
    def kept(self) -> list[int]:
        """The generations of the earlier checkpoints that were kept, sorted."""
        stems = [path.stem for path in (self._folder / KEPT).glob("*.json")]
        return sorted(int(stem) for stem in stems if len(stem) >= 8 and stem.isdecimal())

    def load(self, spec: Json, generation: int | None = None) -> Json | None:
        """The state of a generation (default the latest); None if there is no checkpoint.

        UsageError if it is of another specification, or if there is none of that generation.
        DamagedTrialError if it, or the rows up to it, are not what was written.
        """
        kept = self.kept
        if generation in kept:
            path = self._folder / KEPT / kept_name(generation)
        elif self.has_latest:
            path = self._folder / LATEST
        else:
            return None
        state = _load(path, spec, self._metrics)
        found = state["progress"]["generation"]
        if generation in {None, found}:
            return state
        if generation in kept:
            raise damaged(path, f"it is of generation {found}")
        known = sorted({*kept, found})
        raise UsageError(
            f"{self._folder} has no checkpoint of generation {generation}; expected one of {known} "
            "(esbench run --keep N keeps more)"
        )

    def save(self, state: Json, spec: Json) -> None:
        """Write a state as the latest checkpoint and wait until it is on disk."""
        self._write(self._folder / LATEST, state, spec, "*")

    def keep(self, state: Json, spec: Json) -> None:
        """Keep a state beside the latest checkpoint."""
        path = self._folder / KEPT / kept_name(state["progress"]["generation"])
        self._write(path, state, spec, f"{path.stem}-*")

    def _write(self, path: Path, state: Json, spec: Json, replaced: str) -> None:
        """Write the arrays, then ``path``, which names them; remove other arrays ``replaced``."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        plain = without_arrays(state, arrays)
        generation = state["progress"]["generation"]
        data = safetensors.numpy.save(arrays)
        digest = hashlib.sha256(data).hexdigest()
        # One generation can have two states: that after a probe is not that of its row.
        tensors = path.with_name(f"{generation:08d}-{digest[:8]}.safetensors")
        content = {
            "arrays": {"file": tensors.name, "size": len(data), "sha256": digest},
            "rows": self._metrics.digest(generation),
            "state": plain,
            "spec": spec,
        }
        with disk_errors(path.parent):
            path.parent.mkdir(exist_ok=True)
            replace(tensors, data)
            write_stored(path, content)
            for old in path.parent.glob(f"{replaced}.safetensors"):
                if old != tensors:
                    old.unlink()


def _load(path: Path, spec: Json, metrics: MetricsFile) -> Json:
    content = read_stored(path, StoredCheckpoint)
    saved, arrays = content["spec"], content["arrays"]
    if saved != spec and not extends(spec, saved):  # it may just have been extended
        what = "; ".join(differences(saved, spec))
        raise UsageError(f"{path} is a checkpoint of another specification: {what}")
    tensors = path.parent / arrays["file"]
    try:
        data = read_bytes(tensors)
    except FileNotFoundError:
        if read_stored(path, StoredCheckpoint)["arrays"] != arrays:
            return _load(path, spec, metrics)  # the running trial has just saved the next one
        raise damaged(tensors, "it is missing") from None
    if hashlib.sha256(data).hexdigest() != arrays["sha256"]:
        raise damaged(tensors, f"its content does not match the sha256 in {path.name}")
    metrics.require(KnownRows(content["state"]["progress"]["generation"], content["rows"]))
    try:
        state: Json = with_arrays(content["state"], safetensors.numpy.load(data))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(tensors, f"its arrays are not readable: {error}") from None
    if saved != spec:
        state["stopped"] = None  # an extended trial is trained further
    return state


def kept_name(generation: int, what: str = "json") -> str:
    """The name of a kept file of a generation."""
    return f"{generation:08d}.{what}"
