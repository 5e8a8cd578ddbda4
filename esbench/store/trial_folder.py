"""Trials on disk. One folder a trial, safe to kill at any moment.

    trial.json      what is trained: specification, hash, versions, commit, hardware, command
    metrics.jsonl   one object a generation, appended; a torn last line is dropped on resume
    checkpoint/     state.json names the safetensors file beside it; replacing it is the commit
    kept/           checkpoints of earlier generations that were asked for, or scored before the
                    trial was extended
    result.json     written last: its presence means done
    error.txt       the traceback of a failed trial; gone when it is retried
    log.txt         what environments and simulators printed
    lock            held (flock) by the process that runs the trial; freed however that ends

Rows are synced to disk before the checkpoint that follows them, so a checkpoint never knows more
generations than the rows. Everything but the rows is replaced atomically. There is no pickle.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from esbench.errors import UsageError
from esbench.files import RESUMABLE, Json, as_text, disk_errors, remove_temporaries, replace
from esbench.grids.trial_spec import TrialSpec, differences, extends
from esbench.store.checkpoints import LATEST, Checkpoints, kept_name
from esbench.store.defaults import completed_if_known
from esbench.store.generation_record import GenerationRecord
from esbench.store.lock import is_taken, take
from esbench.store.metrics_file import MetricsFile, as_record
from esbench.store.trial_files import FORMAT, KEPT, Keys, TrialFiles
from esbench.units import format_number

Status: TypeAlias = Literal["missing", "partial", "running", "failed", "done"]

_NUMBER: Final = (int, float)
_TRIAL_KEYS: Final[Keys] = {"spec": dict, "labels": dict}
_ORIGIN_KEYS: Final[Keys] = {
    "versions": dict,
    "hardware": dict,
    "git_commit": str,
    "command": str,
    "created": str,
}
_LABEL_KEYS: Final[Keys] = {"environment": str, "algorithm": str, "policy": str}
_RESULT_KEYS: Final[Keys] = {
    "score": (*_NUMBER, NoneType),
    "env_steps": int,
    "wall_time_s": _NUMBER,
}


@final
class TrialFolder:
    """A trial on disk. Reading never changes it; writing needs the lock.

    Everything that reads raises ``DamagedTrialError`` for a file that is not what was written, and
    ``UsageError`` for one of a newer esbench or one that the file system refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = TrialFiles(path)
        self._checkpoints = Checkpoints(self._files)
        self._metrics = MetricsFile(self._files)
        self._spec: TrialSpec | None = None

    # Reading

    @property
    def status(self) -> Status:
        """Where the trial stands."""
        if self.is_done:
            return "done"
        if not (self.path / "trial.json").exists():
            return "missing"
        if is_taken(self.path / "lock"):
            return "running"
        return "failed" if (self.path / "error.txt").exists() else "partial"

    @property
    def is_done(self) -> bool:
        """Whether the trial has its result."""
        return (self.path / "result.json").exists()

    @property
    def has_checkpoint(self) -> bool:
        """Whether the trial has a checkpoint to go on from."""
        return self._checkpoints.has_latest

    @property
    def kept(self) -> list[int]:
        """The generations whose checkpoints were kept on the way, sorted."""
        return self._checkpoints.kept

    def description(self) -> Json:
        """Return ``trial.json``; what its specification lacks has its default.

        Raises:
            UsageError: it is missing, damaged, or of a newer version of esbench.
        """
        content, spec = self._described()
        return content | {"spec": spec.model_dump(mode="json")}

    def spec(self) -> TrialSpec:
        """Return the trial's specification; raises what ``description`` does."""
        return self._described()[1]

    def rows(self) -> list[Json]:
        """Return the rows of ``metrics.jsonl``, without a torn last line."""
        scored = self._generations_scored()
        rows = self._metrics.rows()
        self._require_rows(len(rows), scored)
        return rows

    def records(self) -> list[GenerationRecord]:
        """Return the rows as records; null is NaN again."""
        return [as_record(row) for row in self.rows()]

    def columns(self, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the rows key by key: the values of ``keys`` (all by default), [generations].

        Whole numbers are int64, other numbers float64 with NaN for null; texts are objects.
        """
        scored = self._generations_scored()
        columns = self._metrics.columns(*keys)
        self._require_rows(len(next(iter(columns.values()))), scored)
        return columns

    def result(self) -> Json:
        """Return ``result.json``; its score is None if it was not finite.

        Raises:
            UsageError: it is missing, damaged, or of a newer version of esbench.
        """
        return self._files.read("result.json", _RESULT_KEYS)

    def result_of(self, generation: int) -> Json | None:
        """Return what the policy after some generations scored, or None if it was not scored.

        Raises:
            UsageError: it is damaged, or of a newer version of esbench.
        """
        if self.is_done and (result := self.result()).get("generations") == generation:
            return result
        kept = self._kept_result(generation)
        if not kept.exists():
            return None
        return self._files.read(str(kept.relative_to(self.path)), _RESULT_KEYS)

    def error(self) -> str:
        """Return the traceback of a failed trial.

        Raises:
            UsageError: it cannot be read.
        """
        path = self.path / "error.txt"
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise self._files.damaged(path, f"not readable: {error}") from None

    def check(self, wanted: TrialSpec, extend: bool = False) -> None:
        """Refuse a folder that holds another specification.

        Args:
            wanted: what it is to hold.
            extend: allow the same one with a smaller budget.

        Raises:
            UsageError: names every setting that differs.
        """
        if not (self.is_done or (self.path / "trial.json").exists()):
            return
        stored = completed_if_known(self.spec())
        different, larger = differences(stored, wanted), extends(wanted, stored)
        if different and not (extend and larger):
            remedy = "go on from it with --extend, give" if larger else "give"
            raise UsageError(
                f"{self.path} holds another trial: {'; '.join(different)}. Nothing was changed; "
                f"{remedy} another folder with --out, or undo the edit"
            )

    def is_smaller(self, wanted: TrialSpec) -> bool:
        """Tell whether the folder holds a trial that is ``wanted`` but for a smaller budget."""
        return (self.path / "trial.json").exists() and extends(
            wanted, completed_if_known(self.spec())
        )

    def load_checkpoint(self, generation: int | None = None) -> Json | None:
        """Return the trainer's state as it was saved, or None if none was.

        Args:
            generation: of a checkpoint that was kept; the latest by default.

        Raises:
            UsageError: the checkpoint is damaged, of another specification, or of a newer esbench;
                or there is none of that generation.
        """
        if generation is None and not self.has_checkpoint:
            return None
        return self._checkpoints.load(self.spec(), generation)

    # Writing

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Try to take the trial for this process; gives whether it could.

        Raises:
            UsageError: the file system refuses.
        """
        begun = (self.path / "trial.json").is_file()
        with disk_errors(self.path, RESUMABLE if begun else "; nothing was saved"):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("ab")
        with lock:
            with disk_errors(self.path / "lock"):
                mine = take(lock)
            try:
                yield mine
            finally:
                if mine:
                    self.close()

    def begin(
        self, spec: TrialSpec, description: Json, extend: bool = False
    ) -> list[GenerationRecord]:
        """Write ``trial.json`` if it is new, and return the rows the checkpoint stands on.

        Rows after the checkpoint are dropped: the same ones will be computed again. A trial that
        goes on under other versions, or with other workers, says so in ``resumed_with``.
        What a killed process left half written is removed.

        With ``extend``, a trial of a smaller budget gets that of ``spec``, and is no longer done;
        the checkpoint that was scored is kept, and with which score, in ``extended``.

        Raises:
            UsageError: the folder holds another specification, or cannot be written.
            DamagedTrialError: there is no going on from what it holds.
        """
        self.close()
        self.check(spec, extend)
        rows = self._rows_of_checkpoint(spec)  # what is damaged is known before anything is written
        if self.is_smaller(spec):
            self._extend(spec, description, len(rows))
        self._spec = spec
        self._describe(spec, description)
        with disk_errors(self.path):
            remove_temporaries(self.path)
            remove_temporaries(self.path / "checkpoint")
            remove_temporaries(self.path / KEPT)
            self._metrics.begin(rows)
            (self.path / "error.txt").unlink(missing_ok=True)
        return [as_record(row) for row in rows]

    def append(self, record: GenerationRecord) -> None:
        """Append one row.

        Raises:
            UsageError: the file system refuses.
        """
        self._metrics.append(record)

    def checkpoint(self, state: Json) -> None:
        """Keep the state after the rows so far; returns when it is safe on disk.

        Raises:
            UsageError: the file system refuses.
        """
        assert self._spec is not None, "begin first"
        self._metrics.sync()
        self._checkpoints.save(state, self._spec)

    def keep(self, state: Json) -> None:
        """Keep the state for good, besides the one to go on from.

        Raises:
            UsageError: the file system refuses.
        """
        assert self._spec is not None, "begin first"
        self._checkpoints.keep(state, self._spec)

    def finish(self, result: Json) -> None:
        """Write the result; the trial is done.

        Raises:
            UsageError: the file system refuses.
        """
        assert self._spec is not None, "begin first"
        with disk_errors(self.path):
            named = self._described()[0].get("hash", self._spec.hash)
            content = {"format": FORMAT, "hash": named, **result}
            replace(self.path / "result.json", as_text(content))

    def fail(self, traceback: str) -> None:
        """Keep the traceback of a trial that could not go on.

        Raises:
            UsageError: the file system refuses.
        """
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            replace(self.path / "error.txt", traceback)

    def close(self) -> None:
        """Close the rows' file."""
        self._metrics.close()

    def _described(self) -> tuple[Json, TrialSpec]:
        path = self.path / "trial.json"
        if not (self.is_done or path.exists()):
            raise UsageError(f"no file {str(path)!r}; expected a trial's folder")
        content = self._files.read("trial.json", _TRIAL_KEYS)
        self._files.require(path, content["labels"], _LABEL_KEYS)
        known = {key: kind for key, kind in _ORIGIN_KEYS.items() if content.get(key) is not None}
        self._files.require(path, content, known)
        return content, self._files.parsed(path, content["spec"])

    def _describe(self, spec: TrialSpec, description: Json) -> None:
        path = self.path / "trial.json"
        if path.exists():
            content = self._described()[0]
            resumed: list[Json] = content.get("resumed_with", [])
            latest = resumed[-1] if resumed else content
            workers = description.get("workers")
            if (
                latest.get("versions") == description.get("versions")
                and latest.get("workers", workers) == workers
                and (latest.get("own_code") or {}) == (description.get("own_code") or {})
            ):
                return
            known = ("created", "versions", "own_code", "workers", "command")
            again = {key: description.get(key) for key in known}
            content["resumed_with"] = [*resumed, again]
        else:
            common = {"format": FORMAT, "hash": spec.hash, "spec": spec.model_dump(mode="json")}
            content = common | description
        with disk_errors(path):
            replace(path, as_text(content))

    def _extend(self, spec: TrialSpec, description: Json, generation: int) -> None:
        """Give the trial a larger budget; what was scored is kept, policy and result."""
        path, content = self.path / "trial.json", self._described()[0]
        if self.is_done:
            state = self.load_checkpoint()
            if state is None:
                raise self._files.damaged(self.path / LATEST, "it is missing: no going on")
            self.result()  # it can be read
            self._checkpoints.keep(state, self.spec())
            with disk_errors(self.path):
                # Before the rest: a trial that is killed in between is half done under its old
                # budget, not done under its new one.
                (self.path / "result.json").replace(self._kept_result(generation))
        before = {
            "budget": content["spec"]["budget"],
            "generation": generation,
            "score": (self.result_of(generation) or {}).get("score"),
            "command": content.get("command"),
            "extended": description.get("created"),
        }
        content["extended"] = [*content.get("extended", []), before]
        content |= {"hash": spec.hash, "spec": spec.model_dump(mode="json")}
        content["command"] = description.get("command")  # it makes the whole trial elsewhere
        with disk_errors(path):
            replace(path, as_text(content))

    def _generations_scored(self) -> int:
        """Return how many rows there are at least; to be asked before they are read.

        A trial may end while it is read: its result is written after its last row.
        """
        scored = self.result().get("generations") if self.is_done else 0
        return scored if isinstance(scored, int) else 0

    def _require_rows(self, readable: int, scored: int) -> None:
        if readable < scored:
            problem = f"the result is of generation {scored}, but only {readable} rows are readable"
            raise self._files.damaged(self._metrics.path, problem)

    def _kept_result(self, generation: int) -> Path:
        return self.path / KEPT / kept_name(generation, "result.json")

    def _rows_of_checkpoint(self, spec: TrialSpec) -> list[Json]:
        path = self.path / "trial.json"
        if self.has_checkpoint and not path.exists():  # nobody knows under which versions it began
            raise self._files.damaged(path, "it is missing, beside a checkpoint")
        checkpoint = self._checkpoints.load(spec)
        generation = 0 if checkpoint is None else checkpoint["progress"]["generation"]
        rows = self.rows()
        if len(rows) < generation:
            problem = f"the checkpoint is of generation {generation}, but only {len(rows)} rows"
            raise self._files.damaged(self._metrics.path, f"{problem} are readable")
        return rows[:generation]


def find_trials(root: Path) -> list[TrialFolder]:
    """Return the trials anywhere below ``root``, sorted by path.

    Raises:
        UsageError: there is no such folder, or no trial in it.
    """
    if not root.is_dir():
        raise UsageError(f"no folder {str(root)!r}; expected an output folder of 'esbench run'")
    found = sorted(path.parent for path in root.rglob("trial.json"))
    if not found:
        raise UsageError(f"no trial in {str(root)!r}; expected an output folder of 'esbench run'")
    return [TrialFolder(path) for path in found]


def score_text(result: Json) -> str:
    """Return a result's score in words: "score 12.3", or how many episodes were not finite.

    Args:
        result: before it is written (NaN) or as it is read (None for NaN).
    """
    if _is_finite(result["score"]):
        return f"score {format_number(result['score'])}"
    returns = result.get("returns", [])
    bad = sum(not _is_finite(value) for value in returns)
    why = f" ({bad} of {len(returns)} held-out episodes not finite)" if bad else ""
    return f"score -{why}"


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
