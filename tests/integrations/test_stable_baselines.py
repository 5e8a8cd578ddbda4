"""Stable-Baselines3 inside our trainer is Stable-Baselines3: seeded, resumable and typed."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

import stable_baselines3
import torch
from command_line import Run, files
from exported import READERS
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

import esbench as package
from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, episode_seed
from esbench.core.settings import parse
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.exported_policy import export_policy
from esbench.experiment.published_policy import arrays_of, published_policy
from esbench.experiment.trained_policy import TrainedAgent
from esbench.experiment.trials import Trial, grid_trials
from esbench.grids.environment_files import environment_names, load_environment
from esbench.grids.expand import with_settings
from esbench.grids.grid_file import parse_grid
from esbench.grids.trial_spec import trainer_settings
from esbench.integrations.stable_baselines import PPO, StableBaselines, process_streams
from esbench.tuning.space import is_integer, nested, search_space, values_of

ACTOR = {"learning_starts": 50, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {
        "n_steps": 64,
        "batch_size": 64,
        "n_envs": 2,
        "normalize": True,
        "learning_rate": "lin_1e-3",
    },
    "a2c": {"n_envs": 1},
    "dqn": {"learning_starts": 50, "normalize": True},
    "sac": {**ACTOR, "normalize": True},
    "td3": {**ACTOR, "action_noise_std": 0.1},
    "sb3_ars": {"n_delta": 1},
    "sb3_trpo": {"n_steps": 64, "batch_size": 64},
}
LOSSES = {  # one that the library logs
    "ppo": "train/policy_gradient_loss",
    "a2c": "train/policy_loss",
    "dqn": "train/loss",
    "sac": "train/critic_loss",
    "td3": "train/critic_loss",
    "sb3_ars": "train/step_size",
    "sb3_trpo": "train/policy_objective",
}
CONTINUOUS = ("sac", "td3")


class Signed(gymnasium.Env[Any, Any]):
    """An environment with actions from -1 to 1; the reward is their sum."""

    observation_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = spaces.Discrete(3, start=-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Take one step; the time limit ends the episode."""
        assert self.action_space.contains(action)
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


class Parts(Signed):
    """The same with a Dict of observations and continuous actions."""

    observation_space = spaces.Dict(
        near=spaces.Box(-1, 1, (3,), np.float32), far=spaces.Box(-1, 1, (2,), np.float32)
    )
    action_space = spaces.Box(-1, 1, (1,), np.float32)


class SignedPair(Signed):
    """The same with two actions."""

    action_space = spaces.MultiDiscrete([3, 3], start=[-1, -1])


class Both(Signed):
    """The same with actions that the library does not support."""

    action_space = spaces.Tuple([spaces.Discrete(2, start=1), spaces.Discrete(2)])


class Marked(Signed):
    """The same with observations that count from 1."""

    observation_space = spaces.Discrete(2, start=1)


class Nested(Signed):
    """The same with observations that the library does not support."""

    observation_space = spaces.Dict(a=spaces.Dict(b=spaces.Discrete(3)))


for each in (Signed, Parts, SignedPair, Both, Marked, Nested):
    gymnasium.register(f"esbench-test/{each.__name__}-v0", each, max_episode_steps=10)


def trial_of(name: str, steps: int = 300, environment: str = "", **settings: Any) -> Trial:
    fitting = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    grid = {
        "name": "test",
        "seeds": [0],
        "environments": [environment or fitting],
        "algorithms": {name: {"row_steps": 100, **SMALL[name], **settings}},
        "budget": {"env_steps": steps},
        "evaluation": {"episodes": 2},
    }
    (trial,) = grid_trials(parse_grid(grid, "test"), Path("out"), "test")
    return trial


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_at_exact_steps_and_a_loaded_state_has_the_same_policy(
    name: str, pool: WorkerPool
) -> None:
    spec = trial_of(name, 150, row_steps=50).spec
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()
        assert [row.env_steps for row in trainer.history] == [50, 100, 150]
        assert np.isfinite([row.center_return for row in trainer.history]).all()
        assert LOSSES[name] in trainer.history[-1].losses
        state: Any = trainer.state_dict()
        score, history = trainer.evaluate(), list(trainer.history)
        arrays, policy = arrays_of(trainer), trainer.policy()
        require_equal_actions(policy, policy.module())
    assert isinstance(arrays, dict)  # in plain weights
    published = published_policy(spec, arrays, generation=3)
    assert published.play(pool).returns.tolist() == score.returns.tolist()
    assert published.policy.generation == 3
    with AgentTrainer(spec, pool) as again:
        again.load_state_dict(state, history)
        assert again.evaluate().returns.tolist() == score.returns.tolist()
        again.train(env_steps=200)  # goes on
        assert [row.env_steps for row in again.history] == [50, 100, 150, 200]


def require_equal_actions(policy: TrainedAgent, module: Callable[[Any], Any]) -> None:
    """The module acts as the policy at once, for several observations far from 0."""
    space = cast(gymnasium.spaces.Box, policy.observation_space)
    rows = np.random.default_rng(0).normal(0, 3, (5, *space.shape)).astype(space.dtype)
    actions = module(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(actions, [policy.act(row) for row in rows], atol=1e-5)


def test_a_normalized_agent_is_exported_with_its_statistics(
    pool: WorkerPool, tmp_path: Path
) -> None:
    spec = trial_of("ppo", 200, "Pendulum-v1").spec
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()
        policy = trainer.policy()
    for suffix in READERS:
        about = export_policy(policy, tmp_path / f"a{suffix}")
        assert (about["environment"], about["inputs"][0]) == ("Pendulum-v1", "N")
        require_equal_actions(policy, READERS[suffix](tmp_path / f"a{suffix}"))
    assert policy.model is not None
    assert policy.model.num_timesteps >= 200


def test_an_agent_that_sees_no_numbers_has_no_module(pool: WorkerPool) -> None:
    spec = trial_of("ppo", 100, "FrozenLake-v1", normalize=False).spec
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()
        with pytest.raises(UsageError, match="Discrete"):
            trainer.policy().module()


def test_a2c_is_that_of_the_library_alone(pool: WorkerPool) -> None:
    """The parameters of a2c equal those of the library alone, on the same episodes."""
    spec = trial_of("a2c", steps=100).spec
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()
        ours = trainer.agent._model.policy.state_dict()  # type: ignore[attr-defined]
    seeds = [episode_seed(0, Purpose.TRAINING_EPISODE, 0, number) for number in range(100)]

    class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.env.reset(seed=seeds.pop(0), options=options)

    env = DummyVecEnv([lambda: Seeded(gymnasium.make("CartPole-v1"))])
    alone = stable_baselines3.A2C("MlpPolicy", env, seed=0, device="cpu").learn(100)
    for key, values in alone.policy.state_dict().items():
        np.testing.assert_allclose(ours[key].numpy(), values.numpy(), atol=1e-6)


def test_training_leaves_no_folder_of_logs(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with AgentTrainer(trial_of("a2c", steps=100).spec, pool) as trainer:
        trainer.train()
        assert cast(StableBaselines, trainer.agent).losses()
    assert not list(tmp_path.iterdir())


def test_a_pause_does_not_shorten_a_schedule(pool: WorkerPool) -> None:
    def rates(*ends: int) -> list[float]:
        found: list[float] = []
        spec = trial_of("ppo", 512, n_envs=1, n_epochs=1, row_steps=128).spec
        with AgentTrainer(spec, pool) as trainer:
            agent = cast(StableBaselines, trainer.agent)
            for end in ends:
                trainer.train(env_steps=end)
                found.append(agent._model.lr_schedule(agent._model._current_progress_remaining))
        return found

    *paused, last = rates(128, 256, 512)
    assert [last] == rates(512) == [0.0]
    assert paused == pytest.approx([1e-3 * (1 - 128 / 512), 1e-3 * (1 - 256 / 512)], rel=0.1)


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_dict_of_observations_is_normalized_and_resumes(name: str, pool: WorkerPool) -> None:
    spec = trial_of(name, 100, "esbench-test/Parts-v0", normalize=True).spec
    with AgentTrainer(spec, pool) as trainer, AgentTrainer(spec, pool) as again:
        trainer.train()
        state: Any = trainer.state_dict()
        again.load_state_dict(state, trainer.history)
        arrays: Any = trainer.weights()
        returns = trainer.evaluate().returns.tolist()
        assert again.evaluate().returns.tolist() == returns
        loaded: Any = again.state_dict()
        np.testing.assert_equal(loaded["agent"], state["agent"])
        assert {"obs_rms.near", "obs_rms.far"} <= set(state["agent"]["statistics"])
    # Its agent seeds the action space, which all environments of this class share.
    assert published_policy(spec, arrays).play(pool).returns.tolist() == returns


@pytest.mark.parametrize(
    ("name", "environment"), [("ppo", "Signed"), ("dqn", "Signed"), ("ppo", "SignedPair")]
)
def test_discrete_actions_start_where_their_space_does(
    name: str, environment: str, pool: WorkerPool
) -> None:
    spec = trial_of(name, 300, f"esbench-test/{environment}-v0").spec
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()  # the environment asserts that its space contains every action
        trainer.evaluate()
        model = trainer.agent._model  # type: ignore[attr-defined]
        chosen, _ = model.predict(np.zeros(1, np.float32), deterministic=True)
        for each in (chosen, chosen * 0, chosen * 0 + 2):  # what it has learned, and any other
            model.predict = lambda *_, each=each, **__: (each, None)
            np.testing.assert_array_equal(trainer.policy().act(np.zeros(1, np.float32)), each - 1)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("Marked", r"PPO: .*Discrete\(2, start=1\)"),
        ("Both", "PPO, .*Tuple"),
        ("Nested", r"PPO, .*Dict\('a': Dict.*Nested"),
    ],
)
def test_spaces_that_the_library_does_not_support_are_refused(
    environment: str, said: str, pool: WorkerPool
) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        AgentTrainer(trial_of("ppo", 300, f"esbench-test/{environment}-v0").spec, pool)
    assert "\n" not in str(raised.value)


def test_an_error_of_the_environment_is_not_one_of_the_library() -> None:
    def broken() -> Any:
        raise NotImplementedError("only here")

    settings: Any = parse(trainer_settings("ppo"), {}, "test")
    with pytest.raises(NotImplementedError, match="^only here$"):
        PPO(settings, broken, 0)


def test_random_streams_are_the_agents_own(pool: WorkerPool) -> None:
    spec = trial_of("dqn", 100).spec
    other = spec.model_copy(update={"seed": 1})
    before = process_streams()
    with AgentTrainer(spec, pool) as alone:
        alone.train()
    np.testing.assert_equal(process_streams(), before)
    with AgentTrainer(spec, pool) as first, AgentTrainer(other, pool) as second:
        second.train()
        first.train()
        assert first.history[-1].digest == alone.history[-1].digest
        assert second.history[-1].digest != alone.history[-1].digest


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize("name", SMALL)
def test_the_library_accepts_both_ends_of_the_declared_search_space(
    name: str, end: int, pool: WorkerPool
) -> None:
    spec = trial_of(name).spec
    model = type(spec.algorithm.settings)
    space = search_space(model, {}, "test", name)
    values: dict[str, Any] = {
        key: (each.choices or (each.low, each.high))[end]
        for key, each in space.items()
        if each.choices or not is_integer(model, key)
    }
    changed = with_settings(spec, nested(values), "test")
    with AgentTrainer(changed, pool) as trainer:
        policy = trainer.agent.model.policy  # type: ignore[attr-defined]
    known = values_of(changed.algorithm.settings)
    assert {key: known[key] for key in values} == values
    layers = values.get("policy_kwargs.net_arch", [])
    assert [f"Linear(in_features={n}" in str(policy) for n in layers] == [True] * len(layers)


@pytest.mark.parametrize("environment", environment_names())
def test_published_settings_are_those_of_the_library(environment: str) -> None:
    for name, table in load_environment(environment).algorithms.items():
        if name in SMALL:
            parse(trainer_settings(name), table, environment)


def test_settings_are_those_of_the_constructor() -> None:
    model = trainer_settings("ppo")
    known = set(model.model_fields)
    assert {"n_steps", "clip_range", "gae_lambda", "policy_kwargs", "n_envs"} <= known
    assert not known & {"env", "seed", "device", "verbose"}
    settings: Any = parse(model, {"n_steps": 8, "learning_rate": 1}, "test")
    assert (settings.n_steps, settings.gamma, settings.learning_rate) == (8, 0.99, 1.0)
    again = pickle.loads(pickle.dumps(settings))  # noqa: S301, another process gets it so
    assert again == settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_step": 8}, "'n_steps'"),
        ({"learning_rate": "linear"}, "learning_rate.*lin_"),
        ({"policy_kwargs": {"activation_fn": "RELU"}}, "ReLU"),
        ({"action_noise_std": 0.1}, "action_noise"),
        ({"normalize": {"norm": 1}}, "norm"),
        ({"policy": "mlp"}, "policy.*'MlpPolicy'"),
        ({"policy": "CnnPolicy"}, "CnnPolicy"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str, pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match=said):
        AgentTrainer(trial_of("ppo", **settings).spec, pool)


def test_the_librarys_policy_is_a_setting() -> None:
    with package.make_trainer("sb3_ars", env="CartPole-v1", policy="LinearPolicy") as trainer:
        assert trainer.spec.algorithm.settings.policy == "LinearPolicy"  # type: ignore[attr-defined]
        assert trainer.spec.policy is None


def test_the_commands_train_verify_and_render_an_agent(esbench: Run) -> None:
    run = [
        "run", "--env", "CartPole-v1", "--algorithm", "ppo", "--seeds", "0-2", "--env-steps", "200",
        "--out", "out", "--workers", "0", "--quiet", "--set", "evaluation.episodes=2",
        "--set", "algorithms.ppo.row_steps=100", "--set", "algorithms.ppo.n_steps=64",
    ]  # fmt: skip
    assert esbench(*run)[0] == 0
    trial = "out/CartPole-v1/ppo/seed-0"
    assert "identical" in esbench("eval", trial)[1]
    assert esbench("render", trial, "--out", "film.gif", "--max-steps", "3")[0] == 0
    code, said, _ = esbench("verify", "out", "--workers", "0")
    assert (code, "identical" in said) == (0, True)
    assert esbench("export", trial)[0] == 0
    assert esbench("submit", "out", "--out", "results/leaderboard")[0] == 0
    code, said, _ = esbench("verify", "--replay", "--all")
    assert (code, "identical: 3 trials, every return" in " ".join(said.split())) == (0, True)
    row = ["CartPole-v1/ppo", "--seed", "2"]
    assert "identical" in esbench("eval", *row)[1]
    assert esbench("render", *row, "--out", "row.gif", "--max-steps", "3")[0] == 0
    assert esbench("export", *row)[0] == 0
    played = package.load_policy(row[0], seed=2)
    assert played.act(np.zeros(4, np.float32)) in (0, 1)
    start = ["--set", f"init_from={row[0]}", "--out", "warm"]
    code, _, said = esbench("run", "--env", "CartPole-v1", "--algorithm", "snes", *start)
    assert (code, said.count("\n"), "agent" in said) == (2, 1, True)
    shutil.rmtree("results")
    longer = [{"200": "300"}.get(word, word) for word in run]
    before = files(Path("out"))
    code, _, said = esbench(*longer, "--extend")  # the schedules of the file span the budget
    assert (code, "agent" in said) == (2, True)
    assert files(Path("out")) == before
