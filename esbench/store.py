"""The only module that reads or writes results. One folder a trial, safe to kill at any moment.

    trial.json      what is trained: specification, hash, versions, commit, hardware, command
    metrics.jsonl   one object a generation, appended; a torn last line is dropped on resume
    checkpoint/     state.json names the safetensors file beside it; replacing it is the commit
    result.json     written last: its presence means done
    error.txt       the traceback of a failed trial; gone when it is retried
    log.txt         what environments and simulators printed
    lock            held (flock) by the process that runs the trial; freed however that ends

Rows are synced to disk before the checkpoint that follows them, so a checkpoint never knows more
generations than the rows. Everything but the rows is replaced atomically. There is no pickle.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import numpy as np
import safetensors.numpy

from esbench.errors import UsageError
from esbench.record import GenerationRecord
from esbench.settings import parse
from esbench.spec import TrialSpec, differences

if TYPE_CHECKING:
    import pandas as pd

FORMAT: Final = 1
Json: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["missing", "partial", "running", "failed", "done"]
_INTEGERS = {field.name for field in fields(GenerationRecord) if field.type == "int"}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system refuses (full, read-only, not a folder) into one sentence."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or path}: {error.strerror or error}; what was saved "
            "before is intact, and the same command resumes from it"
        ) from error


@final
class TrialFolder:
    """A trial on disk. Reading never changes it; writing needs the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: IO[bytes] | None = None
        self._spec_hash = ""

    # Reading

    @property
    def status(self) -> Status:
        """Where the trial stands."""
        if self.is_done:
            return "done"
        if not (self.path / "trial.json").exists():
            return "missing"
        if self._is_locked():
            return "running"
        return "failed" if (self.path / "error.txt").exists() else "partial"

    @property
    def is_done(self) -> bool:
        """Whether the trial has its result."""
        return (self.path / "result.json").exists()

    def description(self) -> Json:
        """Return ``trial.json``.

        Raises:
            UsageError: it is missing, unreadable, or of a newer version of esbench.
        """
        path = self.path / "trial.json"
        content = _read_json(path)
        written = content.get("format")
        if not isinstance(written, int) or written > FORMAT:
            raise UsageError(
                f"{path}: written by a newer esbench (format {written}, this one reads up to "
                f"{FORMAT}); upgrade esbench, or use another output folder"
            )
        return content

    def spec(self) -> TrialSpec:
        """Return the trial's specification."""
        return parse(TrialSpec, self.description()["spec"], str(self.path / "trial.json"))

    def rows(self) -> list[Json]:
        """Return the rows of ``metrics.jsonl``, without a torn last line."""
        return _read_rows(self.path / "metrics.jsonl")

    def records(self) -> list[GenerationRecord]:
        """Return the rows as records; null is NaN again."""
        return [GenerationRecord(**_as_record(row)) for row in self.rows()]

    def result(self) -> Json:
        """Return ``result.json``."""
        return _read_json(self.path / "result.json")

    def error(self) -> str:
        """Return the traceback of a failed trial."""
        return (self.path / "error.txt").read_text(encoding="utf-8")

    def check(self, wanted: TrialSpec) -> None:
        """Refuse a folder that holds another specification.

        Raises:
            UsageError: names every setting that differs.
        """
        if not (self.path / "trial.json").exists():
            return
        if different := differences(self.spec(), wanted):
            raise UsageError(
                f"{self.path} holds another trial: {'; '.join(different)}. Nothing was changed; "
                "give another folder with --out, or undo the edit"
            )

    def load_checkpoint(self) -> Json | None:
        """Return the trainer's state as it was saved, or None if none was.

        Raises:
            UsageError: the checkpoint belongs to another specification.
        """
        path = self.path / "checkpoint" / "state.json"
        if not path.exists():
            return None
        content = _read_json(path)
        if content["spec"] != (expected := json.loads(self.spec().model_dump_json())):
            stored = parse(TrialSpec, content["spec"], str(path))
            wanted = parse(TrialSpec, expected, str(path))
            raise UsageError(
                f"{path} is a checkpoint of another specification: "
                f"{'; '.join(differences(stored, wanted))}"
            )
        tensors = safetensors.numpy.load_file(path.with_name(content["tensors"]))
        state: Json = _with_arrays(content["state"], tensors)
        return state

    # Writing

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Try to take the trial for this process; gives whether it could."""
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                self.close()

    def begin(self, spec: TrialSpec, description: Json) -> list[GenerationRecord]:
        """Write ``trial.json`` if it is new, and return the rows the checkpoint stands on.

        Rows after the checkpoint are dropped: the same ones will be computed again. A trial that
        goes on under other package versions than before says so in ``resumed_with``.
        """
        self.close()
        self.check(spec)
        self._spec_hash = spec.hash
        with disk_errors(self.path):
            self._describe(spec, description)
            checkpoint = self.load_checkpoint()
            generation = 0 if checkpoint is None else checkpoint["progress"]["generation"]
            rows = self.rows()
            if len(rows) < generation:
                raise UsageError(
                    f"{self.path}: the checkpoint is of generation {generation}, but only "
                    f"{len(rows)} rows of metrics.jsonl are readable; remove it to start over"
                )
            path = self.path / "metrics.jsonl"
            _replace(path, "".join(map(_line, rows[:generation])))
            (self.path / "error.txt").unlink(missing_ok=True)
            self._rows = path.open("ab", buffering=0)
        return [GenerationRecord(**_as_record(row)) for row in rows[:generation]]

    def _describe(self, spec: TrialSpec, description: Json) -> None:
        path = self.path / "trial.json"
        if not path.exists():
            whole = {"format": FORMAT, "hash": spec.hash, "spec": spec.model_dump(mode="json")}
            _replace(path, _dump(whole | description))
            return
        content = self.description()
        resumed: list[Json] = content.get("resumed_with", [])
        latest = resumed[-1] if resumed else content
        if latest.get("versions") != description.get("versions"):
            again = {key: description.get(key) for key in ("created", "versions", "command")}
            content["resumed_with"] = [*resumed, again]
            _replace(path, _dump(content))

    def append(self, record: GenerationRecord) -> None:
        """Append one row."""
        assert self._rows is not None, "begin first"
        with disk_errors(self.path / "metrics.jsonl"):
            rest = memoryview(_line(asdict(record)).encode())
            while rest:  # a full disk takes a part first, and refuses the rest
                rest = rest[self._rows.write(rest) :]

    def checkpoint(self, state: Json) -> None:
        """Keep the state after the rows so far; returns when it is safe on disk."""
        assert self._rows is not None, "begin first"
        folder = self.path / "checkpoint"
        with disk_errors(folder):
            os.fsync(self._rows.fileno())
            folder.mkdir(exist_ok=True)
            tensors: dict[str, np.ndarray[Any, Any]] = {}
            plain = _without_arrays(state, tensors)
            name = f"{state['progress']['generation']:08d}.safetensors"
            _replace(folder / name, safetensors.numpy.save(tensors))
            spec = self.description()["spec"]
            content = {"format": FORMAT, "tensors": name, "state": plain, "spec": spec}
            _replace(folder / "state.json", _dump(content))
            for old in folder.glob("*.safetensors"):
                if old.name != name:
                    old.unlink()

    def finish(self, result: Json) -> None:
        """Write the result; the trial is done."""
        with disk_errors(self.path):
            content = {"format": FORMAT, "hash": self._spec_hash, **result}
            _replace(self.path / "result.json", _dump(content))

    def fail(self, traceback: str) -> None:
        """Keep the traceback of a trial that could not go on."""
        with disk_errors(self.path):
            _replace(self.path / "error.txt", traceback)

    def close(self) -> None:
        """Close the rows' file."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _is_locked(self) -> bool:
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


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


def load_results(root: Path | str) -> pd.DataFrame:
    """Return every generation of every trial below ``root`` as one data frame.

    Columns: environment, algorithm, policy, seed, trial (its folder), status, and the keys of
    ``GenerationRecord``; one row a trial and generation, sorted by trial and generation.

    Raises:
        UsageError: there is no trial.
    """
    import pandas as pd

    frames = []
    for trial in find_trials(Path(root)):
        frame = pd.DataFrame([_as_record(row) for row in trial.rows()], columns=_columns())
        for position, (name, value) in enumerate(_labels(trial).items()):
            frame.insert(position, name, value)
        frames.append(frame)
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True)


def load_scores(root: Path | str) -> pd.DataFrame:
    """Return one row a trial below ``root``: its labels, status, score and cost.

    Columns: environment, algorithm, policy, seed, trial, status, score, env_steps, generations,
    wall_time_s, episodes (of the score); NaN where the trial is not done.
    """
    import pandas as pd

    keys = ("score", "env_steps", "generations", "wall_time_s", "evaluation_episodes")
    rows = []
    for trial in find_trials(Path(root)):
        result = trial.result() if trial.status == "done" else {}
        values = {key: _number(result.get(key)) for key in keys}
        rows.append(_labels(trial) | values)
    return pd.DataFrame(rows)


def _labels(trial: TrialFolder) -> Json:
    description = trial.description()
    labels = description["labels"]
    return {
        "environment": labels["environment"],
        "algorithm": labels["algorithm"],
        "policy": labels["policy"],
        "seed": description["spec"]["seed"],
        "trial": str(trial.path),
        "status": trial.status,
    }


def _columns() -> list[str]:
    return [field.name for field in fields(GenerationRecord)]


def _as_record(row: Json) -> Json:
    known = {key: row.get(key) for key in _columns()}
    return {
        key: math.nan if value is None and key != "max_episode_steps" else value
        for key, value in known.items()
    }


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _read_json(path: Path) -> Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; expected a trial's folder") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected a JSON object")
    return content


def _read_rows(path: Path) -> list[Json]:
    """Return the complete rows; a torn one can only be the last, and is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines[:-1]):  # what follows the last newline is torn, or nothing
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number == len(lines) - 2:
                break
            raise UsageError(f"{path}, line {number + 1}: not readable as JSON") from None
    return rows


def _line(row: Json) -> str:
    return json.dumps(_finite(row), separators=(",", ":"), allow_nan=False) + "\n"


def _dump(content: Json) -> str:
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Return JSON without NaN or infinity, which JSON does not know: they become null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def _replace(path: Path, content: str | bytes) -> None:
    """Write a file so that, whatever happens, the old or the new one is there whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _without_arrays(value: Any, arrays: dict[str, Any], name: str = "") -> Any:
    """Return nested tables with every array moved to ``arrays`` under its dotted name."""
    if isinstance(value, dict):
        return {
            key: _without_arrays(item, arrays, f"{name}.{key}" if name else key)
            for key, item in value.items()
        }
    if isinstance(value, np.ndarray):
        arrays[name] = np.array(value, order="C")  # ascontiguousarray would add a dimension to 0-d
        return {"$tensor": name}
    return value


def _with_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$tensor"}:
            return arrays[value["$tensor"]]
        return {key: _with_arrays(item, arrays) for key, item in value.items()}
    return value


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically, its folder too.

    Raises:
        UsageError: the file system refuses.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
