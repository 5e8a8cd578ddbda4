import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from esbench.core.errors import UsageError
from esbench.core.files import read_toml
from esbench.core.settings import Table
from esbench.engine.random_policy import random_policy_returns
from esbench.environments.atari_games import OF_FRAMES, Game
from esbench.environments.registration import SUFFIXES, atari_environments
from esbench.environments.simulator_log import silenced
from esbench.environments.specifications import register_family
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import grid_trials
from esbench.grids import environment_files
from esbench.grids.compose import compose_grid
from esbench.grids.environment_files import (
    environment_kind,
    environment_names,
    folder,
    load_environment,
)
from esbench.grids.expand import expand
from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import TrialSpec

NAMES = environment_names()
FUNCTIONS = [name for name in NAMES if environment_kind(name) == "function"]
GAMES = [
    f"esbench/{game}{suffix}-v5"
    for game in (
        "Pong", "Boxing", "Breakout", "Freeway", "Frostbite", "Seaquest", "SpaceInvaders",
        "BeamRider", "Qbert", "Enduro",
    )
    for suffix in SUFFIXES.values()
]  # fmt: skip


def test_the_benchmark_has_its_environments() -> None:
    assert len(NAMES) >= 25 + len(GAMES)
    assert {"CartPole-v1", "Humanoid-v5", "esbench/NoisySphere-v0", *GAMES} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_complete_and_can_be_trained(name: str) -> None:
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
    register_family(name)
    assert file.scores.solved in {None, gymnasium.spec(name).reward_threshold}
    for reference in file.scores.references:
        assert reference.source
        assert reference.comparable or reference.note
    table = {"name": "t", "environments": [name], "algorithms": ["openai_es"], "seeds": [0]}
    (trial,) = grid_trials(parse_grid(table, "t"), folder(), "t")
    SearchTrainer(trial.spec).close()


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "FrozenLake-v1", "InvertedPendulum-v5", *FUNCTIONS]
)
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
    register_family(name)
    rom, protocol = atari_environments()[name]
    pinned = set(Game.model_fields) - {"rom", "protocol", "actions"}  # all of full_action_space
    assert set(file.kwargs) == (pinned - OF_FRAMES if protocol == "ram" else pinned)
    game = {"rom": rom, "protocol": protocol}
    assert Game(**game, **file.kwargs) == Game(**game)
    assert gymnasium.spec(name).entry_point == f"esbench.environments.atari_games:{protocol}"
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


GAME_SPECS = [
    ("ALE/Pong-v5", {}, "esbench/Pong-v5", {}),
    ("ALE/Pong-v5", {"obs_type": "rgb", "frameskip": 2}, "esbench/Pong-v5", {"frame_skip": 2}),
    ("ALE/Pong-v5", {"obs_type": "ram"}, "esbench/Pong-ram-v5", {}),
    ("ALE/MsPacman-v5", {"repeat_action_probability": 0.25}, "esbench/MsPacman-v5", {}),
    ("ALE/MsPacman-v5", {"obs_type": "ram"}, "esbench/MsPacman-ram-v5", {}),
]


def game_trial(name: str, kwargs: object, **grid: object) -> TrialSpec:
    table = {
        "name": "t", "environments": [name], "algorithms": ["openai_es"], "seeds": [0],
        "environment": {name: {"kwargs": kwargs}}, **grid,
    }  # fmt: skip
    (trial,) = grid_trials(parse_grid(table, "t"), folder(), "t")
    assert trial.labels["environment"] == trial.spec.environment.id
    return trial.spec


@pytest.mark.parametrize("alias", ["ALE/Pong-v5", "esbench:esbench/Pong-v5", "ale_py:ALE/Pong-v5"])
def test_an_environment_is_given_once_by_all_of_its_names(alias: str) -> None:
    assert game_trial(alias, {}).environment == game_trial("esbench/Pong-v5", {}).environment
    names = [alias, "esbench/Pong-v5"]
    with pytest.raises(UsageError, match=f"t: environments: {alias} and esbench/Pong-v5 are one"):
        parse_grid({"name": "t", "environments": names, "algorithms": ["snes"], "seeds": [0]}, "t")


@pytest.mark.parametrize(
    ("env", "tables", "overrides", "name", "episodes", "kwargs"),
    [
        ("ALE/Pong-v5", {"esbench/Pong-v5": {}}, [], "esbench/Pong-v5", 7, {}),
        ("esbench/Pong-v5", {"ALE/Pong-v5": {}}, [], "esbench/Pong-v5", 7, {}),
        ("esbench/Pong-v5", {"ALE/Pong-v5": {"obs_type": "ram"}}, [], "esbench/Pong-v5", 1, {}),
        ("ALE/Pong-v5", {"ALE/Pong-v5": {"obs_type": "ram"}}, [], "esbench/Pong-ram-v5", 7, {}),
        ("ALE/Pong-v5", {"esbench/Pong-v5": {}}, ["obs_type=ram"], "esbench/Pong-ram-v5", 1, {}),
        (
            "ALE/Pong-v5",
            {"esbench/Pong-v5": {"frame_skip": 3, "screen_size": 42}},
            ["frameskip=2"],
            "esbench/Pong-v5",
            7,
            {"frame_skip": 2, "screen_size": 42},
        ),
    ],
)
def test_a_grid_s_own_table_holds_for_an_alias(
    tmp_path: Path,
    env: str,
    tables: dict[str, Table],
    overrides: list[str],
    name: str,
    episodes: int,
    kwargs: Table,
) -> None:
    lines = ["environments = ['Ant-v5', 'esbench/Pong-v5']", "algorithms = ['openai_es']"]
    for table, given in ({"Ant-v5": {}} | tables).items():
        arguments = ", ".join(f"{key} = {value!r}" for key, value in given.items())
        lines += [
            f"[environment.'{table}']",
            "episodes_per_member = 7",
            f"kwargs = {{{arguments}}}",
        ]
    (tmp_path / "grid.toml").write_text("\n".join(lines))
    assignments = [f'environment."ALE/Pong-v5".kwargs.{each}' for each in overrides]
    grid, source = compose_grid(f"{tmp_path}/grid.toml", [env], overrides=assignments)
    (spec, *_) = [one.spec.environment for one in expand(grid, source)]
    plain = load_environment(name).spec().kwargs
    assert (spec.id, spec.episodes_per_member) == (name, episodes)
    assert spec.kwargs == {**plain, **kwargs}


def test_a_table_of_another_environment_is_refused_if_it_was_asked_for(tmp_path: Path) -> None:
    table = "environments = ['Ant-v5']\nalgorithms = ['openai_es']\n[environment.Ant-v5]"
    (tmp_path / "grid.toml").write_text(table)
    override = 'environment."Ant-v5".episodes_per_member=2'
    with pytest.raises(UsageError, match="Ant-v5 is not in this grid"):
        compose_grid(f"{tmp_path}/grid.toml", ["Hopper-v5"], overrides=[override])
    grid, _ = compose_grid(f"{tmp_path}/grid.toml", ["Hopper-v5"])
    assert grid.environment == {}


@pytest.mark.parametrize(("alias", "kwargs", "name", "own"), GAME_SPECS)
def test_a_name_of_the_ale_is_an_alias_of_one_protocol(
    alias: str, kwargs: Table, name: str, own: Table
) -> None:
    spec = game_trial(alias, kwargs)
    assert spec == game_trial(name, own)
    assert spec.environment.id == name
    assert spec.policy is not None
    assert spec.policy.template == ("mlp" if "-ram-" in name else "small_conv")
    assert load_environment(alias).id == f"esbench/{alias.removeprefix('ALE/')}"


@pytest.mark.parametrize(
    ("kwargs", "policy", "words"),
    [
        ({"obs_type": "rma"}, {}, "obs_type = 'rma': expected 'ram'"),
        (3, {}, "kwargs = 3"),
        ({"repeat_action_probability": 0.0}, {}, "repeat_action_probability"),
        ({"obs_type": "ram", "screen_size": 42}, {}, "screen_size"),
        ({"obs_type": "ram"}, {"template": "nature_conv"}, "128.*mlp or linear"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused(kwargs: object, policy: Table, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        SearchTrainer(game_trial("ALE/Pong-v5", kwargs, policy=policy))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[policy]\nhiden = [8]", "unknown key policy.hiden"),
        ("[policy]\ntemplate = 'mpl'", "unknown policy template 'mpl'"),
        ("[budget]\nenv_steps = 'many'", "budget.env_steps = .many"),
        ("[evaluation]\nepisode = 3", "unknown key evaluation.episode"),
        ("[scores.references]\nthesis = 880", "expected a table with score, source and comparable"),
        ("[algorithms.sness]\nsigma = 1.0", "algorithms.sness .*'snes'"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_path(
    table: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CartPole-v1.toml").write_text(f"id = 'CartPole-v1'\n{table}")
    monkeypatch.setattr(environment_files, "folder", lambda: tmp_path)
    grid = parse_grid({"name": "t", "environments": ["CartPole-v1"], "algorithms": ["snes"]}, "t")
    with pytest.raises(UsageError, match=words) as caught:
        expand(grid, "t")
    assert str(caught.value).startswith(str(tmp_path / "CartPole-v1.toml"))


def test_a_file_without_an_id_is_a_mistake_in_envs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("[tool]\nx = 1")
    assert environment_files._paths(tmp_path) == {}  # the folder of a package
    environment_files._paths.cache_clear()
    monkeypatch.setattr(environment_files, "folder", lambda: tmp_path)
    with pytest.raises(UsageError, match=r"config.toml: id is missing"):
        environment_names()


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [
        "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5",
        "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Swimmer-v5", "Walker2d-v5",
    ],
)  # fmt: skip
def test_scores_of_other_versions_are_as_comparable_as_the_file_says(name: str) -> None:
    other = load_environment(name).versions["v4"]
    rewards = []
    with silenced():
        for each in (name, name.replace("-v5", "-v4")):
            env = gymnasium.make(each)
            env.reset(seed=1)
            env.action_space.seed(3)
            steps = [env.step(env.action_space.sample()) for _ in range(100)]
            ended = next((n for n, step in enumerate(steps) if step[2]), 99)
            rewards.append(np.array([step[1] for step in steps[: ended + 1]], dtype=float))
    (*own, last), (*others, other_last) = rewards
    if other.comparable == "no":
        assert not np.allclose(own, others[: len(own)])
        return
    assert own == others
    more = re.match(r"(\d+) more for each fall", other.what)
    assert other.comparable == ("roughly" if more else "yes")
    assert other_last - last == pytest.approx(float(more[1]) if more else 0)
