"""The actions of an agent are those of the space, in training and in scoring."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from trainers import agent_spec

from esbench.agents.acting import in_space
from esbench.core.errors import TrainingError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.agent_trainer import AgentTrainer

WHOLE = spaces.Box(0, 10, (1,), np.int64)
ANY_WHOLE = spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64)
ANY = spaces.Box(-np.inf, np.inf, (1,), np.float32)
REAL = spaces.Box(-1, 1, (2,), np.float32)
CHOICE = spaces.Discrete(3, start=1)
CHOICES = spaces.MultiDiscrete([2, 3], start=[0, -1])
FLAGS = spaces.MultiBinary(2)
PARTS = spaces.Dict(a=CHOICE, b=spaces.Tuple([REAL, FLAGS]))


@pytest.mark.parametrize(
    ("space", "chosen", "played"),
    [
        (WHOLE, np.array([4.257], np.float32), [4]),
        (WHOLE, [99.5], [10]),
        (WHOLE, 3, [3]),
        (WHOLE, 4.75, [5]),
        (ANY_WHOLE, [2**60 + 1], [2**60 + 1]),
        (REAL, np.array([0.5, -0.25]), [0.5, -0.25]),
        (REAL, [[7, -7]], [1, -1]),
        (REAL, torch.tensor([0.5, 1.5]), [0.5, 1]),
        (CHOICE, 2, 2),
        (CHOICE, np.array([3.0]), 3),
        (CHOICE, True, 1),
        (CHOICES, [1.0, -1.0], [1, -1]),
        (FLAGS, np.array([1.0, 0.0], np.float32), [1, 0]),
        (FLAGS, [True, False], [1, 0]),
    ],
)
def test_a_chosen_action_is_played_as_one_of_its_space(
    space: Any, chosen: Any, played: Any
) -> None:
    found = in_space(space, chosen, "it")
    assert space.contains(found)
    assert np.array_equal(found, np.array(played, space.dtype))
    inside = in_space(spaces.Dict(a=spaces.Tuple([space])), {"a": [chosen]}, "it")
    assert np.array_equal(inside["a"][0], found)


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        *[(REAL, each) for each in ([np.nan, 0], [np.inf, 0], [0], "ab", [1j, 0], None)],
        *[(WHOLE, each) for each in (np.nan, [1, 2], "4")],
        *[(ANY, each) for each in (1e300, np.inf)],
        *[(CHOICE, each) for each in (0, 4, 1.5, None, [1, 2], np.nan)],
        *[(CHOICES, each) for each in ([2, 0], [0, -2], [0.5, 0], 1)],
        *[(FLAGS, each) for each in ([2, 0], [-1, 0], [0.5, 0])],
        *[(PARTS, each) for each in ({"a": 1}, [1, 2], {"a": 1, "b": [[0, 0]]})],
        (PARTS, {"a": 1, "b": ([0, 0], [2, 2])}),
    ],
)
def test_an_action_outside_of_its_space_is_refused(space: Any, chosen: Any) -> None:
    with pytest.raises(TrainingError, match=r"^it chose .*; expected one of "):
        in_space(space, chosen, "it")


class Strict(gymnasium.Env[Any, Any]):
    """Accepts whole numbers only; the reward is the number."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), WHOLE

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return np.ones(1, np.float32), float(action[0]), True, False, {}


gymnasium.register("esbench-test/Strict-v0", Strict)


class Held:
    """Holds one action in training, and hands over a policy that holds another."""

    def __init__(self, trained: str, scored: str) -> None:
        self.trained, self.scored = float(trained), float(scored)

    def train(self, env: Any, env_steps: int, seed: int) -> Any:
        env.reset()
        env.step([self.trained])
        return lambda _: np.array([self.scored])


def score_of(pool: WorkerPool, **settings: str) -> list[float]:
    environment, budget = {"id": "esbench-test/Strict-v0"}, {"env_steps": 1}
    spec = agent_spec(f"{__name__}:Held", settings, environment, budget, episodes=2)
    with AgentTrainer(spec, pool) as trainer:
        trainer.train()
        env, policy = gymnasium.make("esbench-test/Strict-v0"), trainer.policy()
        env.reset()
        (_, reward, *_) = env.step(policy.act(np.zeros(1)))
        returns = trainer.evaluate().returns.tolist()
        assert returns == [reward] * 2
        assert trainer.history[0].population_return_mean == round(float(settings["trained"]))
        return returns


def test_an_environment_meets_actions_of_its_space_only(pool: WorkerPool) -> None:
    assert score_of(pool, trained="4.257", scored="5.9") == [6.0, 6.0]
    for wrong in ({"trained": "nan", "scored": "1"}, {"trained": "1", "scored": "nan"}):
        with pytest.raises(TrainingError, match=r"chose .*nan.*; expected one of Box"):
            score_of(pool, **wrong)
