"""Joining output folders."""

import errno
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, files
from fake_trials import edit, make_records, make_trials, reseal, set_digest, write_trial

import esbench as package
from esbench.core.errors import DamagedTrialError, UsageError
from esbench.experiment.trials import Trial
from esbench.store import outputs
from esbench.store.find_trials import HIDDEN, find_trials
from esbench.store.merge import merge
from esbench.store.trial_folder import TrialFolder

PLACE = Path("CartPole-v1/openai_es")


def write(
    root: Path, seeds: list[int], generations: int = 3, score: float | None = 3.0, **grid: object
) -> list[Trial]:
    trials = make_trials(root, seeds=seeds, **grid)
    for trial in trials:
        records = make_records([float(number) for number in range(generations)])
        write_trial(trial, records, score, parameters=2)
    return trials


def without_locks(root: Path) -> dict[Path, bytes]:
    found = files(root).items()
    return {path.relative_to(root): text for path, (_, text) in found if path.name != "lock"}


def test_trials_are_copied_whole_and_once(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    write(a, [0, 1])
    write(b, [2], algorithms={"snes": {}})
    write(b, [1])
    before = files(a) | files(b)
    assert merge([a, b], out) == {"copied": 3, "replaced": 0, "kept": 0}
    assert without_locks(out) == without_locks(b) | without_locks(a)
    copied = files(out)
    assert merge([a, b], out) == {"copied": 0, "replaced": 0, "kept": 3}
    assert merge([b], a) == {"copied": 1, "replaced": 0, "kept": 2}
    assert files(out) == copied
    assert before.items() <= (files(a) | files(b)).items()
    assert not list(out.rglob(f"{HIDDEN}*"))


@pytest.mark.parametrize("finished", [True, False])
def test_a_shorter_trial_is_replaced_by_a_longer_one(tmp_path: Path, finished: bool) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    write(a, [0], 2, None)
    write(b, [0], 2 if finished else 3, 3.0 if finished else None)
    assert merge([b, a], tmp_path / "other") == {"copied": 1, "replaced": 0, "kept": 0}
    assert merge([a], out)["copied"] == 1
    assert merge([b], out)["replaced"] == 1
    assert merge([a], out)["kept"] == 1
    assert without_locks(out) == without_locks(tmp_path / "other") == without_locks(b)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_trial_is_replaced_or_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    out, longer = tmp_path / "out", tmp_path / "longer"
    write(out, [0], 2, None)
    write(longer, [0], 3)
    before, rename = without_locks(out), Path.rename
    place = out / PLACE / "seed-0"

    def interrupted(path: Path, target: Path) -> Path:
        if target == place and path.name == "new":
            if error is OSError:
                raise OSError(errno.ENOSPC, "no space", str(path))
            signal.raise_signal(signal.SIGINT)
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises((KeyboardInterrupt, UsageError)):
            merge([longer], out)
    expected = before if error is OSError else without_locks(longer)
    assert without_locks(out) == expected
    assert not list(out.rglob(f"{HIDDEN}*"))


@pytest.mark.parametrize(
    "merges", [["short", "longer"], ["longer", "short"], ["short longer"], ["longer short"]]
)
def test_what_only_the_shorter_trial_has_kept_is_added(tmp_path: Path, merges: list[str]) -> None:
    out = tmp_path / "out"
    (short,), (long,) = write(tmp_path / "short", [0], 2, None), write(tmp_path / "longer", [0], 3)
    with short.folder.locked():
        short.folder.begin(short.spec, {})
        state = {"algorithm": {"center": np.ones(2)}, "progress": {"generation": 2}}
        short.folder.keep(state)
    rows = long.folder.path / "metrics.jsonl"  # as of another run, which took longer
    rows.write_text(rows.read_text().replace('"wall_time_s":', '"wall_time_s":1'))
    reseal(long.folder.path)
    assert not rows.read_bytes().startswith((short.folder.path / rows.name).read_bytes())
    with pytest.raises(UsageError, match="no checkpoint"):
        long.folder.load_checkpoint(2)
    result = short.folder.path / "kept" / "00000002.result.json"
    result.write_bytes((long.folder.path / "result.json").read_bytes())
    for names in merges:
        merge([tmp_path / name for name in names.split()], out)
    (merged,) = find_trials(out)
    assert (merged.kept, len(merged.rows())) == ([2], 3)
    kept = merged.load_checkpoint(2)
    assert kept is not None
    np.testing.assert_array_equal(kept["algorithm"]["center"], np.ones(2))
    assert (merged.path / "kept" / result.name).read_bytes() == result.read_bytes()


def test_a_checkpoint_beyond_the_end_of_a_trial_is_not_added(tmp_path: Path) -> None:
    """As of a finished trial that a callback has stopped."""
    out, source = tmp_path / "out", tmp_path / "source"
    write(out, [0], 2)
    (other,) = write(source, [0], 4, None)
    with other.folder.locked():
        other.folder.begin(other.spec, {})
        other.folder.keep({"algorithm": {}, "progress": {"generation": 3}})
    before = files(out)
    assert merge([source], out)["kept"] == 1
    assert files(out) == before


def test_what_stays_is_not_written_while_it_runs(tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "source"
    write(out, [0], 2, None)
    (there,) = write(out, [1], 3, None)
    write(source, [0], 3)
    (other,) = write(source, [1], 2, None)
    with other.folder.locked():
        other.folder.begin(other.spec, {})
        other.folder.keep({"algorithm": {}, "progress": {"generation": 2}})
    with there.folder.locked():
        before = files(out)
        with pytest.raises(UsageError, match="is running"):
            merge([source], out)
        assert files(out) == before


def test_the_later_checkpoint_counts_and_not_the_rows_after_it(tmp_path: Path) -> None:
    killed, out = tmp_path / "killed", tmp_path / "out"
    write(out, [0], 8, None)
    write(tmp_path / "longest", [0], 9, None)
    write(killed, [0], 3, None)
    shutil.copy(next((tmp_path / "longest").rglob("metrics.jsonl")), killed / PLACE / "seed-0")
    assert merge([killed], out)["kept"] == 1
    assert merge([tmp_path / "longest"], out)["replaced"] == 1


@pytest.mark.parametrize("score", [None, 3.0])
@pytest.mark.parametrize("there", [True, False])
def test_a_trial_whose_arrays_are_damaged_is_not_copied(
    tmp_path: Path, score: float | None, there: bool
) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0], score=score)
    (arrays,) = a.rglob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    if there:
        write(out, [0], 2, None)
    before = files(out)
    with pytest.raises(DamagedTrialError, match=arrays.name):
        merge([a], out)
    assert files(out) == before


def test_no_member_is_lost(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0])
    write(out, [0], 2, None)
    (out / PLACE / "seed-0" / "members.jsonl.gz").touch()
    with pytest.raises(UsageError, match="members"):
        merge([a], out)
    assert not TrialFolder(out / PLACE / "seed-0").is_done


def test_contradictions_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    write(a, [0, 1])
    write(b, [1], score=4.0)
    with pytest.raises(UsageError, match=r"score \(3.0, 4.0\)"):
        merge([a, b], out)
    write(tmp_path / "c", [1], algorithms={"openai_es": {"sigma": 0.3}}, score=None)
    with pytest.raises(UsageError, match="sigma was .*, is now 0.3"):
        merge([a, tmp_path / "c"], out)
    write(tmp_path / "d", [1])
    edit(tmp_path / "d", "result.json", lambda result: result.update(returns=[1.0]))
    with pytest.raises(UsageError, match="different results .* returns"):
        merge([a, tmp_path / "d"], out)
    assert not out.exists()


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2), (3, 3)])
@pytest.mark.parametrize("finished", [(True, True), (True, False), (False, True), (False, False)])
def test_trials_with_different_bits_are_refused(
    tmp_path: Path, lengths: tuple[int, int], finished: tuple[bool, bool]
) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    for root, length, done in zip((a, b), lengths, finished, strict=True):
        write(root, [0], length, 3.0 if done else None)
    merge([a], out)
    set_digest(b, 2)
    before = files(out)
    for sources in ([a, b], [b]):
        with pytest.raises(UsageError, match="different results .* generation 2"):
            merge(sources, out)
    assert files(out) == before


def test_a_time_is_no_contradiction(tmp_path: Path) -> None:
    write(tmp_path / "a", [0])
    write(tmp_path / "b", [0])
    edit(tmp_path / "b", "result.json", lambda result: result.update(wall_time_s=99.0))
    merge([tmp_path / "a"], tmp_path / "out")
    assert merge([tmp_path / "b"], tmp_path / "out")["kept"] == 1
    (trial,) = find_trials(tmp_path / "out")
    assert trial.result()["wall_time_s"] == 1.5


def test_trials_of_two_labels_in_one_place_are_refused(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    for root, label in ((a, "my_es"), (b, "my|es")):
        write(root, [0], algorithms={label: {"algorithm": "openai_es"}})
    with pytest.raises(UsageError, match=r"is CartPole-v1 my_es .* is CartPole-v1 my\|es "):
        merge([a, b], out)
    assert not out.exists()


def test_a_target_that_is_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [0])
    (tmp_path / "file").write_text("own")
    with pytest.raises(UsageError, match="file is a file; expected a folder"):
        merge([tmp_path / "a"], tmp_path / "file")
    with pytest.raises(UsageError, match="file is a file; expected a folder"):
        merge([tmp_path / "a"], tmp_path / "file" / "out")
    assert (tmp_path / "file").read_text() == "own"


def test_a_source_inside_another_is_refused(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0, 1])
    with pytest.raises(UsageError, match="one lies inside the other"):
        merge([a, a / PLACE.parent], out)
    assert not out.exists()


def test_a_trial_that_a_killed_merge_has_moved_away_is_put_back(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    write(out, [0], 2, None)
    write(a, [0], 3, None)
    (out / PLACE / "seed-0/kept").mkdir()
    (out / PLACE / "seed-0/kept/own").touch()
    before = without_locks(out)
    moved = out / f"{HIDDEN}killed" / "old" / PLACE
    moved.mkdir(parents=True)
    (out / PLACE / "seed-0").rename(moved / "seed-0")
    write(b, [1])
    assert merge([b], out) == {"copied": 1, "replaced": 0, "kept": 1}
    assert before.items() <= without_locks(out).items()
    assert not list(out.glob(f"{HIDDEN}*"))
    assert merge([a], out) == {"copied": 0, "replaced": 1, "kept": 1}


def test_one_merge_at_a_time_writes_to_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "PATIENCE_SECONDS", 0.0)
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0])
    with outputs.only_writer(out), pytest.raises(UsageError, match="another process"):
        merge([a], out)
    assert not out.exists()
    assert merge([a], out) == {"copied": 1, "replaced": 0, "kept": 0}
    assert not list(out.glob(".*"))


def test_a_running_trial_is_refused_on_either_side(tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    (short,) = write(a, [0], 2, None)
    write(b, [0])
    with short.folder.locked(), pytest.raises(UsageError, match="seed-0 is running"):
        merge([b, a], out)
    merge([a], out)
    before = files(out)
    with (
        TrialFolder(out / PLACE / "seed-0").locked(),
        pytest.raises(UsageError, match="seed-0 is running"),
    ):
        merge([b], out)
    assert {p: c for p, c in files(out).items() if p.name != "lock"} == {
        p: c for p, c in before.items() if p.name != "lock"
    }
    assert merge([b], out)["replaced"] == 1


def test_a_finished_trial_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    (done,) = write(tmp_path / "a", [0])
    with done.folder.locked(), pytest.raises(UsageError, match="seed-0 is running"):
        merge([tmp_path / "a"], tmp_path / "out")
    assert not list((tmp_path / "out").rglob("trial.json"))


def test_a_copied_trial_cannot_start_while_it_is_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", [0])
    merge([tmp_path / "a"], tmp_path / "b")
    (copied,), copy, free = find_trials(tmp_path / "b"), shutil.copytree, list[bool]()

    def try_to_start(*args: Any, **options: Any) -> Any:
        with copied.locked() as mine:
            free.append(mine)
        return copy(*args, **options)

    monkeypatch.setattr(shutil, "copytree", try_to_start)
    merge([tmp_path / "b"], tmp_path / "c")
    assert set(free) == {False}


def test_what_a_killed_merge_leaves_is_no_trial(tmp_path: Path) -> None:
    write(tmp_path / "a", [0])
    merge([tmp_path / "a"], tmp_path / "out")
    left = tmp_path / "out" / f"{HIDDEN}xyz" / "new"
    shutil.copytree(tmp_path / "a" / PLACE / "seed-0", left)
    assert [trial.path for trial in find_trials(tmp_path / "out")] == [
        tmp_path / "out" / PLACE / "seed-0"
    ]
    assert merge([tmp_path / "a"], tmp_path / "out")["kept"] == 1


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    (trial,) = write(tmp_path / "a", [0])
    for source, out, words in (
        ("none", "out", "no folder"),
        (f"a/{PLACE}/seed-0", "out", "is the folder of one trial"),
        ("a", "a/out", "inside the other"),
        ("a", ".", "inside the other"),
    ):
        with pytest.raises(UsageError, match=words):
            merge([tmp_path / source], tmp_path / out)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file"):
        merge([tmp_path / "a"], tmp_path / "file")
    edit(tmp_path / "a", "trial.json", lambda content: content.pop("spec"))
    with pytest.raises(UsageError, match="is damaged"):
        merge([tmp_path / "a"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert trial.folder.path.exists()


def test_the_command_counts_them(tmp_path: Path, esbench: Run) -> None:
    write(tmp_path / "a", [0, 1])
    write(tmp_path / "b", [1, 2])
    code, text, _ = esbench("merge", "a", "b", "--out", "out")
    assert (code, "3 copied" in text, "0 there already" in text) == (0, True, True)
    assert package.merge(["a", "b"], out="out") == {"copied": 0, "replaced": 0, "kept": 3}
    assert "3 there already" in esbench("merge", "a", "b", "--out", "out")[1]
    assert esbench("merge", "a", "none", "--out", "out")[0] == 2
