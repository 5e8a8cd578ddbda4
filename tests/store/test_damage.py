"""What is not as it was written is named as damage, whatever file of a trial's folder it is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import files
from fake_trials import edit, make_records, make_trials, write_trial
from safetensors.numpy import load_file, save_file

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import read_bytes
from esbench.core.json_text import DEEPEST, MOST_DIGITS, parse_json
from esbench.experiment.trials import Trial
from esbench.publish.gate.baselines import read_baseline
from esbench.results.data_frames import load_results, load_scores
from esbench.results.sources import read_folder
from esbench.store.members_file import MembersFile
from esbench.store.merge import merge
from esbench.store.selected_score import keep_selected_score, selected_score
from esbench.store.stored_json import StoredJson
from esbench.store.trial_folder import TrialFolder

ROWS = 3


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A done trial with a checkpoint of three rows and a score of its best policy."""
    (made,) = make_trials(tmp_path / "out", seeds=[0])
    records = make_records([1.0, 2.0, 3.0])
    write_trial(made, records, parameters=4)
    with made.folder.locked():
        made.folder.begin(made.spec, {})
        progress = {"generation": ROWS}
        made.folder.keep({"algorithm": {"center": np.ones(4)}, "progress": progress})
        made.folder.checkpoint({"algorithm": {"center": np.full(4, 2.0)}, "progress": progress})
        cost = {"env_steps": 300, "wall_time_s": 1.5, "generations": ROWS}
        made.folder.finish({"score": 3.0, "returns": [3.0], **cost})
    keep_selected_score(made.folder, 2, {"score": 2.0, "returns": [2.0]})
    return made


def read_all(folder: TrialFolder) -> None:
    """Read every file of a trial's folder."""
    folder.description()
    folder.result()
    folder.rows()
    folder.load_checkpoint()
    folder.load_checkpoint(ROWS)
    (folder.path / "kept" / "00000003.json").rename(folder.path / "other")
    folder.load_checkpoint(ROWS)
    (folder.path / "other").rename(folder.path / "kept" / "00000003.json")
    selected_score(folder)


STORED = (
    *("trial.json", "result.json", "best.json", "metrics.jsonl", "checkpoint/state.json"),
    *("checkpoint/*.safetensors", "kept/00000003.json", "kept/*.safetensors"),
)


@pytest.mark.parametrize("name", STORED)
def test_a_single_flipped_bit_is_damage_or_another_format(trial: Trial, name: str) -> None:
    read_all(trial.folder)
    (path,) = trial.folder.path.glob(name)
    whole = path.read_bytes()
    stream = np.random.default_rng(len(whole))
    for place in stream.integers(len(whole), size=25):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(stream.integers(8))
        path.write_bytes(damaged)
        if not _same(path, whole, bytes(damaged)):
            with pytest.raises(UsageError, match=f"{path.name} is damaged|format"):
                read_all(TrialFolder(trial.folder.path))
    path.write_bytes(whole)
    read_all(trial.folder)


def _same(path: Path, whole: bytes, damaged: bytes) -> bool:
    """Whether the content is the same, apart from white space and the name of its digest."""
    try:
        before, after = parse_json(whole), parse_json(damaged)
    except ValueError:
        return False
    if path.parent.name not in {"checkpoint", "kept"}:  # there, it must have that name
        del before["sha256"]
    return bool(before.items() <= after.items())


def negate_a_weight(folder: Path) -> None:
    (path,) = (folder / "checkpoint").glob("*.safetensors")
    arrays = load_file(path)
    arrays["algorithm.center"][0] = -1.0
    save_file(arrays, path)


def count_otherwise(folder: Path) -> None:
    path = folder / "checkpoint" / "state.json"
    path.write_text(path.read_text().replace('"generation": 3', '"generation": 2'))


def repeat_a_row(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    first, *_, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + first + last)


def change_a_row(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"center_return":2.0', b'"center_return":2.5'))


def mix_two_checkpoints(folder: Path) -> None:
    (kept,), (latest,) = ((folder / name).glob("*.safetensors") for name in ("kept", "checkpoint"))
    shutil.copy(kept, latest)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (negate_a_weight, r"00000003-\w+\.safetensors"),
        (count_otherwise, "state.json"),
        (repeat_a_row, "metrics.jsonl"),
        (change_a_row, "metrics.jsonl"),
        (mix_two_checkpoints, r"00000003-\w+\.safetensors"),
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_a_checkpoint_that_is_not_what_was_written_is_not_loaded(
    trial: Trial, damage: Callable[[Path], None], name: str, done: bool
) -> None:
    folder = trial.folder
    if not done:
        (folder.path / "result.json").unlink()
    damage(folder.path)
    before = files(folder.path)
    for load in (folder.load_checkpoint, lambda: folder.begin(trial.spec, {})):
        with pytest.raises(DamagedTrialError, match=f"{name} is damaged"):
            load()
    assert files(folder.path) == before


def test_a_checkpoint_without_a_digest_is_refused(trial: Trial) -> None:
    path = trial.folder.path / "checkpoint" / "state.json"
    text = path.read_text()
    path.write_text(text[: text.index(',\n  "sha256"')] + "}")
    with pytest.raises(DamagedTrialError, match="sha256.*train that trial again"):
        trial.folder.load_checkpoint()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("result.json", {"score": "high"}),
        ("result.json", {"score": True}),
        ("result.json", {"returns": "x"}),
        ("result.json", {"generations": "x"}),
        ("result.json", {"generations": 10**18 * 100}),
        ("result.json", {"env_steps": -1}),
        ("trial.json", {"labels": {"environment": 1, "algorithm": "a", "policy": "p"}}),
        ("trial.json", {"versions": {"numpy": [1]}}),
        ("trial.json", {"resumed_with": 3}),
        ("trial.json", {"resumed_with": [{"versions": 1}]}),
        ("trial.json", {"extended": "x"}),
        ("trial.json", {"inherited": [1]}),
        ("state.json", {"arrays": {"file": "../x.safetensors", "size": 1, "sha256": ""}}),
        ("best.json", {"returns": [[]]}),
    ],
)
def test_a_value_of_another_type_is_damage(trial: Trial, name: str, values: Any) -> None:
    (path,) = trial.folder.path.rglob(name)
    if name == "state.json":
        content = parse_json(path.read_bytes()) | values
        StoredJson(trial.folder.path).write("checkpoint/state.json", content)
    else:
        edit(trial.folder.path, name, lambda content: content.update(values))
    with pytest.raises(DamagedTrialError, match=f"{name} is damaged .*{next(iter(values))}"):
        read_all(trial.folder)


def test_numbers_and_nesting_of_json_are_bounded() -> None:
    deep = b"[" * DEEPEST + b"]" * DEEPEST
    assert parse_json(deep) is not None
    assert parse_json(b'"\\ud83d\\ude00"') == "😀"
    assert parse_json(b"1" * MOST_DIGITS) == int("1" * MOST_DIGITS)
    for bad in (
        b"[" + deep + b"]",
        b"[" * 100_000,
        b"1" * (MOST_DIGITS + 1),
        b"1e999",
        b"NaN",
        b'"\\ud800"',
    ):
        with pytest.raises(ValueError, match="levels|digits|finite|Unicode"):
            parse_json(bad)


def _link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _link_to_the_same(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": _link,
    "loop": _link_to_itself,
    "link": _link_to_the_same,
    "folder": Path.mkdir,
    "terabyte": _sparse,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*STORED, "lock"])
def test_only_regular_files_are_read(trial: Trial, name: str, kind: str) -> None:
    (path,) = trial.folder.path.glob(name)
    if kind != "link":
        path.unlink()
    KINDS[kind](path)
    if kind == "loop" and name in {*STORED[:3], "checkpoint/state.json", "lock"}:
        return  # it does not exist
    if name == "lock":
        (trial.folder.path / "result.json").unlink()
        if kind == "terabyte":
            return  # it is never read
    with pytest.raises(DamagedTrialError, match=f"{path.name} is damaged"):
        read_all(trial.folder) if name != "lock" else trial.folder.status


@pytest.mark.parametrize("name", ["log.txt", "lock", "checkpoint", "kept", "members.jsonl.gz"])
def test_nothing_is_written_through_a_link(trial: Trial, tmp_path: Path, name: str) -> None:
    outside, path = tmp_path / "outside", trial.folder.path / name
    outside.mkdir()
    (outside / "00000001.safetensors").write_text("own")
    (outside / ".state.json.1.tmp").write_text("own")
    if path.is_dir():
        shutil.rmtree(path)
        path.symlink_to(outside)
    else:
        path.unlink(missing_ok=True)
        path.symlink_to(outside / "00000001.safetensors")
    (trial.folder.path / "result.json").unlink()
    before = files(outside)
    with pytest.raises(DamagedTrialError, match=f"{name}"), trial.folder.locked():
        trial.folder.begin(trial.spec, {})
    assert files(outside) == before


def test_a_command_reads_the_other_trials_of_no_damaged_folder(trial: Trial) -> None:
    root = trial.folder.path.parents[2]
    (trial.folder.path / "result.json").unlink()
    os.mkfifo(trial.folder.path / "result.json")
    for read in (load_scores, load_results, lambda out: merge([out], out.with_name("new"))):
        with pytest.raises(DamagedTrialError, match="result.json"):
            read(root)


def test_a_merge_copies_no_device(trial: Trial) -> None:
    root = trial.folder.path.parents[2]
    (trial.folder.path / "notes").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="notes"):
        merge([root], root.with_name("new"))
    assert not list(root.with_name("new").rglob("*.json"))


def test_a_named_file_may_be_a_link_but_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"x"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe"):
        read_baseline(tmp_path / "pipe")


def test_members_that_decompress_without_end_are_damage(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    monkeypatch.setattr("esbench.store.members_file.LARGEST", 10_000)
    file = MembersFile(StoredJson(trial.folder.path))
    file.path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(DamagedTrialError, match="10000"):
        file.rows()


@pytest.mark.parametrize("kept", ["result.json", "metrics.jsonl"])
def test_a_trial_that_has_lost_its_description_is_not_left_out(trial: Trial, kept: str) -> None:
    for name in {"trial.json", "result.json", "metrics.jsonl"} - {kept}:
        (trial.folder.path / name).unlink()
    with pytest.raises(UsageError, match="trial.json"):
        read_folder(trial.folder.path.parent)


def test_a_budget_of_no_steps_is_damage(trial: Trial) -> None:
    edit(trial.folder.path, "trial.json", lambda c: c["spec"]["budget"].update(env_steps=0))
    with pytest.raises(DamagedTrialError, match="env_steps"):
        read_all(trial.folder)
