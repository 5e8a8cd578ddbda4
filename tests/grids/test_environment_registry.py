"""Environments of plugins and scripts, and frozen scores of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fake_trials import make_records, make_trials, write_trial

import esbench as package
from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial
from esbench.grids.environment_files import ENVIRONMENTS, load_environment
from esbench.publish.catalog import catalog
from esbench.results.baselines import freeze
from esbench.results.sources import read_folder

NAME = "doubles:Walk-v0"
RANDOM = {"mean": -30.0, "std": 5.0, "episodes": 100, "command": "own"}
REFERENCE = {"score": -2.0, "source": "my thesis", "comparable": True}
SCORES = {"random": RANDOM, "references": {"Mine": REFERENCE}}
FILE = """
id = "doubles:Walk-v0"
description = "a noisy walk"
policy = { template = "linear" }
[budget]
env_steps = 300
[algorithms.openai_es]
population_size = 6
[scores.random]
mean = -30.0
std = 5.0
episodes = 100
command = "own"
[scores.references.Mine]
score = -2.0
source = "my thesis"
comparable = true
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENVIRONMENTS, "_registered", {})


@pytest.fixture
def plugin(tmp_path: Path, install: Callable[..., None]) -> Path:
    """A plugin with an environment's file in a package, which has no code."""
    install({}, f"[esbench.environments]\n{NAME} = walks.files\nGone-v0 = walks.files\n")
    files = tmp_path / "site" / "walks" / "files"
    files.mkdir(parents=True)
    (files / "walk.toml").write_text(FILE)
    return files


def done(trials: list[Trial], scores: list[float]) -> list[Trial]:
    """Write the trials, as ``run_trial`` does."""
    for trial, score in zip(trials, scores, strict=True):
        write_trial(trial, make_records([score]), score)
        trial.record_scores()
    return trials


def test_a_plugin_is_listed_trained_and_scored(esbench: Run, plugin: Path) -> None:
    assert "a noisy walk" in esbench("list", "environments")[1]
    run = ["run", "--env", NAME, "--algorithm", "openai_es", "--seeds", "0", "--out", "out"]
    code, _, err = esbench(*run, "--workers", "0", "--set", "evaluation.episodes=2")
    assert (code, err) == (0, "")
    table = esbench("table", "out", "--format", "csv")[1]
    assert [text for text in ("-30.0", "my thesis") if text not in table] == []
    (cell,) = read_folder(Path("out"))
    spec = cell.descriptions[0]["spec"]
    assert spec["policy"]["template"] == "linear"
    assert spec["algorithm"]["settings"]["population_size"] == 6
    (plugin / "walk.toml").unlink()  # the scores are read from the trial
    assert read_folder(Path("out"))[0].frozen == cell.frozen


def test_a_plugin_that_has_no_file_for_its_name(refused: Callable[..., str], plugin: Path) -> None:
    assert "'walks.files'" in refused("plan", "--env", "Gone-v0", "--algorithm", "openai_es")
    listed = {entry.name: entry.text for entry in catalog("environments")}
    assert "'walks.files'" in listed["Gone-v0"]


def test_a_name_belongs_to_one_file(install: Callable[..., None]) -> None:
    install({}, "[esbench.environments]\nCartPole-v1 = walks.files\n")
    with pytest.raises(UsageError, match=r"'CartPole-v1' is registered twice.*'walks\.files'"):
        ENVIRONMENTS.names()
    assert load_environment("CartPole-v1").scores.solved == 475.0


@pytest.mark.parametrize("form", ["file", "folder", "table"])
def test_a_script_registers_a_file_a_folder_or_a_table(form: str, tmp_path: Path) -> None:
    path = tmp_path / "own" / "walk.toml"
    path.parent.mkdir()
    path.write_text(FILE)
    table = {"id": NAME, "budget": {"env_steps": 300}, "scores": SCORES}
    source = {"file": str(path), "folder": path.parent, "table": table}[form]
    package.register_environment(source)  # type: ignore[arg-type]
    assert NAME in package.list_environments()
    file = load_environment(NAME)
    assert file.budget == {"env_steps": 300}
    assert file.scores.random is not None
    assert file.scores.random.mean == -30.0
    package.register_environment({"id": NAME, "budget": {"env_steps": 400}})
    assert load_environment(NAME).budget == {"env_steps": 400}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"id": "CartPole-v1"}, r"'CartPole-v1' is registered twice.*CartPole-v1\.toml"),
        ({"budget": {}}, "no id"),
        ({"id": NAME, "algorithms": {"openai_es": {"sigmaa": 1}}}, "sigmaa.*'sigma'"),
        ({"id": "ALE/Tennis-v5"}, "id = 'ALE/Tennis-v5': expected 'esbench/Tennis-v5'"),
        (
            {"id": "ALE/Tennis-v5", "kwargs": {"obs_type": "ram"}},
            "expected 'esbench/Tennis-ram-v5'",
        ),
        ({"protocols": {"own": 5}}, "protocols = {'own': 5}: expected a table"),
        ("missing.toml", "missing.toml: cannot be read"),
        (str(Path(__file__).parent), "no id in .*grids"),
    ],
)
def test_a_table_that_is_wrong_is_refused(source: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        package.register_environment(source)
    assert NAME not in package.list_environments()


def test_scores_of_a_grid_are_recorded_and_used(esbench: Run, tmp_path: Path) -> None:
    plain = make_trials(tmp_path / "plain", environments=[NAME])
    grid = {"environments": [NAME], "environment": {NAME: {"scores": SCORES}}}
    own = make_trials(tmp_path / "own", **grid)
    assert [trial.spec.hash for trial in own] == [trial.spec.hash for trial in plain]
    done(plain, [-9.0, -8.0, -7.0])
    done(own, [-9.0, -8.0, -7.0])
    assert "scores" not in plain[0].folder.description()
    assert read_folder(tmp_path / "plain")[0].frozen.random is None
    (cell,) = read_folder(tmp_path / "own")
    assert cell.has_scale
    table = esbench("table", "own", "--format", "csv")[1]
    assert "my thesis" in table
    assert "0.7857" in table  # (-8 + 30) / (-2 + 30)
    frozen = freeze(tmp_path / "own", "command").cells[0]
    assert (frozen.random_score, frozen.reference_score) == (-30.0, -2.0)
    done(make_trials(tmp_path / "own", environments=[NAME]), [-9.0, -8.0, -7.0])  # taken back
    assert read_folder(tmp_path / "own")[0].frozen.random is None


def test_scores_of_envs_hold_for_its_environment_only(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"kwargs": {"sutton_barto_reward": True}}
    (first, *_) = make_trials(tmp_path, environment={"CartPole-v1": changes})
    assert first.scores is None  # none is known
    changes["scores"] = {"random": RANDOM}
    (first, *_) = make_trials(tmp_path, environment={"CartPole-v1": changes})
    assert first.scores is not None
    assert (first.scores.random is None, first.scores.references) == (False, ())
    (first, *_) = make_trials(tmp_path, environment={"CartPole-v1": {"scores": {"solved": 490.0}}})
    assert first.scores is not None
    assert (first.scores.solved, len(first.scores.references)) == (490.0, 2)
    assert make_trials(tmp_path)[0].scores is None  # those of envs/ are read there
