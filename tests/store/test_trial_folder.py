import contextlib
import dataclasses
import json
import math
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import files, python
from fake_trials import make_records, reseal
from watchers import run

import esbench.store.trial_folder as store
from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import read_bytes
from esbench.core.files import replace as replace_file
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.trials import Trial
from esbench.results.data_frames import load_results, load_scores
from esbench.results.run import score_text
from esbench.store import checkpoints, stored_json
from esbench.store import metrics_file as metrics
from esbench.store.find_trials import find_trials
from esbench.store.generation_record import GenerationRecord
from esbench.store.outputs import write_bytes
from esbench.store.stored_json import FORMAT
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


def test_a_result_is_on_disk_after_its_rows(
    begin: Begin, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = list[str](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(path_of(file)), fsync(file)))
    folder = begin(make_trial())
    folder.append(record(1))
    synced.clear()
    folder.finish({"score": 1.0, "generations": 1})
    assert [Path(name).name for name in synced].index("metrics.jsonl") == 0


def path_of(file: int) -> str:
    return str(Path(f"/proc/self/fd/{file}").readlink())


def test_a_trial_is_free_when_its_process_is_done_not_when_its_helpers_are(
    make_trial: Make,
) -> None:
    folder = make_trial().folder
    with folder.locked() as mine:
        helper = os.fork()
        if helper == 0:
            time.sleep(20)
            os._exit(0)
    try:
        with folder.locked() as again:
            assert mine
            assert again
    finally:
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)


def test_rows_come_back_exactly_and_nan_is_null(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    for generation in (1, 2):
        folder.append(record(generation))
    rows = folder.rows()
    assert [row["generation"] for row in rows] == [1, 2]
    assert rows[0]["update_norm"] == 1 / 3
    assert rows[0]["center_return"] is None
    assert "NaN" not in (folder.path / "metrics.jsonl").read_text()
    assert math.isnan(folder.records()[0].center_return)
    assert folder.records()[0].max_episode_steps is None


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
    assert [row["generation"] for row in folder.rows()] == ([1, 2] if cut else [1, 2, 3])
    history = folder.begin(trial.spec, {"labels": trial.labels})
    assert [row.generation for row in history] == [1, 2]
    folder.append(record(3))
    assert [row["generation"] for row in folder.rows()] == [1, 2, 3]


@pytest.mark.parametrize("damage", [b"", b"[]", b"1", b'{"generation": 1}', b'{"genera'])
def test_a_line_that_is_no_row_is_an_error(begin: Begin, make_trial: Make, damage: bytes) -> None:
    folder = begin(make_trial())
    for generation in (1, 2, 3):
        folder.append(record(generation))
    path = folder.path / "metrics.jsonl"
    first, _, last = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, damage, last, b""]))
    with pytest.raises(DamagedTrialError, match="metrics.jsonl is damaged .line 2 is not readable"):
        folder.rows()


def test_columns_are_the_records_key_by_key(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    assert {key: len(values) for key, values in folder.columns().items()} == dict.fromkeys(
        vars(record(1)), 0
    )
    capped = dataclasses.replace(record(3), max_episode_steps=7, center_return=-0.1)
    rows = [record(1), record(2), capped]
    for row in rows:
        folder.append(row)
    columns = folder.columns()
    assert list(columns) == list(vars(record(1)))
    for key, values in columns.items():
        expected = [getattr(row, key) for row in rows]
        if key == "max_episode_steps":
            expected = [math.nan, math.nan, 7.0]
        np.testing.assert_array_equal(values, expected)
    kinds = {key: columns[key].dtype.kind for key in ("env_steps", "center_return", "digest")}
    assert kinds == {"env_steps": "i", "center_return": "f", "digest": "O"}


def test_columns_drop_a_torn_line_and_refuse_damage(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    folder.append(record(1))
    path = folder.path / "metrics.jsonl"
    whole = path.read_bytes()
    for torn in (b'{"generation":2,', b'{"generation":2,\n'):
        path.write_bytes(whole + torn)
        assert list(folder.columns()["generation"]) == [1]
    path.write_bytes(b"[]\n" + whole)
    with pytest.raises(DamagedTrialError, match="line 1 is not readable"):
        folder.columns()
    for bad in (
        whole + whole[:-1] + 2 * whole,
        whole.replace(b",", b",\n", 1),
        whole + b"\n" + whole,
        whole.replace(b'"digest":"', b'"digest":"\xff') + whole,
    ):
        path.write_bytes(bad)
        with pytest.raises(DamagedTrialError, match=r"line [12] is not readable"):
            folder.columns("generation", "digest")
    for wrong in (b'"many"', b"null", b"[1,2]", b"-1", b"1" + b"0" * 30, b"1" + b"0" * 400):
        path.write_bytes(whole.replace(b'"env_steps":', b'"env_steps":' + wrong + b',"was":'))
        for read in (folder.columns, folder.rows):
            with pytest.raises(DamagedTrialError, match="line 1 is not readable.*env_steps"):
                read()
    path.write_bytes(whole.replace(b'"env_steps":', b'"env_steps":1e999,"was":') + whole)
    with pytest.raises(DamagedTrialError, match="line 1 is not readable"):
        folder.columns()


def test_a_row_that_is_there_twice_is_damage(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial())
    for generation in (1, 2, 3):
        folder.append(record(generation))
    path = folder.path / "metrics.jsonl"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second + second + third)
    for read in (folder.rows, folder.columns, lambda: folder.columns("sigma")):
        with pytest.raises(DamagedTrialError, match="line 3 is of generation 2"):
            read()


@pytest.mark.parametrize(
    ("lost", "words"),
    [("metrics.jsonl", "generation 1, but only 0 rows"), ("trial.json", "it is missing")],
)
def test_where_there_is_no_going_on_nothing_is_written(
    saved: TrialFolder, make_trial: Make, lost: str, words: str
) -> None:
    (saved.path / lost).unlink()
    before = files(saved.path)
    about = {"labels": make_trial().labels, "versions": {"numpy": "1"}, "workers": 3}
    with pytest.raises(DamagedTrialError, match=rf"{lost} is damaged \(.*{words}"):
        saved.begin(make_trial().spec, about)
    assert files(saved.path) == before


@pytest.mark.parametrize("kept", [0, 1, 30, -1])
def test_a_result_of_more_generations_than_there_are_rows_is_damage(
    make_trial: Make, pool: WorkerPool, kept: int
) -> None:
    trial = make_trial()
    run(pool, trial)
    path = trial.folder.path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) if kept < 0 else path.read_bytes()[:kept])
    many = len(lines) - 1 if kept < 0 else 0
    for read in (trial.folder.rows, trial.folder.columns, trial.folder.records):
        with pytest.raises(DamagedTrialError, match=f"but only {many} rows are readable"):
            read()


def test_a_trial_that_ends_while_it_is_read_is_not_damaged(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial()
    run(pool, trial)
    result, path = trial.folder.path / "result.json", trial.folder.path / "metrics.jsonl"
    whole, scored = path.read_bytes(), result.read_bytes()
    for name in ("rows", "columns"):
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
        result.unlink()
        read = getattr(metrics.MetricsFile, name)

        def ends(file: Any, *keys: str, read: Callable[..., Any] = read) -> Any:
            found = read(file, *keys)
            path.write_bytes(whole)
            result.write_bytes(scored)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(metrics.MetricsFile, name, ends)
            getattr(trial.folder, name)()


def test_rows_are_safe_on_disk_before_the_checkpoint_that_counts_them(
    begin: Begin, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin(make_trial())
    folder.append(record(1))
    events: list[str] = []
    sync, write = os.fsync, replace_file
    monkeypatch.setattr(os, "fsync", lambda file: events.append("sync") or sync(file))
    for module in (checkpoints, stored_json):
        monkeypatch.setattr(
            module, "replace", lambda path, data: events.append(path.suffix) or write(path, data)
        )
    folder.checkpoint(state(1))
    written = [event for event in events if event != "sync"]
    assert written == [".safetensors", ".json"]
    assert events[0] == "sync"


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


def test_a_checkpoint_of_another_specification_is_refused_by_name(saved: TrialFolder) -> None:
    path = saved.path / "trial.json"
    path.write_text(path.read_text().replace('"sigma": 0.1', '"sigma": 0.2'))
    reseal(saved.path)
    with pytest.raises(UsageError, match=r"algorithm\.settings\.sigma was 0\.1, is now 0\.2"):
        saved.load_checkpoint()


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


def test_there_is_no_pickle_and_running_again_changes_nothing(
    make_trial: Make, pool: WorkerPool
) -> None:
    trial = make_trial()
    run(pool, trial)
    before = files(trial.folder.path)
    assert run(pool, trial)[0][0] == "skipped"
    assert files(trial.folder.path) == before
    kinds = {path.name.partition(".")[2] for path in before}
    assert kinds == {"json", "jsonl", "safetensors", "txt", ""}
    source = "".join(path.read_text() for path in Path(store.__file__).parent.rglob("*.py"))
    assert not [word for word in ("import pickle", "torch.load", "torch.save") if word in source]


READERS: dict[str, Callable[[TrialFolder], object]] = {
    "trial.json": TrialFolder.spec,
    "checkpoint/state.json": TrialFolder.load_checkpoint,
    "result.json": TrialFolder.result,
}


@pytest.fixture
def whole(saved: TrialFolder) -> TrialFolder:
    saved.finish({"score": 1.0, "env_steps": 10, "wall_time_s": 1.0})
    return saved


@pytest.mark.parametrize("written", [1, 99])
@pytest.mark.parametrize("name", READERS)
def test_another_format_is_refused(whole: TrialFolder, name: str, written: int) -> None:
    (whole.path / name).write_text(json.dumps({"format": written}))
    with pytest.raises(UsageError, match=rf"{whole.path} .*{written}.*format {FORMAT}") as error:
        READERS[name](whole)
    assert error.type is UsageError  # it is not damaged


DAMAGES = {
    "empty": ("", "not readable as JSON"),
    "torn": ('{"format": 2, "sp', "not readable as JSON"),
    "not text": ("\0\0\0", "not readable as JSON"),
    "a list": ("[]", "expected a JSON object"),
    "no format": ("{}", "no valid 'format'"),
    "nothing else": ('{"format": 2}', "`(spec|arrays|score)`"),
    "deep": ("[" * 100_000, "nesting"),
    "deep tables": ('{"a":' * 500 + "1" + "}" * 500, "nesting"),
    "a number of 400 digits": ('{"format": 2, "score": ' + "9" * 400 + "}", "400 digits"),
    "no number": ('{"format": 2, "score": NaN}', "NaN"),
    "an infinite number": ('{"format": 2, "score": 1e999}', "1e999"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("text", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_one_sentence(
    whole: TrialFolder, name: str, text: str, words: str
) -> None:
    (whole.path / name).write_text(text)
    with pytest.raises(DamagedTrialError, match=rf"{name} is damaged \(.*{words}.*; remove"):
        READERS[name](whole)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("trial.json", "seed"),
        ("trial.json", "labels"),
        ("trial.json", "environment"),
        ("checkpoint/state.json", "state"),
        ("checkpoint/state.json", "generation"),
        ("result.json", "env_steps"),
    ],
)
def test_a_key_that_is_missing_is_named(whole: TrialFolder, name: str, key: str) -> None:
    path = whole.path / name
    path.write_text(path.read_text().replace(f'"{key}":', '"other":'))
    with pytest.raises(DamagedTrialError, match=f"{name} is damaged .*{key}"):
        READERS[name](whole)


@pytest.mark.parametrize("left", [0, 4, 40, None, "more"])
def test_damaged_or_missing_tensors_are_one_sentence(whole: TrialFolder, left: Any) -> None:
    (path,) = (whole.path / "checkpoint").glob("00000001-*.safetensors")
    if left is None:
        path.unlink()
    elif left == "more":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        path.write_bytes(path.read_bytes()[:left])
    words = rf"{path.name} is damaged .*remove the folder {whole.path}"
    with pytest.raises(DamagedTrialError, match=words):
        whole.load_checkpoint()


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_not_damaged(
    saved: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_bytes
    saved.append(record(2))

    def late(path: Path, *limits: Any) -> bytes:
        if path.name.startswith("00000001-"):
            saved.checkpoint(state(2))
        return read(path, *limits)

    monkeypatch.setattr(stored_json, "read_bytes", late)
    assert checkpointed(TrialFolder(saved.path))["progress"]["generation"] == 2


def test_a_folder_in_the_place_of_a_file_is_damage(begin: Begin, make_trial: Make) -> None:
    trial = make_trial()
    folder = begin(trial)
    path = folder.path / "metrics.jsonl"
    path.unlink()
    path.mkdir()  # not even root can read a folder as a file
    with pytest.raises(DamagedTrialError, match="metrics.jsonl is damaged .*folder"):
        folder.begin(trial.spec, {})


def test_what_a_killed_writer_left_is_removed(saved: TrialFolder, make_trial: Make) -> None:
    for name in (".trial.json.99.tmp", "checkpoint/.state.json.99.tmp"):
        (saved.path / name).write_text("half")
    saved.begin(make_trial().spec, {})
    assert not list(saved.path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"score": 12.34}, "score 12.3"),
        ({"score": 7}, "score 7.0"),
        ({"score": math.nan, "returns": [1.0, math.inf, math.nan]}, "score - (2 of 3 held-out "),
        ({"score": None, "returns": [1.0, None, 2.0]}, "score - (1 of 3 held-out "),
        ({"score": None}, "score -"),
    ],
)
def test_a_score_in_words(result: dict[str, object], text: str) -> None:
    assert score_text(result) == text + ("episodes not finite)" if "(" in text else "")


def test_another_specification_in_the_folder_is_refused(
    saved: TrialFolder, make_trial: Make
) -> None:
    edited, before = make_trial(settings={"sigma": 0.3}), files(saved.path)
    with pytest.raises(UsageError, match=r"sigma was 0\.1, is now 0\.3.*Nothing was changed"):
        edited.folder.check(edited.spec)
    assert files(saved.path) == before


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("versions", [({"numpy": "1"}, 1), ({"numpy": "1"}, 1), ({"numpy": "2"}, 2)]),
        ("own_code", [({"mine": "sha256:0"}, 1), ({"mine": "sha256:0"}, 1), ({}, 2)]),
        ("hardware", [({"cpu": "1"}, 1), ({"cpu": "1"}, 1), ({"cpu": "2"}, 2)]),
        ("workers", [(1, 1), (1, 1), (2, 2), (None, 3)]),
    ],
)
def test_going_on_with_something_else_is_recorded(
    begin: Begin, make_trial: Make, key: str, values: list[tuple[Any, int]]
) -> None:
    trial = make_trial()
    folder = begin(trial)
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
    folder.begin(trial.spec, {})
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


def test_who_only_looks_is_never_in_the_way(begin: Begin, make_trial: Make) -> None:
    folder = begin(make_trial()).path
    (folder / "lock").touch()
    script = (
        "import sys, pathlib; from esbench.store.trial_folder import TrialFolder\n"
        "trial = TrialFolder(pathlib.Path(sys.argv[1])); print(trial.status, flush=True)\n"
        "while True: trial.status"
    )
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            looker = stack.enter_context(python("-c", script, str(folder)))
            stack.callback(looker.kill)
            assert looker.stdout is not None
            assert looker.stdout.readline() == "partial\n"
        for _ in range(30):
            with TrialFolder(folder).locked() as mine:
                assert mine
            time.sleep(0.001)


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    saved: TrialFolder, make_trial: Make
) -> None:
    size = (saved.path / "metrics.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))  # a row is longer
    try:
        with pytest.raises(UsageError, match="cannot write .*metrics.jsonl.*resumes from it"):
            saved.append(record(2))
        with pytest.raises(UsageError, match="cannot write .*checkpoint"):
            saved.checkpoint({**state(1), "more": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    saved.close()
    assert [row.generation for row in saved.begin(make_trial().spec, {})] == [1]
    assert checkpointed(saved)["progress"]["generation"] == 1
    assert not list(saved.path.rglob("*.tmp"))


def test_who_cannot_write_is_told_whether_something_was_saved(
    make_trial: Make, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    unmade, folder = TrialFolder(tmp_path / "file" / "trial"), make_trial().folder
    (folder.path / "lock").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot write .*; nothing was saved"), unmade.locked():
        pass
    with pytest.raises(DamagedTrialError, match="lock is damaged"), folder.locked():
        pass
    with pytest.raises(UsageError, match="cannot write"):
        write_bytes(tmp_path / "file" / "figure.png", b"")


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
    assert frame["env_steps"].dtype == "int64"
    assert frame["max_episode_steps"].isna().all()
    empty = root.parent / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no trial in"):
        load_results(empty)
    with pytest.raises(UsageError, match="no folder"):
        load_results(root / "nowhere")
