from typing import Any

import doubles
import numpy as np
import pytest

from esbench.core.errors import TrainingError
from esbench.engine.random_policy import random_policy_returns
from esbench.environments.make_environment import WrapperSettings
from esbench.grids.trial_spec import EnvironmentSpec

CARTPOLE = EnvironmentSpec(id="CartPole-v1")
LIMIT = WrapperSettings.model_validate(
    {"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 3}
)


def test_an_episode_does_not_depend_on_how_many_are_asked_for() -> None:
    few, many = (random_policy_returns(CARTPOLE, episodes, seed=3) for episodes in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
    assert len(set(many.tolist())) > 1
    assert (random_policy_returns(CARTPOLE, 5, seed=4) != many).any()


THREE = {"kwargs": {"max_episode_steps": 3}}


@pytest.mark.parametrize(
    ("settings", "most", "episodes"),
    [
        (THREE, 1, 10),
        (THREE, 45, 15),
        (THREE, 1000, 20),
        ({**THREE, "reward_shift": 100.0}, 1000, 20),
        ({"wrappers": (LIMIT,)}, 1000, 20),
    ],
)
def test_few_steps_leave_fewer_episodes_whose_returns_have_neither_discount_nor_shift(
    settings: dict[str, Any], most: int, episodes: int
) -> None:
    spec = EnvironmentSpec(id="CartPole-v1", **settings)
    assert random_policy_returns(spec, 20, 0, most).tolist() == [3.0] * episodes


@pytest.mark.parametrize(("reward", "terminated"), [(np.array([1.0]), True), (1.0, None)])
def test_what_training_refuses_has_no_score(
    monkeypatch: pytest.MonkeyPatch, reward: object, terminated: object
) -> None:
    answer = np.zeros(3, np.float32), reward, terminated, True, {}
    monkeypatch.setattr(doubles.Walk, "step", lambda *_: answer)
    with pytest.raises(TrainingError, match="doubles:Walk-v0.*expected"):
        random_policy_returns(EnvironmentSpec(id="doubles:Walk-v0"), 2, 0)
