import contextlib
import dataclasses
import errno
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import python
from fake_trials import make_records
from watchers import run

from esbench.core.errors import UsageError
from esbench.core.files import LEFT_OUT, LOG_BYTES, read_bytes
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import Trial
from esbench.results.data_frames import load_results, load_scores
from esbench.store import checkpoints
from esbench.store.find_trials import find_trials
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_folder import TrialFolder

Make = Callable[..., Trial]
Begin = Callable[[Trial], TrialFolder]


def record(generation: int) -> GenerationRecord:
    made = make_records([math.nan] * generation, steps=10)[-1]
    return dataclasses.replace(made, update_norm=1 / 3)


def state(generation: int) -> dict[str, object]:
    values = {"x": np.arange(3.0), "scalar": np.array(2.5), "n": 2**53 + 1, "none": None}
    return {"algorithm": values, "progress": {"generation": generation}}


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that makes a trial's folder ready for rows; it is closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(trial: Trial) -> TrialFolder:
            trial.folder.path.mkdir(parents=True)
            trial.folder.begin(trial.spec, {"labels": trial.labels})
            stack.callback(trial.folder.close)
            return trial.folder

        yield start


@pytest.fixture
def saved(begin: Begin, make_trial: Make) -> TrialFolder:
    """Return a folder with one row and its checkpoint."""
    folder = begin(make_trial())
    folder.append(record(1))
    folder.checkpoint(state(1))
    return folder


def checkpointed(folder: TrialFolder) -> dict[str, Any]:
    loaded = folder.load_checkpoint()
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("cut", [0, 1, 5, 40])
def test_rows_after_the_checkpoint_and_a_torn_line_are_dropped_on_resume(
    begin: Begin, make_trial: Make, cut: int
) -> None:
    trial = make_trial()
    folder = begin(trial)
    for generation in (1, 2, 3):
        folder.append(record(generation))
    folder.checkpoint(state(2))
    folder.close()
    path = folder.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[: -cut or None])
    (folder.path / ".trial.json.99.tmp").write_text("half")
    whole = [1, 2] if cut else [1, 2, 3]
    assert [row.generation for row in folder.records()] == whole
    assert list(folder.columns("generation")["generation"]) == whole
    history = folder.begin(trial.spec, {"labels": trial.labels})
    assert [row.generation for row in history] == [1, 2]
    folder.append(record(3))
    assert [row.generation for row in folder.records()] == [1, 2, 3]
    assert not list(folder.path.rglob("*.tmp"))


def test_rows_are_on_disk_before_the_checkpoint_and_the_result_that_count_them(
    begin: Begin, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, sync, move = list[str](), os.fsync, Path.replace

    def synced(file: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{file}').readlink().name}")
        sync(file)

    def moved(path: Path, target: Path) -> Path:
        events.append(target.suffix if target.parent.name == "checkpoint" else target.name)
        return move(path, target)

    folder = begin(make_trial())
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    folder.append(record(1))
    folder.checkpoint(state(1))
    assert events[0] == "sync metrics.jsonl"
    assert [each for each in events if not each.startswith("sync")] == [".safetensors", ".json"]
    events.clear()
    folder.append(record(2))
    folder.finish({"score": 1.0, "generations": 2})
    assert events[0] == "sync metrics.jsonl"
    assert [each for each in events if not each.startswith("sync")] == ["result.json"]


def test_columns_are_the_records_key_by_key(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    names = [name for name in vars(record(1)) if name != "losses"]
    assert {key: len(values) for key, values in folder.columns().items()} == dict.fromkeys(names, 0)
    losses = {"train/loss": 0.1, "train/diverged": math.nan}
    capped = dataclasses.replace(record(3), max_episode_steps=7, center_return=-0.1, losses=losses)
    rows = [record(1), record(2), capped]
    for row in rows:
        folder.append(row)
    columns = folder.columns()
    assert list(columns) == names
    for key, values in columns.items():
        expected = [getattr(row, key) for row in rows]
        if key == "max_episode_steps":
            expected = [math.nan, math.nan, 7.0]
        np.testing.assert_array_equal(values, expected)
    np.testing.assert_equal(list(map(vars, folder.records())), list(map(vars, rows)))
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert ["losses" in line for line in lines] == [False, False, True]
    assert not any("NaN" in line for line in lines)
    kinds = {key: columns[key].dtype.kind for key in ("env_steps", "center_return", "digest")}
    assert kinds == {"env_steps": "i", "center_return": "f", "digest": "O"}


def test_a_checkpoint_comes_back_exactly_and_alone(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    assert folder.load_checkpoint() is None
    for generation in (1, 2):
        folder.append(record(generation))
        folder.checkpoint(state(generation))
    loaded = checkpointed(folder)
    assert loaded["progress"] == {"generation": 2}
    assert loaded["algorithm"]["n"] == 2**53 + 1
    assert loaded["algorithm"]["none"] is None
    np.testing.assert_array_equal(loaded["algorithm"]["x"], np.arange(3.0))
    assert loaded["algorithm"]["scalar"].shape == ()
    assert len(list((folder.path / "checkpoint").iterdir())) == 2


@pytest.mark.parametrize("generation", [1, 2])  # a probe changes the state within a generation
@pytest.mark.parametrize("moment", [".safetensors", ".json"])
def test_a_crash_while_a_checkpoint_is_written_leaves_the_one_before(
    saved: TrialFolder, monkeypatch: pytest.MonkeyPatch, moment: str, generation: int
) -> None:
    replace, new = Path.replace, state(generation)
    new["algorithm"]["x"] = np.zeros(7)
    saved.append(record(2))

    def fail(self: Path, target: Path) -> Path:
        if target.suffix == moment:
            raise RuntimeError("power cut")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            saved.checkpoint(new)
    assert checkpointed(saved)["progress"]["generation"] == 1
    np.testing.assert_array_equal(checkpointed(saved)["algorithm"]["x"], np.arange(3.0))
    saved.checkpoint(new)
    assert len(list((saved.path / "checkpoint").glob("*.safetensors"))) == 1


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_not_damaged(
    saved: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_bytes
    saved.append(record(2))

    def late(path: Path) -> bytes:
        if path.name.startswith("00000001-"):
            saved.checkpoint(state(2))
        return read(path)

    monkeypatch.setattr(checkpoints, "read_bytes", late)
    assert checkpointed(TrialFolder(saved.path))["progress"]["generation"] == 2


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("versions", [({"numpy": "1"}, 1), ({"numpy": "1"}, 1), ({"numpy": "2"}, 2)]),
        ("git_commit", [("a" * 40, 1), ("a" * 40, 1), ("b" * 40, 2)]),
        ("own_code", [({"mine": "sha256:0"}, 1), ({"mine": "sha256:0"}, 1), ({}, 2)]),
        ("hardware", [({"cpu": "1"}, 1), ({"cpu": "1"}, 1), ({"cpu": "2"}, 2)]),
        ("workers", [(1, 1), (1, 1), (2, 2), (None, 3)]),
    ],
)
def test_going_on_with_something_else_is_recorded(
    saved: TrialFolder, make_trial: Make, key: str, values: list[tuple[Any, int]]
) -> None:
    folder, trial = saved, make_trial()
    before = folder.description()
    for value, expected in values:
        folder.begin(trial.spec, {key: value, "command": "again"})
        content = folder.description()
        assert len(content["resumed_with"]) == expected
        assert content["resumed_with"][-1][key] == value
    assert {key: value for key, value in content.items() if key != "resumed_with"} == before


def test_status_follows_the_life_of_a_trial(make_trial: Make) -> None:
    trial = make_trial()
    folder = trial.folder
    seen = [folder.status]
    with folder.locked() as mine:
        assert mine
        folder.begin(trial.spec, {"labels": trial.labels})
        seen.append(TrialFolder(folder.path).status)
    seen.append(folder.status)
    folder.fail("Traceback: it broke\n")
    seen.append(folder.status)
    folder.begin(trial.spec, {"labels": trial.labels})
    folder.close()
    seen.append(folder.status)
    folder.finish({"score": 1.0})
    seen.append(folder.status)
    assert seen == ["missing", "running", "partial", "failed", "partial", "done"]


def test_a_lock_is_for_one_process_and_is_freed_by_its_death(make_trial: Make) -> None:
    folder = make_trial().folder
    script = (
        "import sys, pathlib; from esbench.store.trial_folder import TrialFolder\n"
        "with TrialFolder(pathlib.Path(sys.argv[1])).locked() as mine:\n"
        "    print(mine, flush=True); sys.stdin.read()"
    )
    with python("-c", script, str(folder.path), stdin=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with folder.locked() as mine:
            assert not mine
        other.kill()
        other.wait()
    with folder.locked() as mine:
        assert mine


def test_results_and_scores_as_frames(begin: Begin, make_trial: Make, pool: WorkerPool) -> None:
    trials = [make_trial(seed=0), make_trial(seed=1), make_trial("CartPole-v1", "random_search")]
    run(pool, *trials)
    partial = make_trial(seed=2)
    begin(partial).append(record(1))
    root = partial.folder.path.parents[2]
    frame, scores = load_results(root), load_scores(root)
    assert len(find_trials(root)) == len(scores) == 4
    assert set(frame["algorithm"]) == {"openai_es", "random_search"}
    assert list(scores["status"]).count("done") == 3
    done = scores[scores["status"] == "done"]
    assert done["score"].notna().all()
    assert (done["evaluation_episodes"] == 4).all()
    for _, group in frame.groupby("trial"):
        assert list(group["generation"]) == list(range(1, len(group) + 1))
    for trial in [*trials, partial]:
        group = frame[frame["trial"] == str(trial.folder.path)]
        assert set(group["seed"]) == {trial.spec.seed}
        assert set(group["status"]) == {trial.folder.status}
        assert list(group["digest"]) == [row.digest for row in trial.folder.records()]
        assert list(group["env_steps"]) == [row.env_steps for row in trial.folder.records()]
    copied = shutil.copytree(partial.folder.path, partial.folder.path.with_name("copied"))
    for load in (load_results, load_scores):
        with pytest.raises(UsageError, match=r"copied.*hold the same trial"):
            load(root)
    shutil.rmtree(copied)
    empty = root.parent / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no trial in"):
        load_results(empty)
    with pytest.raises(UsageError, match="no folder"):
        load_results(root / "nowhere")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize(
    "work",
    [
        lambda folder: folder.append(record(2)),
        lambda folder: folder.checkpoint(state(1)),
        lambda folder: folder.finish({"score": 1.0}),
        lambda folder: folder.fail("hostile"),
        lambda folder: folder.append_log(b"output"),
        lambda folder: folder.record_nodes({"nodes": [], "mixed": {}}),
        lambda folder: folder.close(),
    ],
    ids=["row", "checkpoint", "result", "error", "log", "nodes", "close"],
)
def test_a_disk_that_refuses_is_named_and_what_is_saved_stays(
    saved: TrialFolder, monkeypatch: pytest.MonkeyPatch, work: Any, code: int
) -> None:
    class Full(contextlib.nullcontext["Full"]):
        """A file whose methods fail."""

        def __enter__(self) -> "Full":
            return self

        def __getattr__(self, name: str) -> Any:
            def fail(*_: object) -> None:
                raise OSError(code, os.strerror(code))

            return fail

    saved.close()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: Full())
        patch.setattr(saved._metrics, "_file", Full())
        with pytest.raises(UsageError, match=os.strerror(code)):
            work(saved)
    assert checkpointed(saved)["progress"]["generation"] == 1


def test_a_long_log_keeps_its_first_and_its_last_bytes(tmp_path: Path) -> None:
    folder, written = TrialFolder(tmp_path), b""
    for number in range(100):
        part = b"%d " % number * 40_000
        folder.append_log(part)
        written += part
    log = (tmp_path / "log.txt").read_bytes()
    assert len(log) <= 4 * LOG_BYTES
    first, second = log[:LOG_BYTES], log[LOG_BYTES:]
    marked = LEFT_OUT.match(second)
    assert marked is not None
    kept = second[marked.end() :]
    assert (first, kept[-LOG_BYTES:]) == (written[:LOG_BYTES], written[-LOG_BYTES:])
    assert int(marked[1]) == len(written) - len(first) - len(kept)
