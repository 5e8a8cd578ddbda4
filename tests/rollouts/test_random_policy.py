from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from esbench.errors import UsageError
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.rollouts.random_policy import random_policy_returns, random_steps_per_second

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def test_an_episode_does_not_depend_on_how_many_are_asked_for() -> None:
    few, many = (random_policy_returns(CARTPOLE, episodes, seed=3) for episodes in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
    assert len(set(many.tolist())) > 1
    assert (random_policy_returns(CARTPOLE, 5, seed=4) != many).any()


def test_returns_are_not_discounted() -> None:
    spec = EnvironmentSpec(id="Pendulum-v1", kwargs={"max_episode_steps": 3}, reward_shift=100.0)
    assert (random_policy_returns(spec, 4, seed=0) > -3 * 17).all()
    assert (random_policy_returns(spec, 4, seed=0) < 0).all()


@pytest.mark.parametrize(
    ("environment", "episodes", "seed", "words"),
    [
        (CARTPOLE, 0, 0, "episodes = 0: expected at least 1"),
        (CARTPOLE, 1, -1, "seed = -1: expected at least 0"),
        (EnvironmentSpec(id="CartPole-v1", kwargs={"foo": 1}), 1, 0, "cannot be made with kwargs"),
    ],
)
def test_bad_input(environment: EnvironmentSpec, episodes: int, seed: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        random_policy_returns(environment, episodes, seed)


@pytest.mark.parametrize("seconds", [1e-9, 0.05])
def test_the_speed_is_positive_even_in_no_time(seconds: float) -> None:
    env = gymnasium.make("CartPole-v1")
    assert random_steps_per_second(env, seconds) > 0
    env.close()
