"""Which folders hold trials, and what happens if one of them may not be read."""

import os
from pathlib import Path
from typing import Any

import pytest
from fake_trials import write_scores

from esbench.core.errors import UsageError
from esbench.store.find_trials import find_trials
from esbench.store.outputs import write_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("openai_es", "snes"):
        write_scores(tmp_path / "halfcheetah", [1.0, 2.0], algorithms={name: {}})
    return tmp_path / "halfcheetah"


def refuse(monkeypatch: pytest.MonkeyPatch, root: Path, error: type[OSError]) -> Path:
    """Let the folder of ``snes`` raise an error when it is read, and return it."""
    (folder,) = {trial.path.parent for trial in find_trials(root) if "snes" in str(trial.path)}
    scandir = os.scandir

    def scan(path: Any) -> Any:
        if Path(path) == folder:
            raise error(13, "refused", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    return folder


def test_a_folder_that_may_not_be_read_is_never_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = refuse(monkeypatch, root, PermissionError)
    with pytest.raises(UsageError) as refused:
        find_trials(root)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("name", ["trial.json", "result.json", "kept/new.json", "checkpoint/a"])
def test_an_output_never_replaces_a_file_of_a_trial(root: Path, name: str) -> None:
    trial = find_trials(root)[0].path
    before = (trial / "trial.json").read_bytes()
    with pytest.raises(UsageError):
        write_bytes(trial / name, b"")
    assert (trial / "trial.json").read_bytes() == before
    assert not (trial / "kept").exists()
    write_bytes(trial / "policy.pt2", b"new")
    trials = [trial.path for trial in find_trials(root)]
    write_bytes(root / name, b"new")  # no trial is there
    found = [trial.path for trial in find_trials(root)]
    assert found == ([root, *trials] if name == "trial.json" else trials)


def test_a_wrong_folder_is_one_sentence(root: Path) -> None:
    for wrong, words in (
        (root.with_name("halfcheetha"), repr(str(root))),  # the nearest one
        (find_trials(root)[0].path / "trial.json", "is a file"),
    ):
        with pytest.raises(UsageError, match=words):
            find_trials(wrong)


def test_linked_folders_are_followed_and_each_trial_is_found_once(root: Path) -> None:
    trials = [trial.path for trial in find_trials(root)]
    linked = root.with_name("linked")
    (linked / "CartPole-v1").mkdir(parents=True)
    (linked / "CartPole-v1/snes").symlink_to(root / "CartPole-v1/snes")
    (linked / "again").symlink_to(root)
    (linked / "CartPole-v1/loop").symlink_to(linked)
    found = [trial.path.resolve() for trial in find_trials(linked)]
    assert sorted(found) == sorted(trials)
