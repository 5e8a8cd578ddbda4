"""A model of Stable-Baselines3 is scored as its own ``evaluate_policy`` scores it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

import sb3_contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces, wrappers
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    sync_envs_normalization,
)
from trainers import agent_spec

from esbench.core.errors import TrainingError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.grids.trial_spec import TrialSpec

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of Gymnasium, about types
STEPS, EPISODES = 128, 5
Space = gymnasium.Space[Any]
SPACES: dict[str, Space] = {
    "choice": spaces.Discrete(4),
    "box": spaces.Box(-2, 2, (2,), np.float32),
    "choices": spaces.MultiDiscrete([3, 4]),
    "flags": spaces.MultiBinary(3),
}


class Recall(gymnasium.Env[Any, Any]):
    """Observations are numbers, the largest ones first; rewards depend on all actions."""

    def __init__(self, acts: str = "choice", seen: str = "vector") -> None:
        self.action_space = SPACES[acts]
        self.shape = {"vector": (3,), "parts": (3,), "image": (36, 36, 3)}[seen]
        box = spaces.Box(-1e6, 1e6, self.shape, np.float32)
        if seen == "image":
            box = spaces.Box(0, 255, self.shape, np.uint8)
        self.parts = seen == "parts"
        self.observation_space: Space = spaces.Dict(a=box, b=box) if self.parts else box

    def look(self) -> Any:
        numbers = 5 + self.np_random.normal(size=self.shape) * (30 if self.steps == 0 else 3)
        self.seen: Any = numbers.astype(np.uint8 if len(self.shape) == 3 else np.float64)
        return {"a": self.seen, "b": -self.seen} if self.parts else self.seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        total = float(np.sum(np.asarray(action, np.float64) * (1 + np.arange(np.size(action)))))
        reward = (total + 1) * float(self.seen.flat[0] % 7)
        if isinstance(self.action_space, spaces.Discrete) and not self.action_masks()[int(action)]:
            reward = -1000.0
        return self.look(), reward, self.steps >= 8, False, {}

    def action_masks(self) -> Any:
        return np.array([True, self.steps % 2 == 0, self.steps % 3 == 0, self.steps % 2 == 1])


class Unmasked(Recall):
    """The same without the method that gives masks; a wrapper of the agent has them."""

    action_masks = None  # type: ignore[assignment]

    def allowed(self) -> Any:
        return Recall.action_masks(self)

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = float(action) + 1 if self.allowed()[int(action)] else -1000.0
        return self.look(), reward * float(self.seen[0] % 7), self.steps >= 8, False, {}


def allowed(env: Any) -> Any:
    return env.unwrapped.allowed()


gymnasium.register("esbench-test/Recall-v0", Recall)
gymnasium.register("esbench-test/Unmasked-v0", Unmasked)

Wrap = Callable[[Any], Any]
BOX = {"acts": "box"}
SMALL = {"n_steps": 64, "batch_size": 64, "learning_rate": 0.05}
REPLAY = {"learning_starts": 50, "batch_size": 16, "learning_rate": 0.05}


def vectors(*layers: Wrap) -> Wrap:
    """Wrap an environment in wrappers of vectors of environments, from the inside."""

    def wrap(env: Any) -> Any:
        found: VecEnv = DummyVecEnv([lambda: env])
        for layer in layers:
            found = layer(found)
        return found

    return wrap


# The class, its settings, the environment's arguments, and the wrappers of the agent.
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], Wrap]] = {
    "ppo": (sb3.PPO, SMALL, {}, lambda env: env),
    "sde": (sb3.PPO, {**SMALL, "use_sde": True}, BOX, lambda env: env),
    "a2c": (sb3.A2C, {}, {"acts": "choices"}, lambda env: env),
    "binary": (sb3.A2C, {}, {"acts": "flags"}, lambda env: env),
    "dqn": (sb3.DQN, REPLAY, {}, lambda env: env),
    "sac": (sb3.SAC, REPLAY, BOX, lambda env: env),
    "qrdqn": (sb3_contrib.QRDQN, REPLAY, {}, lambda env: env),
    "trpo": (sb3_contrib.TRPO, SMALL, {}, lambda env: env),
    "ars": (sb3_contrib.ARS, {"n_delta": 1}, BOX, lambda env: env),
    "recurrent, normalized": (
        sb3_contrib.RecurrentPPO, SMALL, BOX, vectors(VecNormalize),
    ),
    "masked": (sb3_contrib.MaskablePPO, SMALL, {}, lambda env: env),
    "masker": (
        sb3_contrib.MaskablePPO, SMALL, {},
        lambda env: ActionMasker(env, allowed),
    ),
    "normalized": (sb3.PPO, SMALL, BOX, vectors(VecNormalize)),
    "normalized parts": (sb3.PPO, SMALL, {"seen": "parts"}, vectors(VecNormalize)),
    "stacked": (
        sb3.PPO, SMALL, {}, vectors(lambda each: VecFrameStack(each, 3), VecNormalize),
    ),
    "normalized, stacked": (
        sb3.PPO, SMALL, {"seen": "parts"},
        vectors(VecNormalize, lambda each: VecFrameStack(each, 2)),
    ),
    "a part": (
        sb3.PPO, SMALL, {"seen": "parts"}, vectors(lambda each: VecExtractDictObs(each, "b")),
    ),
    "images": (
        sb3.A2C, {}, {"seen": "image"},
        vectors(lambda each: VecFrameStack(each, 2), VecTransposeImage),
    ),
    "gymnasium": (
        sb3.PPO, SMALL, BOX,
        lambda env: wrappers.RescaleAction(
            wrappers.TransformObservation(env, lambda seen: seen / 10, env.observation_space),
            -1.0, 1.0,
        ),
    ),
}  # fmt: skip


class Modeled:
    """Trains a model as the documentation of the library does, and returns it."""

    def __init__(self, case: str) -> None:
        self.cls, self.settings, _, self.wrap = CASES[case]

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        policies = {"RecurrentPPO": "MlpLstmPolicy"}
        wrapped = self.wrap(env)
        space = wrapped.observation_space
        policy = policies.get(self.cls.__name__, "MlpPolicy")
        policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else policy
        policy = "CnnPolicy" if len(space.shape or ()) == 3 else policy
        model = self.cls(policy, wrapped, seed=seed, device="cpu", **self.settings)
        return model.learn(env_steps)


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has an episode of each seed, and notes their returns."""

    def __init__(self, env: Any, seeds: list[int]) -> None:
        super().__init__(env)
        self.seeds, self.returns = list(seeds), list[float]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.returns.append(0.0)
        return self.env.reset(seed=self.seeds.pop(0), options=options)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.returns[-1] += float(reward)
        return observation, reward, *rest


def spec_of(agent: str, environment: str, kwargs: dict[str, Any], **settings: Any) -> TrialSpec:
    made, budget = {"id": environment, "kwargs": kwargs}, {"env_steps": STEPS}
    return agent_spec(f"{__name__}:{agent}", settings, made, budget, EPISODES)


@pytest.mark.parametrize("case", list(CASES))
def test_a_model_has_the_returns_of_the_librarys_own_evaluation(
    case: str, pool: WorkerPool
) -> None:
    cls, _, kwargs, wrap = CASES[case]
    name = "esbench-test/Unmasked-v0" if case.startswith("masker") else "esbench-test/Recall-v0"
    with AgentTrainer(spec_of("Modeled", name, kwargs, case=case), pool) as trainer:
        trainer.train()
        model = trainer.agent._policy._predict.__self__  # type: ignore[attr-defined]
        found = trainer.evaluate().returns.tolist()
        assert found == trainer.evaluate().returns.tolist()
        seeds = trainer.policy().held_out_seeds
    counted = Counted(gymnasium.make(name, **kwargs), [*seeds, 0])
    env = wrap(counted)
    if isinstance(env, VecEnv):
        sync_envs_normalization(model.get_env(), env)
        layer: Any = env
        while hasattr(layer, "venv"):
            layer.training, layer = False, layer.venv
    masked = cls is sb3_contrib.MaskablePPO
    (evaluate_masked if masked else evaluate_policy)(model, env, EPISODES, warn=False)
    assert found == counted.returns[:EPISODES]
    assert len(set(found)) > 1


class Doubled(VecEnvWrapper):
    """Doubles observations in a way that only it knows."""

    def reset(self) -> Any:
        return 2 * self.venv.reset()

    def step_wait(self) -> Any:
        observations, *rest = self.venv.step_wait()
        return 2 * observations, *rest


class Aware(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts what it has seen."""


CASES |= {
    "Doubled": (sb3.PPO, SMALL, {}, vectors(Doubled)),
    "Aware": (sb3.PPO, SMALL, {}, Aware),
    "FrameStackObservation": (
        sb3.PPO, SMALL, {}, lambda env: wrappers.FrameStackObservation(env, 2),
    ),
    "DelayObservation": (sb3.PPO, SMALL, {}, lambda env: wrappers.DelayObservation(env, 2)),
    "StickyAction": (sb3.PPO, SMALL, {}, lambda env: wrappers.StickyAction(env, 0.1)),
}  # fmt: skip


@pytest.mark.parametrize("case", [name for name in CASES if name[0].isupper()])
def test_a_model_that_was_trained_through_an_unknown_wrapper_is_refused(
    case: str, pool: WorkerPool
) -> None:
    spec = spec_of("Modeled", "esbench-test/Recall-v0", {}, case=case)
    with (
        AgentTrainer(spec, pool) as trainer,
        pytest.raises(TrainingError, match=f"wrapper {case}, which its policy would lack"),
    ):
        trainer.train()


class Drawn:
    """A policy whose ``predict`` draws its actions, whatever it is asked for."""

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        return self

    def predict(self, observation: Any, **_: Any) -> Any:
        return np.random.randint(3) + int(torch.randint(2, ())), None  # noqa: NPY002


def test_a_policy_that_draws_its_actions_has_one_score(pool: WorkerPool) -> None:
    with AgentTrainer(spec_of("Drawn", "esbench-test/Recall-v0", {}), pool) as trainer:
        trainer.train()
        before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        found = trainer.evaluate().returns.tolist()
        np.testing.assert_equal(np.random.get_state(), before[0])  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
        np.random.random()  # noqa: NPY002
        torch.rand(1)
        assert trainer.evaluate().returns.tolist() == found
        assert trainer.evaluate(2).returns.tolist() == found[:2]
        assert len(set(found)) > 1
