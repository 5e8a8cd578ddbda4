from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest

from esbench.environments import (
    environment_names,
    folder,
    load_environment,
    merged,
    read_toml,
)
from esbench.errors import UsageError
from esbench.grid import parse_grid
from esbench.random_policy import random_policy_returns
from esbench.trainer import Trainer
from esbench.trials import expand

NAMES = environment_names()


def test_the_benchmark_has_its_environments() -> None:
    assert set(NAMES) >= {
        "CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1",
        "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Swimmer-v5", "Hopper-v5",
        "HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_complete_and_can_be_trained(name: str, tmp_path: object) -> None:
    file = load_environment(name)
    assert file.id == name
    assert file.description
    assert "env_steps" in file.budget
    assert "template" in file.policy
    random = file.scores.random
    assert random is not None
    assert random.episodes >= 100
    assert random.command == (
        f"esbench eval --random-policy {name} --episodes {random.episodes} --seed 0"
    )
    algorithms = ["openai_es", "random_search"]
    table = {"name": "t", "environments": [name], "algorithms": algorithms, "seeds": [0]}
    for trial in expand(parse_grid(table, "t"), folder(), "t"):
        Trainer(trial.spec).close()


@pytest.mark.parametrize("name", NAMES)
def test_solved_is_gymnasiums_own_threshold(name: str) -> None:
    assert load_environment(name).scores.solved in {None, gymnasium.spec(name).reward_threshold}


@pytest.mark.parametrize("name", NAMES)
def test_references_have_sources(name: str) -> None:
    references = load_environment(name).scores.references
    assert references
    for reference in references:
        assert reference.source
        assert reference.comparable or reference.note


@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5", "Walker2d-v5"])
def test_the_random_score_is_what_its_command_measures(name: str) -> None:
    file = load_environment(name)
    random = file.scores.random
    assert random is not None
    returns = random_policy_returns(file.spec(), random.episodes, seed=0)
    assert returns.mean() == pytest.approx(random.mean, rel=2e-3)
    assert returns.std() == pytest.approx(random.std, rel=2e-3)


def test_any_gymnasium_environment_has_defaults() -> None:
    file = load_environment("MountainCar-v0")
    assert file.policy == {"template": "mlp", "normalize_observations": True}
    assert file.scores.random is None


def test_files_are_named_by_their_environment() -> None:
    for path in folder().glob("*.toml"):
        assert path.stem == read_toml(path)["id"].replace("/", "_")


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'HalfCheetah-v5'"):
        load_environment("HalfCheeta-v5")
    with pytest.raises(UsageError, match="no known name is near"):
        load_environment("xxxxxxxxxxxxxxxx")


def test_atari_games_are_known_and_suggested() -> None:
    assert load_environment("ALE/Pong-v5").id == "ALE/Pong-v5"
    with pytest.raises(UsageError, match="did you mean 'ALE/Pong-v5'"):
        load_environment("ALE/Pnog-v5")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import nothing_there", "No module named 'nothing_there'; install the package"),
        ("import gymnasium\n1 / 0", "ZeroDivisionError: division by zero"),
        ("if", "SyntaxError"),
    ],
)
def test_a_persons_own_file_that_does_not_import(
    content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_file.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=rf"cannot import 'broken_file' \({words}"):
        load_environment("broken_file:Env-v0")


def test_tables_merge_and_values_replace() -> None:
    below = {"a": {"b": 1, "c": [1, 2]}, "d": 3}
    assert merged(below, {"a": {"c": [9]}, "d": {"e": 0}}) == {
        "a": {"b": 1, "c": [9]},
        "d": {"e": 0},
    }
    assert below == {"a": {"b": 1, "c": [1, 2]}, "d": 3}
