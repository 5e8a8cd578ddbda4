"""Fixtures: one trained cell whose copies tests change, and its leaderboard."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import execute, working_in
from fake_trials import edit, reseal
from safetensors.numpy import load_file, save_file

from esbench.core.json_text import SEAL
from esbench.core.settings import parse
from esbench.engine.this_process import ThisProcess
from esbench.publish.leaderboard.submit import submit
from esbench.results.entries import Entry, as_file
from esbench.store.origin import CODE

TRAIN = [
    "run", "--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--env-steps", "600",
    "--workers", "0", "--quiet", "--out", "out",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=12",
]  # fmt: skip
Rewrite = Callable[..., Path]


@pytest.fixture(autouse=True, scope="session")
def _submissions_play_here() -> Iterator[None]:
    """In this process, instead of a worker that each submission starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("esbench.publish.leaderboard.submit.WorkerPool", ThisProcess)
        yield


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with working_in(folder):
        assert execute(*TRAIN, "--seeds", "0-3") == 0
    # The code is that of a clean checkout, as a version tells that did not record its files.
    edit(folder, "trial.json", lambda c: (c.update(git_commit="0" * 40), c["versions"].pop(CODE)))
    return folder / "out"


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """The folder of four trials of one cell."""
    shutil.copytree(trained_once, tmp_path / "out")
    return next(tmp_path.rglob("trial.json")).parent.parent


@pytest.fixture(scope="session")
def board_once(trained_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A leaderboard of that cell, with its policies beside it."""
    folder = tmp_path_factory.mktemp("submitted") / "board"
    submit(trained_once, folder)
    return folder


@pytest.fixture
def board(board_once: Path, tmp_path: Path) -> Path:
    """A leaderboard of that cell alone."""
    return Path(shutil.copytree(board_once, tmp_path / "board"))


@pytest.fixture
def path(board: Path) -> Path:
    """The only file of that leaderboard."""
    (found,) = board.iterdir()
    return found


@pytest.fixture
def rewrite(board: Path, path: Path) -> Rewrite:
    """Replaces the file by an entry with a change of its JSON and a fitting digest and name."""
    newest = [path]

    def write(change: Callable[[Any], object], keep: bool = False) -> Path:
        content = json.loads(newest[-1].read_text())
        del content[SEAL]
        change(content)
        entry = parse(Entry, content, "changed")
        if not keep:
            newest.pop().unlink()
        new = board / entry.file_name
        new.write_bytes(as_file(entry))
        newest.append(new)
        return new

    return write


def raise_scores(content: Any, errors: float) -> None:
    """Raise all returns of every run by some standard errors of its score."""
    for run, trial in zip(content["runs"], content["cell"]["trials"], strict=True):
        *_, low, _, high, _, _, _ = run["quantiles"]
        raised = errors * (high - low) / 1.35 / run["episodes"] ** 0.5
        run["quantiles"] = [value + raised for value in run["quantiles"]]
        run["tail"] += raised
        trial["score"] += raised


def every(**changes: Any) -> Callable[[Any], None]:
    """A change of keys of all runs and trials of an entry; a function gets the run or the trial."""

    def change(content: Any) -> None:
        for one in (*content["runs"], *content["cell"]["trials"]):
            for key in changes.keys() & one.keys():
                one[key] = changes[key](one) if callable(changes[key]) else changes[key]

    return change


def change_policy(trial: Path) -> None:
    (path,) = (trial / "checkpoint").glob("*.safetensors")
    tensors = load_file(path)
    save_file(tensors | {"algorithm.center": tensors["algorithm.center"] * 1.001}, path)
    reseal(trial)
