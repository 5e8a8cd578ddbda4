"""What is not as it was written is named as damage, whatever file of a trial's folder it is."""

import os
import shutil
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import files
from fake_trials import edit, make_records, make_trials, write_trial
from safetensors.numpy import load_file, save_file

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.json_text import parse_json
from esbench.experiment.trials import Trial
from esbench.results.sources import read_folder
from esbench.store.stored_json import FORMAT, write_stored
from esbench.store.trial_folder import TrialFolder, keep_selected_score, selected_score

ROWS = 3
Damage = Callable[[Path], object]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A done trial with a checkpoint of three rows and a score of its best policy."""
    (made,) = make_trials(tmp_path / "out", seeds=[0])
    write_trial(made, make_records([1.0, 2.0, 3.0]), parameters=4)
    with made.folder.locked():
        made.folder.begin(made.spec, {"labels": made.labels})
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
    folder.records()
    folder.load_checkpoint()
    folder.load_checkpoint(ROWS)
    (folder.path / "kept" / "00000003.json").rename(folder.path / "other")
    folder.load_checkpoint(ROWS)
    (folder.path / "other").rename(folder.path / "kept" / "00000003.json")
    selected_score(folder)
    with folder.locked():
        pass


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
        if not same(path, whole, bytes(damaged)):
            with pytest.raises(UsageError, match=f"{path.name} is damaged|format"):
                read_all(TrialFolder(trial.folder.path))
    path.write_bytes(whole)
    read_all(trial.folder)


def same(path: Path, whole: bytes, damaged: bytes) -> bool:
    """Whether the content is the same, apart from white space and the name of its digest."""
    try:
        before, after = parse_json(whole), parse_json(damaged)
    except ValueError:
        return False
    if path.parent.name not in {"checkpoint", "kept"}:  # there, it must have that name
        del before["sha256"]
    return bool(before.items() <= after.items())


def new(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the content of a file."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(name)
        path.write_bytes(change(path.read_bytes()))

    return damage


def text(name: str, old: str, other: str) -> Damage:
    return new(name, lambda content: content.replace(old.encode(), other.encode()))


def values(name: str, **changed: Any) -> Damage:
    """Change values of a JSON file, with a digest that fits."""

    def damage(folder: Path) -> None:
        content = parse_json((folder / name).read_bytes()) | changed
        write_stored(folder / name, content)

    return damage


def negate_a_weight(folder: Path) -> None:
    (path,) = (folder / "checkpoint").glob("*.safetensors")
    arrays = load_file(path)
    arrays["algorithm.center"][0] = -1.0
    save_file(arrays, path)


def mix_two_checkpoints(folder: Path) -> None:
    (kept,), (latest,) = ((folder / name).glob("*.safetensors") for name in ("kept", "checkpoint"))
    shutil.copy(kept, latest)


def no_steps(folder: Path) -> None:
    edit(folder, "trial.json", lambda content: content["spec"]["budget"].update(env_steps=0))


TENSORS = r"00000003-\w+\.safetensors"
STATE, WEIGHTS = "checkpoint/state.json", "checkpoint/*.safetensors"
TEXTS = (
    *("", '{"format": 2, "sp', "\0\0\0", "[]", "{}", '{"format": 2}', "[" * 100_000),
    *('{"format": 2, "score": NaN}', '{"format": 2, "score": 1e999}'),
)


def always(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _: content


DAMAGES: list[tuple[str, Damage]] = [
    (TENSORS, negate_a_weight),
    (TENSORS, mix_two_checkpoints),
    *((TENSORS, new(WEIGHTS, itemgetter(slice(size)))) for size in (0, 4, 40)),
    (TENSORS, new(WEIGHTS, lambda data: data + b"x")),
    (TENSORS, lambda folder: next(folder.glob(WEIGHTS)).unlink()),
    ("state.json", text(STATE, '"generation": 3', '"generation": 2')),
    ("metrics.jsonl", new("metrics.jsonl", lambda rows: b"".join(rows.splitlines(True)[:-1]))),
    ("metrics.jsonl", text("metrics.jsonl", '"center_return":2.0', '"center_return":2.5')),
    *(
        (name.rpartition("/")[2], new(name, always(content.encode())))
        for name in ("trial.json", STATE)
        for content in TEXTS
    ),
    *(("trial.json", text("trial.json", f'"{key}":', '"x":')) for key in ("seed", "labels", "id")),
    *(("state.json", text(STATE, f'"{key}":', '"x":')) for key in ("state", "generation")),
    ("result.json", text("result.json", '"env_steps":', '"x":')),
    ("result.json", values("result.json", generations=10**20)),
    ("trial.json", values("trial.json", labels={"environment": 1, "algorithm": "", "policy": ""})),
    ("trial.json", no_steps),
    ("trial.json", values("trial.json", git_commit="HEAD")),
    ("state.json", values(STATE, arrays={"file": "../x.safetensors", "size": 1, "sha256": ""})),
    ("best.json", values("best.json", returns=[[]])),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_damage_is_named_and_nothing_is_written(trial: Trial, number: int) -> None:
    name, damage = DAMAGES[number]
    damage(trial.folder.path)
    before = files(trial.folder.path)
    with pytest.raises(DamagedTrialError, match=rf"{name} is damaged \(.*remove") as caught:
        read_all(trial.folder)
    assert "regex" not in str(caught.value)  # what is expected is said in words
    if name != "best.json":
        with pytest.raises(DamagedTrialError, match=f"{name} is damaged"):
            trial.folder.begin(trial.spec, {"versions": {"numpy": "1"}, "workers": 3})
    if name not in {"best.json", "result.json"}:
        (trial.folder.path / "result.json").rename(trial.folder.path / "scored")
        with pytest.raises(DamagedTrialError, match=f"{name} is damaged"):
            trial.folder.begin(trial.spec, {"labels": trial.labels})
        (trial.folder.path / "scored").rename(trial.folder.path / "result.json")
    assert files(trial.folder.path) == before


@pytest.mark.parametrize("written", [1, 99])
@pytest.mark.parametrize("name", ["trial.json", "result.json", STATE])
def test_another_format_is_refused_and_not_called_damage(
    trial: Trial, name: str, written: int
) -> None:
    (trial.folder.path / name).write_text(f'{{"format": {written}}}')
    with pytest.raises(UsageError, match=rf"{written}.*format {FORMAT}") as error:
        read_all(trial.folder)
    assert error.type is UsageError


@pytest.mark.parametrize(
    "change",
    [
        lambda row: b"",
        lambda row: b"[]",
        lambda row: row + b"\n" + row,
        lambda row: row.replace(b'"digest":"', b'"digest":"\xff'),
        lambda row: row.replace(b'"env_steps":', b'"env_steps":"many","was":'),
    ],
)
def test_a_line_that_is_no_row_is_damage(trial: Trial, change: Callable[[bytes], bytes]) -> None:
    path = trial.folder.path / "metrics.jsonl"
    (trial.folder.path / "result.json").unlink()
    row, *others = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([change(row), *others, b""]))
    keys = ("env_steps", "digest")
    for read in (trial.folder.records, trial.folder.columns, lambda: trial.folder.columns(*keys)):
        with pytest.raises(DamagedTrialError, match="metrics.jsonl is damaged"):
            read()


@pytest.mark.parametrize("kind", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", [*STORED, "lock"])
def test_only_regular_files_are_read_and_written(
    trial: Trial, name: str, kind: Callable[[Path], object]
) -> None:
    (path,) = trial.folder.path.glob(name)
    path.unlink()
    kind(path)
    with pytest.raises(UsageError, match=path.name):
        read_all(trial.folder)


@pytest.mark.parametrize("name", ["checkpoint", "kept", "log.txt"])
def test_training_does_not_write_through_a_link(trial: Trial, tmp_path: Path, name: str) -> None:
    elsewhere, link = tmp_path / "elsewhere", trial.folder.path / name
    if link.exists():
        link.rename(elsewhere)
    link.symlink_to(elsewhere)
    with pytest.raises(DamagedTrialError, match=f"{name} is damaged .a link"):
        trial.folder.locked().__enter__()


def test_a_kept_checkpoint_of_another_generation_is_damage(trial: Trial) -> None:
    kept = trial.folder.path / "kept"
    (kept / "00000003.json").rename(kept / "00000099.json")
    with pytest.raises(DamagedTrialError, match="it is of generation 3.*remove .*kept/00000099"):
        trial.folder.load_checkpoint(99)


@pytest.mark.parametrize("kept", ["result.json", "metrics.jsonl", STATE])
def test_a_trial_that_has_lost_its_description_is_not_left_out(trial: Trial, kept: str) -> None:
    for name in {"trial.json", "result.json", "metrics.jsonl"} - {kept}:
        (trial.folder.path / name).unlink()
    with pytest.raises(UsageError, match="trial.json"):
        read_folder(trial.folder.path.parent) if kept != STATE else trial.folder.begin(
            trial.spec, {}
        )


def test_a_folder_that_holds_no_trial_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(UsageError, match="expected the folder of a trial") as refused:
        TrialFolder(tmp_path).description()
    assert not isinstance(refused.value, DamagedTrialError)  # which says what to remove
