"""Trials on disk: one folder per trial, safe to kill at any moment.

    trial.json      what is trained: specification, hash, versions, commit, hardware, command
    metrics.jsonl   one object per generation, appended; a torn last line is dropped on resume
    members.jsonl.gz  what every member did, if requested; one part per generation, appended
    checkpoint/     the latest checkpoint: state.json and the safetensors file that it names
    kept/           earlier checkpoints that were requested, or scored before an extension
    result.json     written last: its presence means the trial is done
    error.txt       traceback of a failed trial; removed when the trial is retried
    log.txt         output of environments and simulators
    best.json       score of the best policy, on request
    nodes.json      the nodes of a cluster that play the trial, as last seen
    lock            held (flock) by the process that runs the trial; released when it ends

Rows and members' data are synced to disk before the checkpoint that follows them, so a checkpoint
is never ahead of them. Every other file is replaced atomically. There is no pickle.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.files import (
    RESUMABLE,
    disk_errors,
    read_bytes,
    remove_temporaries,
    replace,
    shorten_log,
)
from esbench.core.json_text import Json
from esbench.grids.stored_spec import stored_spec
from esbench.grids.trial_spec import TrialSpec, differences, extends
from esbench.store.checkpoints import LATEST, Checkpoints, kept_name
from esbench.store.generation_record import GenerationRecord
from esbench.store.lock import is_taken, release, take
from esbench.store.row_files import KnownRows, MembersFile, MetricsFile
from esbench.store.stored_json import (
    BEST,
    KEPT,
    StoredBest,
    StoredDescription,
    StoredNodes,
    StoredResult,
    damaged,
    read_stored,
    write_stored,
)

Status: TypeAlias = Literal["missing", "partial", "running", "failed", "done"]


@final
class TrialFolder:
    """A trial on disk. Only methods that write change it, and they need the lock.

    Raises:
        DamagedTrialError: a file to be read cannot be understood.
        UsageError: a file has another format, or the file system refuses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = MetricsFile(path)
        self._members = MembersFile(path)
        self.checkpoints = Checkpoints(path, self._metrics)
        self._spec: Json

    @property
    def status(self) -> Status:
        """Where the trial stands."""
        self._require_plain()
        if self.is_done:
            return "done"
        has_failed = (self.path / "error.txt").exists()
        if (self.has_begun or has_failed) and is_taken(self.path / "lock"):
            return "running"
        if has_failed:
            return "failed"
        return "partial" if self.has_begun else "missing"

    @property
    def has_begun(self) -> bool:
        """Whether the trial is described, before its first generation."""
        return (self.path / "trial.json").exists()

    @property
    def is_done(self) -> bool:
        """Whether the trial has its result."""
        return (self.path / "result.json").exists()

    @property
    def kept(self) -> list[int]:
        """The generations of the earlier checkpoints that were kept, sorted."""
        return self.checkpoints.kept

    def description(self) -> Json:
        """The content of ``trial.json``. Reading it needs no plugin of the trial."""
        path = self.path / "trial.json"
        if not (self.is_done or self.has_begun):
            below = min(self.path.rglob("trial.json"), default=None)
            near = f", such as {str(below.parent)!r}" if below else ""
            raise UsageError(f"no file {str(path)!r}; expected the folder of a trial{near}")
        self._require_plain()
        return read_stored(path, StoredDescription)

    def spec(self, trusted: bool = False) -> TrialSpec:
        """The typed specification; UsageError as ``stored_spec``."""
        return stored_spec(self.description()["spec"], str(self.path / "trial.json"), trusted)

    def records(self) -> list[GenerationRecord]:
        """The rows of ``metrics.jsonl``; NaN for what is not finite."""
        return self._metrics.records(self._scored())

    def columns(self, *keys: str) -> dict[str, np.ndarray[Any, Any]]:
        """The rows as arrays [generations] by key, as ``MetricsFile.columns``."""
        return self._metrics.columns(self._scored(), *keys)

    @property
    def records_members(self) -> bool:
        """Whether the members' data are stored."""
        return self._members.path.exists()

    def members(self) -> list[Json]:
        """The members' data, one table per generation since they are stored; NaN is None."""
        scored = self._scored().generation
        rows = self._members.rows()
        if rows and (latest := rows[-1]["generation"]) < scored:
            raise damaged(self._members.path, f"it ends at generation {latest}, before {scored}")
        return rows

    def result(self) -> Json:
        """The content of ``result.json``; the score is None if it was not finite."""
        if not self.is_done:
            raise UsageError(f"{self.path} is not done; expected a trial with a result.json")
        return read_stored(self.path / "result.json", StoredResult)

    def result_of(self, generation: int) -> Json | None:
        """The result of the policy after some generations, or None if it was not scored."""
        if self.is_done and (result := self.result()).get("generations") == generation:
            return result
        kept = self.kept_result(generation)
        return read_stored(kept, StoredResult) if kept.exists() else None

    def kept_result(self, generation: int) -> Path:
        """The file of the result that the trial had after ``generation``."""
        return self.path / KEPT / kept_name(generation, "result.json")

    @property
    def last_error_line(self) -> str:
        """The last line of the traceback of a failed trial."""
        return self.error().strip().rpartition("\n")[2]

    def error(self) -> str:
        """The traceback of a failed trial."""
        return read_bytes(self.path / "error.txt").decode(errors="replace")

    def check(self, wanted: TrialSpec, extend: bool = False) -> None:
        """Raises UsageError, which names every setting that differs from ``wanted``.

        With ``extend``, the folder may hold the same search with a smaller budget.
        """
        if not (self.is_done or self.has_begun):
            return
        stored, content = self.description()["spec"], wanted.as_json()
        if stored == content:
            return
        larger, is_agent = extends(content, stored), wanted.is_agent
        if not (extend and larger) or is_agent:
            what = "; ".join(differences(stored, content))
            remedy = "give"
            if larger and is_agent:
                name = wanted.algorithm.name
                remedy = f"{name} is an agent, whose schedules span its budget: give"
            elif larger:
                remedy = "continue it with --extend (extend=True), give"
            raise UsageError(
                f"{self.path} holds another trial: {what}. Nothing was changed; "
                f"{remedy} another output folder, or undo the edit"
            )

    def is_smaller(self, wanted: TrialSpec) -> bool:
        """Whether the folder holds the wanted trial with a smaller budget."""
        return self.has_begun and extends(wanted.as_json(), self.description()["spec"])

    def load_checkpoint(self, generation: int | None = None) -> Json | None:
        """The trainer's state after a generation (default the latest), or None if none was saved.

        UsageError if there is no checkpoint of that generation.
        """
        return self.checkpoints.load(self.description()["spec"], generation)

    def saved_generation(self) -> int:
        """The generation of the latest checkpoint, which is loaded; 0 without one."""
        state = self.load_checkpoint() or {"progress": {"generation": 0}}
        return int(state["progress"]["generation"])

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Try to lock the trial for this process; yields whether it succeeded."""
        self._require_plain()
        with disk_errors(self.path, RESUMABLE if self.has_begun else "; nothing was saved"):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / "lock").open("a+b")
        with file as lock:
            with disk_errors(self.path / "lock"):
                mine = take(lock)
            try:
                yield mine
            finally:
                if mine:
                    self.close()
                    release(lock)

    def begin(
        self, spec: TrialSpec, description: Json, extend: bool = False, record_members: bool = False
    ) -> list[GenerationRecord]:
        """Prepare the folder for appending rows, and return the rows up to the checkpoint.

        Later rows, which are computed again, and the temporary files of killed processes are
        dropped. If rows are kept, and versions, the commit, user code, the hardware or the number
        of workers have changed, ``resumed_with`` records it.

        With ``record_members``, the members' data of the next generations are stored too. Once
        recording has begun, later runs continue it without the option.

        With ``extend``, a trial with a smaller budget gets the budget of ``spec`` and is no longer
        done. Its checkpoint and result are kept, and ``extended`` records them.

        Raises:
            UsageError: the folder holds another specification, or cannot be resumed.
        """
        self.close()
        self.check(spec, extend)
        # Damage is found before anything is written.
        if self.checkpoints.has_latest and not self.has_begun:
            raise damaged(self.path / "trial.json", "it is missing, but there is a checkpoint")
        checkpoint = self.checkpoints.load(spec.as_json())
        generation = 0 if checkpoint is None else checkpoint["progress"]["generation"]
        rows = self.records()[:generation]
        size = self._members.size_at(len(rows))
        if self.is_smaller(spec):
            self._extend(spec, description, len(rows))
        self._spec = spec.as_json()
        self._describe(spec, description, is_resumed=bool(rows))
        with disk_errors(self.path):
            for folder in (self.path, self.path / "checkpoint", self.path / KEPT):
                remove_temporaries(folder)
            self._metrics.begin(len(rows))
            if record_members or self.records_members:
                self._members.begin(size)
            (self.path / "error.txt").unlink(missing_ok=True)
        return rows

    def record_scores(self, scores: Json | None) -> None:
        """Record the frozen scores that the environment has outside ``envs/``, if any."""
        content = self.description()
        if content.get("scores") != scores:
            content["scores"] = scores
            self._write("trial.json", content)

    def append(self, record: GenerationRecord, members: Mapping[str, Any] | None = None) -> None:
        """Append one row, and the members' data if they are stored."""
        self._metrics.append(record)
        self._members.append(record.generation, members or {})

    def checkpoint(self, state: Json) -> None:
        """Save the state after the rows so far, and wait until it is on disk."""
        self._metrics.sync()
        self._members.sync()
        self.checkpoints.save(state, self._spec)

    def keep(self, state: Json) -> None:
        """Save the state as ``checkpoint`` does, and keep it beside later ones."""
        self.checkpoint(state)
        self.checkpoints.keep(state, self._spec)

    def finish(self, result: Json) -> None:
        """Write the result; the trial is done."""
        self._metrics.sync()
        self._members.sync()
        generation = result.get("generations")
        rows = {} if generation is None else {"rows": self._metrics.digest(generation)}
        self._write("result.json", {"hash": self.description().get("hash"), **result, **rows})

    def fail(self, traceback: str) -> None:
        """Write the traceback of a failed trial."""
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            replace(self.path / "error.txt", traceback)

    def record_nodes(self, nodes: Json) -> None:
        """Store what ``Engine.nodes`` says; the first that differ mark the trial as not exact."""
        self._write("nodes.json", nodes)
        content = self.description()
        known: Json = content.get("mixed", {})
        if not nodes["mixed"].items() <= known.items():
            content["mixed"] = known | nodes["mixed"]
            self._write("trial.json", content)

    def nodes(self) -> Json:
        """What ``record_nodes`` has stored last; empty if nothing."""
        path = self.path / "nodes.json"
        return read_stored(path, StoredNodes) if path.exists() else {}

    def append_log(self, output: bytes) -> None:
        """Append to the output of environments and simulators."""
        path = self.path / "log.txt"
        with disk_errors(path), path.open("ab") as file:
            file.write(output)
        shorten_log(path)

    def close(self) -> None:
        """Close the files that are appended to."""
        self._metrics.close()
        self._members.close()

    def _require_plain(self) -> None:
        """DamagedTrialError if the folder has links, which lead elsewhere, pipes or devices."""
        for folder, names, files in os.walk(self.path):
            for path in (Path(folder, name) for name in (*names, *files)):
                with contextlib.suppress(FileNotFoundError):  # replaced meanwhile
                    mode = path.lstat().st_mode
                    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                        raise damaged(path, "a link, pipe or device; expected a regular file")

    def _write(self, name: str, content: Json) -> None:
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_stored(self.path / name, content)

    def _describe(self, spec: TrialSpec, description: Json, is_resumed: bool) -> None:
        if self.has_begun and is_resumed:
            content = self.description()
            resumed: list[Json] = content.get("resumed_with", [])
            latest = [content, *resumed][-1]
            compared = ("versions", "git_commit", "own_code", "hardware", "workers")
            if all(latest.get(key) == description.get(key) for key in compared):
                return
            again = {key: description.get(key) for key in ("created", *compared, "command")}
            content["resumed_with"] = [*resumed, again]
        else:
            content = {"hash": spec.hash, "spec": self._spec, **description}
        self._write("trial.json", content)

    def _extend(self, spec: TrialSpec, description: Json, generation: int) -> None:
        """Give the trial a larger budget; keeps the checkpoint and result that it has."""
        content = self.description()
        if self.is_done:
            state = self.load_checkpoint()
            if state is None:
                raise damaged(self.path / LATEST, "it is missing")
            self.result()  # raises if it is damaged
            self.checkpoints.keep(state, content["spec"])
            with disk_errors(self.path):
                # This comes first, so that a killed trial is never done under its new budget.
                (self.path / "result.json").replace(self.kept_result(generation))
        before = {
            "budget": content["spec"]["budget"],
            "generation": generation,
            "score": (self.result_of(generation) or {}).get("score"),
            "command": content.get("command"),
            "extended": description.get("created"),
        }
        content["extended"] = [*content.get("extended", []), before]
        content |= {"hash": spec.hash, "spec": spec.as_json()}
        content["command"] = description.get("command")  # it reproduces the whole trial
        self._write("trial.json", content)

    def _scored(self) -> KnownRows:
        """The rows of the result; read it before the rows, since the trial may end meanwhile."""
        result = self.result() if self.is_done else {}
        return KnownRows(result.get("generations", 0), result.get("rows"))


def keep_selected_score(folder: TrialFolder, generation: int, score: Json) -> None:
    """Write the score of the best policy, which the search had after ``generation``.

    It belongs to the trial as it is now: it is void once the trial is extended.

    Raises:
        UsageError: another process runs the trial, or the file cannot be written.
    """
    content = {"generations": generation, **score}
    with folder.locked() as mine:
        if not mine:
            raise UsageError(f"{folder.path} is run by another process; expected a finished trial")
        content["last_digest"] = folder.result().get("digest")
        with disk_errors(folder.path):
            write_stored(folder.path / BEST, content)


def selected_score(folder: TrialFolder) -> Json | None:
    """The content of ``best.json``, or None if there is none for the trial as it is now."""
    if not (folder.is_done and (folder.path / BEST).exists()):
        return None
    content = read_stored(folder.path / BEST, StoredBest)
    return content if content["last_digest"] == folder.result().get("digest") else None


def recorded_score(folder: TrialFolder, generation: int, *, best: bool) -> Json:
    """The recorded score of the last, or best, policy after a generation; empty if there is none.

    The last policy of that generation may be another one: an average, or a validated candidate.
    """
    if not best:
        return folder.result_of(generation) or {}
    found = selected_score(folder)
    return found if found is not None and found["generations"] == generation else {}
