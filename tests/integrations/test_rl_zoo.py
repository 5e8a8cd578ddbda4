"""Files of rl-zoo3 become grids that say the same; nothing in them is executed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("stable_baselines3")

import esbench
from esbench.core.errors import UsageError
from esbench.experiment.trials import grid_trials
from esbench.grids.grid_file import parse_grid
from esbench.integrations import library

# Each list repeats the one before it ten times.
HUGE = "\n".join(
    ["HalfCheetah-v4:", "  n0: &n0 [1]"]
    + [f"  n{n}: &n{n} [{', '.join([f'*n{n - 1}'] * 10)}]" for n in range(1, 12)]
)
# The form of hyperparams/ppo.yml.
ZOO = """
default: {n_timesteps: !!float 1e6}
atari: &games
  env_wrapper: [stable_baselines3.common.atari_wrappers.AtariWrapper]
  frame_stack: 4
  policy: CnnPolicy
HalfCheetah-v4: &cheetah
  normalize: true
  n_envs: 1
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e6
  learning_rate: lin_3e-4
  n_epochs: 20.0
  policy_kwargs: "dict(
    log_std_init=-2,
    ortho_init=False,
    activation_fn=nn.ReLU,
    net_arch=dict(pi=[256, 256], vf=[256, 256])
  )"
Walker2d-v4:
  <<: *cheetah
  n_timesteps: 2e6
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  env_wrapper:
    - gymnasium.wrappers.TimeLimit:
        max_episode_steps: 500
"""


def imported(tmp_path: Path, env: str, text: str = ZOO, file: str = "ppo.yml") -> tuple[Any, str]:
    """The grid, and its comments."""
    (tmp_path / file).write_text(text)
    grid = esbench.import_settings(tmp_path / file, env=env)
    comments = [line for line in grid.splitlines() if line.startswith("#")]
    return tomllib.loads(grid), "\n".join(comments)


def entry(tmp_path: Path, text: str, file: str = "ppo.yml") -> tuple[dict[str, Any], str]:
    """The settings, and the comments, of an entry with these lines."""
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    grid, comments = imported(tmp_path, "Swimmer-v4", f"Swimmer-v4:\n{lines}", file)
    (settings,) = grid["algorithms"].values()
    return settings, comments


def test_a_grid_has_the_settings_the_budget_and_the_wrappers_of_an_entry(tmp_path: Path) -> None:
    grid, comments = imported(tmp_path, "HalfCheetah-v4")
    assert grid["environments"] == ["HalfCheetah-v4"]
    assert grid["budget"] == {"env_steps": 1_000_000}
    assert grid["algorithms"]["ppo"] == {
        "normalize": True,
        "n_envs": 1,
        "policy": "MlpPolicy",
        "learning_rate": "lin_3e-4",
        "n_epochs": 20,
        "policy_kwargs": {
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": "ReLU",
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    }
    assert len(comments.splitlines()) == 1
    grid, _ = imported(tmp_path, "gymnasium:Walker2d-v4")  # with a merged entry
    assert grid["budget"] == {"env_steps": 2_000_000}
    assert grid["algorithms"]["ppo"]["normalize"] == {"norm_obs": True, "norm_reward": False}
    assert grid["environment"]["gymnasium:Walker2d-v4"]["wrappers"] == [
        {"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 500}
    ]
    grid, comments = imported(tmp_path, "HalfCheetah-v5", f"{ZOO}HalfCheetah-v3: {{}}\n")
    assert grid["environments"] == ["HalfCheetah-v5"]
    assert "settings of 'HalfCheetah-v4'" in comments
    grid, comments = imported(tmp_path, "PongNoFrameskip-v4")
    assert "frame_stack = 4" in comments


def test_the_trials_of_a_grid_have_the_settings_alone(tmp_path: Path) -> None:
    text = "Pendulum-v1: {n_timesteps: 500, gamma: 0.9, train_freq: [1, episode]}"
    grid, _ = imported(tmp_path, "Pendulum-v1", text, "sac.yml")
    trials = grid_trials(parse_grid({"name": "zoo", **grid}, "zoo"), tmp_path, "zoo")
    assert len(trials) == 3
    spec = trials[0].spec
    settings: Any = spec.algorithm.settings
    assert (spec.budget.env_steps, settings.gamma) == (500, 0.9)
    assert settings.train_freq == (1, "episode")
    assert settings.model_fields_set == {"gamma", "train_freq"}  # none of envs/Pendulum-v1.toml


@pytest.mark.parametrize(
    ("file", "line", "settings", "comment"),
    [
        ("td3", "noise_type: normal\nnoise_std: 0.1", {"action_noise_std": 0.1}, ""),
        ("td3", "noise_type: ornstein-uhlenbeck\nnoise_std: 0.1", {}, "ornstein"),
        ("ars", "n_delta: 8", {"n_delta": 8}, ""),
        ("sac", "train_freq: \"(4, 'step')\"", {"train_freq": [[4, "step"]]}, ""),
        ("sac", "replay_buffer_class: HerReplayBuffer", {}, "replay_buffer_class = HerRep"),
        ("ppo", "gamma: '0.9'", {"gamma": 0.9}, ""),
        ("ppo", "gamma: high", {}, "gamma = high"),
        ("ppo", "gamma: null", {}, "gamma = None"),
        ("ppo", "n_steps: 2024-01-01", {}, "n_steps = 2024-01-01"),
        ("ppo", "n_timesteps: many", {}, "n_timesteps = many"),
        ("ppo", "n_timesteps: .inf", {}, "n_timesteps = inf"),
        ("ppo", "n_timesteps: .nan", {}, "n_timesteps = nan"),
        ("ppo", "n_timesteps: -1", {}, "n_timesteps = -1"),
        ("ppo", "env_wrapper: TimeLimit", {}, "env_wrapper = TimeLimit"),
        ("ppo", "callback:\n  - a.B", {}, "callback = ['a.B']"),
        ("ppo", "frame_stack: 4", {}, "frame_stack = 4"),
        (
            "a2c",
            'policy_kwargs: "dict(optimizer_class=RMSpropTFLike, optimizer_kwargs=dict(eps=1e-5))"',
            {"policy_kwargs": {"optimizer_kwargs": {"eps": 1e-5}}},
            "policy_kwargs.optimizer_class = RMSpropTFLike",
        ),
        ("ppo", "policy_kwargs: dict(", {}, "policy_kwargs = dict("),
        ("ppo", "normalize: dict(**secrets)", {}, "normalize = dict(**secrets)"),
        ("ppo", "policy_kwargs: dict(net_arch=[64 for _ in 'ab'])", {"policy_kwargs": {}}, "for _"),
    ],
)
def test_each_key_is_a_setting_or_a_comment(
    file: str, line: str, settings: dict[str, Any], comment: str, tmp_path: Path
) -> None:
    found, comments = entry(tmp_path, line, f"{file}.yml")
    assert found == settings
    assert comment in comments
    assert ("Not expressed here" in comments) == bool(comment)


@pytest.mark.parametrize(
    "call",
    ["__import__('pathlib').Path('made').touch()", "dict(a=open('made', 'w'))", "nn.open('made')"],
)
def test_an_expression_is_not_executed(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, comments = entry(tmp_path, f'policy_kwargs: "{call}"')
    assert "made" in comments
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("ppo.yml", "HalfChetah-v4: {}", "unknown environment.*'HalfChetah-v4'"),
        ("ppo.yml", "- 1", "expected a table of settings for each environment"),
        ("ppo.yml", "HalfCheetah-v4: 5", "expected a table of settings"),
        ("ppo.yml", "a: b: c", "not a file in YAML"),
        ("ppo.yml", "HalfCheetah-v4: {a: &a [*a]}", "more than 1000 values"),
        ("ppo.yml", HUGE, "more than 1000 values"),
        ("ppo.yml", "HalfCheetah-v4: !!python/object/apply:os.getcwd []", "not a file in YAML"),
        ("pppo.yml", ZOO, "unknown agent 'pppo'.*'ppo'.*--algorithm"),
    ],
)
def test_another_file_is_refused_in_one_sentence(
    file: str, text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        imported(tmp_path, "HalfCheetah-v4", text, file)
    assert "\n" not in str(refused.value)


def test_a_missing_package_is_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"'yaml'.*\[yaml\]"):
        imported(tmp_path, "HalfCheetah-v4")
