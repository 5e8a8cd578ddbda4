"""Joining output folders."""

import contextlib
import errno
import shutil
import signal
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, files
from fake_trials import edit, make_records, make_trials, reseal, set_digest, write_trial

import esbench as package
from esbench.core.errors import DamagedTrialError, UsageError
from esbench.experiment.trials import Trial
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


def extend(root: Path, env_steps: int = 2000, begun: bool = False) -> None:
    (trial,) = make_trials(root, seeds=[0], budget={"env_steps": env_steps})
    with trial.folder.locked():
        rows = trial.folder.begin(trial.spec, {"labels": trial.labels}, extend=True)
        if begun:
            return
        trial.folder.append(replace(make_records([0.0] * 4)[3], digest=rows[0].digest))
        trial.folder.checkpoint({"algorithm": {}, "progress": {"generation": 4}})
        trial.folder.finish({"score": 9.0, "env_steps": 400, "wall_time_s": 1.0})


@pytest.mark.parametrize(
    ("there", "source", "action", "longest"),
    [
        ("extended", "short", "kept", "extended"),
        ("extended", "unfinished", "kept", "extended"),
        ("short", "extended", "replaced", "extended"),
        ("begun", "short", "kept", "begun"),
        ("short", "begun", "replaced", "begun"),
        ("short", "anew", "", "short"),  # its score is of another trial
        ("anew", "short", "", "anew"),
        ("extended", "scored", "", "extended"),
    ],
)
def test_an_extension_stays_or_replaces_what_it_extends(
    tmp_path: Path, there: str, source: str, action: str, longest: str
) -> None:
    for name in ("short", "extended", "begun", "scored", "unfinished"):
        score = {"scored": 4.0, "unfinished": None}.get(name, 3.0)
        write(tmp_path / name, [0], 3, score)
    write(tmp_path / "anew", [0], 4, 9.0, budget={"env_steps": 2000})
    extend(tmp_path / "extended")
    extend(tmp_path / "begun", begun=True)
    out = tmp_path / "out"
    merge([tmp_path / there], out)
    refused = pytest.raises(UsageError, match=r"env_steps was .*000; .* folder$")
    with contextlib.nullcontext() if action else refused:
        assert merge([tmp_path / source], out)[action] == 1
    assert without_locks(out) == without_locks(tmp_path / longest)


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
        short.folder.begin(short.spec, {"labels": short.labels})
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
    assert (merged.kept, len(merged.records())) == ([2], 3)
    kept = merged.load_checkpoint(2)
    assert kept is not None
    np.testing.assert_array_equal(kept["algorithm"]["center"], np.ones(2))
    assert (merged.path / "kept" / result.name).read_bytes() == result.read_bytes()


def test_the_later_checkpoint_counts_and_not_the_rows_after_it(tmp_path: Path) -> None:
    killed, out = tmp_path / "killed", tmp_path / "out"
    write(out, [0], 8, None)
    write(tmp_path / "longest", [0], 9, None)
    write(killed, [0], 3, None)
    shutil.copy(next((tmp_path / "longest").rglob("metrics.jsonl")), killed / PLACE / "seed-0")
    assert merge([killed], out)["kept"] == 1
    assert merge([tmp_path / "longest"], out)["replaced"] == 1


def test_a_trial_whose_arrays_are_damaged_is_not_copied(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0])
    (arrays,) = a.rglob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedTrialError, match=arrays.name):
        merge([a], out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("there", "source", "kept", "running"),
    [
        (None, (3, 3.0), 0, "source"),  # a finished trial, which another process writes
        (None, (2, None), 0, "source"),
        ((2, None), (3, 3.0), 0, "there"),
        ((3, None), (2, None), 2, "there"),  # it gets what the shorter one has kept
        ((2, 3.0), (4, None), 3, "none"),  # kept beyond the end of a stopped trial
        ((3, None), (2, None), 0, "there"),  # nothing to write
    ],
)
def test_trials_that_run_are_neither_read_nor_written(
    tmp_path: Path,
    there: tuple[int, float | None] | None,
    source: tuple[int, float | None],
    kept: int,
    running: str,
) -> None:
    out, a = tmp_path / "out", tmp_path / "a"
    (mine,) = write(out, [0], *there) if there else [None]
    (other,) = write(a, [0], *source)
    if kept:
        with other.folder.locked():
            other.folder.begin(other.spec, {"labels": other.labels})
            other.folder.keep({"algorithm": {}, "progress": {"generation": kept}})
    before = without_locks(tmp_path)
    runs = {"source": other, "there": mine}.get(running)
    refused = running == "source" or (there, kept) in {((2, None), 0), ((3, None), 2)}
    with contextlib.ExitStack() as stack:
        if runs is not None:
            stack.enter_context(runs.folder.locked())
        if refused:
            stack.enter_context(pytest.raises(UsageError, match="seed-0 is running"))
        merge([a], out)
    assert without_locks(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "table", "words"),
    [
        ({"score": 4.0}, {}, "different results .* score"),
        ({"returns": [1.0]}, {}, "different results .* returns"),
        ({}, {"algorithms": {"openai_es": {"sigma": 0.3}}}, "sigma was .*, is now 0.3; .* folder$"),
        ({"wall_time_s": 99.0}, {}, ""),  # a time is no contradiction
    ],
)
def test_contradictions_are_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], table: dict[str, Any], words: str
) -> None:
    a, other, out = tmp_path / "a", tmp_path / "other", tmp_path / "out"
    write(a, [0, 1])
    write(other, [1], **table)
    edit(other, "result.json", methodcaller("update", change))
    with pytest.raises(UsageError, match=words) if words else contextlib.nullcontext():
        merge([a, other], out)
    assert out.exists() != bool(words)


def test_labels_with_one_folder_are_refused(tmp_path: Path) -> None:
    label = {"algorithm": "openai_es"}
    write(tmp_path / "one", [0], algorithms={"my_es": label})
    write(tmp_path / "other", [0], algorithms={"my|es": label})
    with pytest.raises(UsageError, match=r"my_es.*my\|es.*expected labels"):
        merge([tmp_path / "one", tmp_path / "other"], tmp_path / "out")


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
    shutil.copytree(a / PLACE / "seed-0", moved.parents[2] / "new")  # half of a copy
    assert merge([b], out) == {"copied": 1, "replaced": 0, "kept": 1}
    assert before.items() <= without_locks(out).items()
    assert not list(out.glob(f"{HIDDEN}*"))
    assert merge([a], out) == {"copied": 0, "replaced": 1, "kept": 1}


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [0, 1])
    (tmp_path / "file").write_text("own")
    for source, out, words in (
        ("none", "out", "no folder"),
        (f"a/{PLACE}/seed-0", "out", "is the folder of one trial"),
        ("a", "a/out", "inside the other"),
        ("a", ".", "inside the other"),
        ("a", "file", "file is a file; expected a folder"),
        ("a", "file/out", "file is a file; expected a folder"),
    ):
        with pytest.raises(UsageError, match=words):
            merge([tmp_path / source], tmp_path / out)
    edit(tmp_path / "a", "trial.json", lambda content: content.pop("spec"))
    with pytest.raises(UsageError, match="is damaged"):
        merge([tmp_path / "a"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "file").read_text() == "own"


def test_the_command_counts_them(tmp_path: Path, esbench: Run) -> None:
    write(tmp_path / "a", [0, 1])
    write(tmp_path / "b", [1, 2])
    code, text, _ = esbench("merge", "a", "b", "--out", "out")
    assert (code, "3 copied" in text, "0 there already" in text) == (0, True, True)
    assert package.merge(["a", "b"], out="out") == {"copied": 0, "replaced": 0, "kept": 3}
    assert "3 there already" in esbench("merge", "a", "b", "--out", "out")[1]
    assert esbench("merge", "a", "none", "--out", "out")[0] == 2


def test_no_member_is_lost(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    write(a, [0])
    write(out, [0], 2, None)
    (out / PLACE / "seed-0" / "members.jsonl.gz").touch()
    with pytest.raises(UsageError, match="members"):
        merge([a], out)
    assert not TrialFolder(out / PLACE / "seed-0").is_done
