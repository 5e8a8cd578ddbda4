"""The returns of uniformly random actions, which are the zero of normalized scores.

The loop uses Gymnasium only, and shares no code with the player.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.errors import require_integer
from esbench.core.seeding import Purpose, episode_seed
from esbench.core.settings import MOST, MOST_EPISODES
from esbench.environments.episode_check import require_end
from esbench.environments.make_environment import make_environment
from esbench.environments.returned_values import ReturnedValues
from esbench.environments.simulator_log import silenced
from esbench.grids.trial_spec import EnvironmentSpec

FEWEST: Final = 10  # episodes that are played also if they take more than the most steps


def random_policy_returns(
    environment: EnvironmentSpec, episodes: int, seed: int, most_steps: int | None = None
) -> Vector:
    """The undiscounted returns of uniformly random actions, [episodes].

    Only the id, kwargs and wrappers of ``environment`` are used. Every episode has its own seeds.
    After ``most_steps``, no episode begins but the first ten.

    Raises:
        UsageError: a number is too small, the environment cannot be made, or an episode does not
            end.
        TrainingError: a reward is no number, or a flag is neither true nor false.
    """
    require_integer("episodes", episodes, 1, MOST_EPISODES)
    require_integer("seed", seed, 0, MOST)
    returns: list[float] = []
    with silenced():
        env = make_environment(environment.id, environment.kwargs, environment.wrappers)
    returned = ReturnedValues(environment.id, env.observation_space)
    with closing(env):
        total = 0
        for episode in range(episodes):
            if most_steps is not None and total >= most_steps and episode >= FEWEST:
                break
            returns.append(0.0)
            env.reset(seed=episode_seed(seed, Purpose.RANDOM_POLICY, episode, 0))
            env.action_space.seed(episode_seed(seed, Purpose.RANDOM_POLICY, episode, 1))
            steps, ended = 0, False
            while not ended:
                _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
                returns[-1] += returned.reward(reward)
                steps += 1
                ended = returned.flag("terminated", terminated)
                ended |= returned.flag("truncated", truncated)
                require_end(steps, environment.id, environment.kwargs)
            total += steps
    return np.array(returns)
