"""The score of uniformly random actions: the zero of every normalised score.

A plain Gymnasium loop on purpose: it shares nothing with the rollouts it is compared with.
"""

from __future__ import annotations

import gymnasium
import numpy as np

from esbench.errors import UsageError
from esbench.population import Vector
from esbench.seeding import Purpose, episode_seed
from esbench.simulator_log import silenced
from esbench.spec import EnvironmentSpec


def random_policy_returns(environment: EnvironmentSpec, episodes: int, seed: int) -> Vector:
    """Return the undiscounted returns [episodes] of uniformly random actions.

    Args:
        environment: only its id and kwargs are used.
        episodes: how many.
        seed: names the streams; every episode has its own environment and action seeds.

    Raises:
        UsageError: no episode is asked for.
    """
    if episodes < 1:
        raise UsageError(f"episodes = {episodes}: expected at least 1")
    returns = np.zeros(episodes)
    with silenced():
        env = gymnasium.make(environment.id, **environment.kwargs)
    for episode in range(episodes):
        env.reset(seed=episode_seed(seed, Purpose.RANDOM_POLICY, episode, 0))
        env.action_space.seed(episode_seed(seed, Purpose.RANDOM_POLICY, episode, 1))
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            returns[episode] += float(reward)
            ended = terminated or truncated
    env.close()
    return returns
