"""What is not as it was written is named as damage, whatever file of a trial's folder it is."""

import gzip
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
from esbench.core.files import read_bytes
from esbench.core.json_text import parse_json
from esbench.experiment.trials import Trial
from esbench.results.baselines import read_baseline
from esbench.results.data_frames import load_results, load_scores
from esbench.results.sources import read_folder
from esbench.store.merge import merge
from esbench.store.stored_json import FORMAT, StoredJson
from esbench.store.trial_folder import TrialFolder, keep_selected_score, selected_score

ROWS = 3
Damage = Callable[[Path], object]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A done trial with a checkpoint of three rows and a score of its best policy."""
    (made,) = make_trials(tmp_path / "out", seeds=[0])
    write_trial(made, make_records([1.0, 2.0, 3.0]), parameters=4)
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
        StoredJson(folder).write(name, content)

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
    *('{"a":' * 500 + "1" + "}" * 500, '{"format": 2, "score": ' + "9" * 400 + "}"),
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
    ("state.json", new(STATE, lambda data: data[: data.index(b',\n  "sha256"')] + b"}")),
    ("metrics.jsonl", new("metrics.jsonl", lambda rows: b"".join(rows.splitlines(True)[:-1]))),
    ("metrics.jsonl", new("metrics.jsonl", lambda rows: 2 * rows.splitlines(True)[0] + rows)),
    ("metrics.jsonl", text("metrics.jsonl", '"center_return":2.0', '"center_return":2.5')),
    *(
        (name.rpartition("/")[2], new(name, always(content.encode())))
        for name in ("trial.json", STATE, "result.json")
        for content in TEXTS
    ),
    *(("trial.json", text("trial.json", f'"{key}":', '"x":')) for key in ("seed", "labels", "id")),
    *(("state.json", text(STATE, f'"{key}":', '"x":')) for key in ("state", "generation")),
    ("result.json", text("result.json", '"env_steps":', '"x":')),
    ("result.json", values("result.json", score="high")),
    ("result.json", values("result.json", score=True)),
    ("result.json", values("result.json", returns="x")),
    ("result.json", values("result.json", generations=10**20)),
    ("result.json", values("result.json", env_steps=-1)),
    ("trial.json", values("trial.json", labels={"environment": 1, "algorithm": "", "policy": ""})),
    ("trial.json", values("trial.json", versions={"numpy": [1]})),
    ("trial.json", values("trial.json", resumed_with=3)),
    ("trial.json", values("trial.json", resumed_with=[{"versions": 1}])),
    ("trial.json", values("trial.json", extended="x")),
    ("trial.json", values("trial.json", inherited=[1])),
    ("trial.json", no_steps),
    ("state.json", values(STATE, arrays={"file": "../x.safetensors", "size": 1, "sha256": ""})),
    ("best.json", values("best.json", returns=[[]])),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_damage_is_named_and_nothing_is_written(trial: Trial, number: int) -> None:
    name, damage = DAMAGES[number]
    damage(trial.folder.path)
    before = files(trial.folder.path)
    with pytest.raises(DamagedTrialError, match=rf"{name} is damaged \(.*remove"):
        read_all(trial.folder)
    if name != "best.json":
        with pytest.raises(DamagedTrialError, match=f"{name} is damaged"):
            trial.folder.begin(trial.spec, {"versions": {"numpy": "1"}, "workers": 3})
    if name not in {"best.json", "result.json"}:
        (trial.folder.path / "result.json").rename(trial.folder.path / "scored")
        with pytest.raises(DamagedTrialError, match=f"{name} is damaged"):
            trial.folder.begin(trial.spec, {})
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


def first(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change the first of the rows."""

    def changed(rows: bytes) -> bytes:
        row, *others = rows.splitlines(keepends=True)
        return b"".join([change(row), *others])

    return changed


def steps(value: bytes) -> Callable[[bytes], bytes]:
    return first(lambda row: row.replace(b'"env_steps":', b'"env_steps":' + value + b',"was":'))


@pytest.mark.parametrize(
    "change",
    [
        *(first(always(line + b"\n")) for line in (b"", b"[]", b"1", b'{"genera')),
        first(lambda _: b'{"generation": 1}\n'),
        first(lambda row: row + row),
        first(lambda row: row[:-1] + row),
        first(lambda row: row + b"\n"),
        first(lambda row: row.replace(b",", b",\n", 1)),
        first(lambda row: row.replace(b'"digest":"', b'"digest":"\xff')),
        *map(steps, (b'"many"', b"null", b"[1,2]", b"-1", b"1" + b"0" * 30, b"1e999")),
    ],
)
def test_a_line_that_is_no_row_is_damage(trial: Trial, change: Callable[[bytes], bytes]) -> None:
    path = trial.folder.path / "metrics.jsonl"
    (trial.folder.path / "result.json").unlink()
    path.write_bytes(change(path.read_bytes()))
    keys = ("env_steps", "digest")
    for read in (trial.folder.rows, trial.folder.columns, lambda: trial.folder.columns(*keys)):
        with pytest.raises(DamagedTrialError, match=r"metrics.jsonl is damaged \(line [12] is"):
            read()


@pytest.mark.parametrize("text", [b"[" * 10**5, b"1" * 5000, b"1e999", b"NaN", b'"\\ud800"'])
def test_json_that_could_not_be_written_again_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(text)


def link_to_the_same(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": link_to_the_same,
    "folder": Path.mkdir,
    "terabyte": sparse,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*STORED, "lock"])
def test_only_regular_files_are_read(trial: Trial, name: str, kind: str) -> None:
    (path,) = trial.folder.path.glob(name)
    if kind != "link":
        path.unlink()
    KINDS[kind](path)
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


def test_no_command_passes_over_a_damaged_trial(trial: Trial) -> None:
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
    monkeypatch.setattr("esbench.store.row_files.LARGEST", 10_000)
    path = trial.folder.path / "members.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(DamagedTrialError, match="10000"):
        trial.folder.members()


@pytest.mark.parametrize("kept", ["result.json", "metrics.jsonl", STATE])
def test_a_trial_that_has_lost_its_description_is_not_left_out(trial: Trial, kept: str) -> None:
    for name in {"trial.json", "result.json", "metrics.jsonl"} - {kept}:
        (trial.folder.path / name).unlink()
    with pytest.raises(UsageError, match="trial.json"):
        read_folder(trial.folder.path.parent) if kept != STATE else trial.folder.begin(
            trial.spec, {}
        )
