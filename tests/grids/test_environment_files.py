from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import gymnasium
import pytest

from esbench.environments.atari.games import DETERMINISTIC, V5, Game
from esbench.environments.make import reason, register_family
from esbench.errors import UsageError
from esbench.grids import environment_files
from esbench.grids.environment_files import (
    environment_kind,
    environment_names,
    folder,
    load_environment,
    merged,
    read_toml,
)
from esbench.grids.grid_file import parse_grid
from esbench.rollouts.random_policy import random_policy_returns
from esbench.training.trainer import Trainer
from esbench.training.trials import grid_trials

NAMES = environment_names()
FUNCTIONS = [name for name in NAMES if environment_kind(name) == "function"]
GAMES = [
    f"esbench/{game}{suffix}-v5"
    for game in (
        "Pong", "Breakout", "Freeway", "Frostbite", "Seaquest", "SpaceInvaders", "BeamRider",
        "Qbert", "Enduro",
    )
    for suffix in ("", "Deterministic")
]  # fmt: skip


def test_what_an_environment_says_cannot_command_the_terminal() -> None:
    error = ValueError("\x1b[31mred\x07\nand more")
    assert reason(error) == "ValueError: ?[31mred? and more"


def test_the_benchmark_has_its_environments() -> None:
    assert set(NAMES) >= {
        "CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1",
        "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Swimmer-v5", "Hopper-v5",
        "HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5",
        "esbench/Sphere-v0", "esbench/Ellipsoid-v0", "esbench/RotatedEllipsoid-v0",
        "esbench/Rosenbrock-v0", "esbench/Rastrigin-v0", "esbench/NoisySphere-v0",
        *GAMES,
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
    algorithms = ["openai_es"] if name in GAMES else ["openai_es", "random_search"]  # 0.3 s each
    table = {"name": "t", "environments": [name], "algorithms": algorithms, "seeds": [0]}
    for trial in grid_trials(parse_grid(table, "t"), folder(), "t"):
        Trainer(trial.spec).close()


@pytest.mark.parametrize("name", NAMES)
def test_solved_is_gymnasiums_own_threshold(name: str) -> None:
    register_family(name)
    assert load_environment(name).scores.solved in {None, gymnasium.spec(name).reward_threshold}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FUNCTIONS])
def test_references_have_sources(name: str) -> None:
    references = load_environment(name).scores.references
    assert references
    for reference in references:
        assert reference.source
        assert reference.comparable or reference.note


@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5", "Walker2d-v5", *FUNCTIONS])
def test_the_random_score_is_what_its_command_measures(name: str) -> None:
    file = load_environment(name)
    random = file.scores.random
    assert random is not None
    returns = random_policy_returns(file.spec(), random.episodes, seed=0)
    assert returns.mean() == pytest.approx(random.mean, rel=2e-3)
    assert returns.std() == pytest.approx(random.std, rel=2e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_points_that_are_evaluated_as_often_as_their_noise_asks(name: str) -> None:
    file = load_environment(name)
    assert file.policy == {"template": "vector"}
    noisy = name == "esbench/NoisySphere-v0"
    assert file.evaluation == {"episodes": 100 if noisy else 1}
    assert file.scores.solved == (None if noisy else -1e-8)
    assert not file.scores.references  # what is best is known: 0


@pytest.mark.parametrize("name", GAMES)
def test_every_argument_of_a_game_is_pinned(name: str) -> None:
    """A later default of ours, or of the ALE, changes no score."""
    file = load_environment(name)
    pinned = {field.name for field in fields(Game)} - {"rom", "protocol"}
    assert set(file.kwargs) == pinned - {"actions"}  # all those of full_action_space
    register_family(name)
    spec = gymnasium.spec(name)
    rom = spec.kwargs["game"]
    assert Game(rom, V5, **file.kwargs) == Game(rom, V5)
    assert spec.entry_point == (DETERMINISTIC if "Deterministic" in name else V5).entry_point
    human, es, *_ = file.scores.references
    assert file.scores.random is not None
    assert human.score > file.scores.random.mean  # OpenAI-ES is below it in Q*bert
    assert not human.comparable
    assert not es.comparable
    assert ("the same protocol" in es.note) == ("Deterministic" in name)


def test_a_kind_is_an_environment_unless_its_file_says_otherwise() -> None:
    assert environment_kind("CartPole-v1") == environment_kind("Taxi-v3") == "environment"
    assert environment_kind("esbench/Sphere-v0") == "function"
    assert "kind" not in load_environment("esbench/Sphere-v0").spec().model_dump()
    with pytest.raises(UsageError, match="kind = .* did you mean 'function'"):
        load_environment("CartPole-v1", {"kind": "functon"}, "test")


def test_any_gymnasium_environment_has_defaults() -> None:
    file = load_environment("MountainCar-v0")
    assert file.policy == {"template": "mlp", "normalize_observations": True}
    assert file.scores.random is None


def test_files_are_named_by_their_environment() -> None:
    for path in folder().glob("*.toml"):
        table = read_toml(path)
        names = [each["id"] for each in table.get("protocols", {"": table}).values()]
        stem = path.stem.removesuffix("-v5") if "protocols" in table else path.stem
        assert all(name.replace("/", "_").startswith(stem) for name in names)


def test_a_file_has_an_environment_for_each_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "common.toml").write_text(
        """
        description = "common"
        kwargs = { size = 1, skip = 2 }
        [scores.references.First]
        source = "a paper"
        comparable = true
        [protocols.a.scores.references.First]
        note = "of a"
        """
    )
    (tmp_path / "game.toml").write_text(
        """
        shared = "common"
        kwargs.size = 3
        scores.references.First.score = 1.0
        scores.references.Second = { score = 2.0, source = "a book", comparable = true }
        protocols = { a = { id = "Game-a" }, b = { id = "Game-b", description = "own" } }
        """
    )
    monkeypatch.setattr(environment_files, "folder", lambda: tmp_path)
    assert environment_names() == ["Game-a", "Game-b"]
    a, b = load_environment("Game-a"), load_environment("Game-b")
    assert (a.id, a.description, b.id, b.description) == ("Game-a", "common", "Game-b", "own")
    assert a.kwargs == b.kwargs == {"size": 3, "skip": 2}
    assert [each.method for each in a.scores.references] == ["First", "Second"]
    assert [each.note for each in a.scores.references] == ["of a", ""]
    overridden = load_environment("Game-b", {"scores": {"references": {"First": {"score": 9.0}}}})
    assert [each.score for each in overridden.scores.references] == [9.0, 2.0]


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("HalfCheeta-v5", "did you mean 'HalfCheetah-v5'"),
        ("ALE/Pnog-v5", "did you mean 'ALE/Pong-v5'"),
        ("esbench/Spere-v0", "did you mean 'esbench/Sphere-v0'"),
        ("esbench/sphere-v0", "did you mean 'esbench/Sphere-v0'"),
        ("xxxxxxxxxxxxxxxx", "esbench list"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, suggested: str) -> None:
    with pytest.raises(UsageError, match=suggested):
        load_environment(name)


def test_atari_games_of_the_ale_are_known() -> None:
    assert load_environment("ALE/Pong-v5").id == "ALE/Pong-v5"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import nothing_there", "No module named 'nothing_there'; install the package"),
        ("import gymnasium\n1 / 0", "ZeroDivisionError: division by zero"),
        ("if", "SyntaxError"),
    ],
)
def test_a_users_own_file_that_does_not_import(
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
