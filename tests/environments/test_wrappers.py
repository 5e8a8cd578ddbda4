"""Wrappers change episodes and observations as they say."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import DiscretizeAction, FrameStackObservation, NormalizeReward

from esbench import make_trainer
from esbench.core.errors import UsageError
from esbench.environments.episode_check import check_episodes
from esbench.environments.make_environment import WrapperSettings
from esbench.environments.wrappers import (
    AppendDifferences,
    ChannelsFirst,
    NewInstance,
    OrderedActions,
    SelectEntries,
)
from esbench.experiment.trials import Trial
from esbench.store.own_code import user_code

WRAPPER = WrapperSettings(wrapper="esbench.environments.wrappers:NewInstance")
SEEDS = range(5)


def episode(env: gymnasium.Env, seed: int) -> list[bytes]:
    """Observations and rewards of an episode with random actions."""
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    seen, ended = [observation.tobytes()], False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(observation.tobytes() + np.float64(reward).tobytes())
        ended = terminated or truncated
    return seen


def test_new_instance_plays_every_episode_as_the_first() -> None:
    name = "BipedalWalker-v3"
    make = partial(gymnasium.make, name, max_episode_steps=60)
    new = [episode(make(), seed) for seed in SEEDS]
    used, remade = make(), NewInstance(make())
    assert [episode(remade, seed) for seed in SEEDS] == new
    assert [episode(used, seed) for seed in SEEDS] != new  # why the wrapper is needed
    with pytest.raises(UsageError, match="class BipedalWalker.* keeps state .*:NewInstance"):
        check_episodes(name, {})
    check_episodes(name, {}, (WRAPPER,))


def test_new_instance_keeps_the_arguments_and_wrappers_before_it() -> None:
    made = gymnasium.make("CartPole-v1", max_episode_steps=7, render_mode="rgb_array")
    env = NewInstance(NormalizeReward(made, gamma=0.5))
    for seed in range(2):
        assert len(episode(env, seed)) == 8
        assert np.shape(env.render()) == (400, 600, 3)
        assert isinstance(env.env, NormalizeReward)
        assert env.env.gamma == 0.5
    env = NewInstance(ChannelsFirst(gymnasium.make("CarRacing-v3")))
    assert [env.reset(seed=seed)[0].shape for seed in range(2)] == [(3, 96, 96)] * 2
    env.close()


def test_new_instance_refuses_what_it_cannot_make_again() -> None:
    class Plain(gymnasium.Wrapper):
        pass

    with pytest.raises(UsageError, match="Plain .*expected NewInstance first"):
        NewInstance(Plain(gymnasium.make("CartPole-v1")))
    with pytest.raises(UsageError, match="CartPoleEnv .*expected NewInstance first"):
        NewInstance(CartPoleEnv())


def test_a_trial_records_the_version_of_box2d(make_trial: Callable[..., Trial]) -> None:
    assert user_code(make_trial("LunarLander-v3").spec) == {"Box2D": version("Box2D")}


def test_channels_first_moves_the_last_axis_of_an_image_and_of_its_bounds() -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    env = gymnasium.make("CartPole-v1")
    env.observation_space = Box(image, image + 100, dtype=np.uint8)
    moved, first = ChannelsFirst(env), image.transpose(2, 0, 1)
    assert moved.observation_space == Box(first, first + 100, dtype=np.uint8)
    np.testing.assert_array_equal(moved.observation(image), first)


def observations(env: gymnasium.Env, episodes: int = 2) -> list[np.ndarray]:
    """Observations of short episodes with fixed actions."""
    seen = []
    for seed in range(episodes):
        seen.append(env.reset(seed=seed)[0])
        seen += [env.step(step // 3 % 2)[0] for step in range(8)]
    return seen


@pytest.mark.parametrize("name", ["esbench/Pong-ram-v5", "CartPole-v1"])
def test_append_differences_subtracts_the_observation_before(name: str) -> None:
    moved = AppendDifferences(gymnasium.make(name))
    stacked = FrameStackObservation(gymnasium.make(name), 2)  # begins with the first one twice
    for seen, (before, now) in zip(observations(moved), observations(stacked), strict=True):
        assert seen.dtype == np.float32
        assert moved.observation_space.contains(seen)
        difference = now.astype(np.float32) - before.astype(np.float32)
        np.testing.assert_array_equal(seen, np.concatenate([now, difference]))


def test_select_entries_keeps_the_order_of_its_indices() -> None:
    plain: Any = gymnasium.make("CartPole-v1")
    some: Any = SelectEntries(gymnasium.make("CartPole-v1"), [2, 0])
    np.testing.assert_array_equal(some.observation_space.high, plain.observation_space.high[[2, 0]])
    for seen, whole in zip(observations(some), observations(plain), strict=True):
        np.testing.assert_array_equal(seen, whole[[2, 0]])


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "LunarLander-v3"])
def test_ordered_actions_are_those_that_gymnasium_divides_again(name: str) -> None:
    plain: Any = gymnasium.make(name, max_episode_steps=30)
    ordered = OrderedActions(gymnasium.make(name, max_episode_steps=30))
    assert ordered.action_space == Box(-1.0, 1.0, (1,), np.float32)
    divided = DiscretizeAction(ordered, bins=int(plain.action_space.n))
    for seed in SEEDS:
        plain.reset(seed=seed)
        divided.reset(seed=seed)
        for action in range(int(plain.action_space.n)):
            assert str(plain.step(action)) == str(divided.step(action))


def test_intervals_of_ordered_actions_are_equal_and_reach_both_ends() -> None:
    env = gymnasium.make("CartPole-v1")
    env.action_space = Discrete(4, start=-1)
    ordered = OrderedActions(env)
    numbers = [-1.0, -0.51, -0.5, -0.01, 0.0, 0.49, 0.5, 1.0]
    chosen = [ordered.action(np.array([number], np.float32)) for number in numbers]
    assert chosen == [-1, -1, 0, 0, 1, 1, 2, 2]
    assert all(env.action_space.contains(action) for action in chosen)


@pytest.mark.parametrize(
    ("wrap", "name", "words"),
    [
        (ChannelsFirst, "CartPole-v1", "height, width, channels"),
        (AppendDifferences, "FrozenLake-v1", r"vectors \[n\]"),
        (OrderedActions, "Pendulum-v1", "Box.*Discrete"),
        *(
            (partial(SelectEntries, indices=indices), "CartPole-v1", "indices")
            for indices in ([], [4], [-1], [0, 0], [0.5], "01")
        ),
    ],
)
def test_an_environment_or_argument_that_does_not_fit_is_refused(
    wrap: Any, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        wrap(gymnasium.make(name))


def test_a_trial_applies_the_wrappers_in_their_order() -> None:
    named = "esbench.environments.wrappers:"
    wrappers = [
        {"wrapper": f"{named}SelectEntries", "indices": [1, 0]},
        {"wrapper": f"{named}AppendDifferences"},
        {"wrapper": f"{named}OrderedActions"},
    ]
    with make_trainer(
        "openai_es", env="MountainCar-v0", environment={"wrappers": wrappers}, workers=0
    ) as trainer:
        trainer.train(env_steps=1)
        policy = trainer.policy()
    assert policy.observation_space.shape == (4,)
    assert policy.action_space.shape == (1,)
