"""Plays an episode of a policy that acts one observation at a time, as any Gymnasium loop does."""

from __future__ import annotations

from typing import Any

from esbench.agents.agent import ActingPolicy, Environment
from esbench.environments.episode_check import require_end


def play(
    policy: ActingPolicy, env: Environment, seed: int, name: str, kwargs: dict[str, Any]
) -> tuple[float, int]:
    """The return and the length of one episode in the environment ``name``, made with ``kwargs``.

    UsageError if the episode does not end.
    """
    observation, _ = env.reset(seed=seed)
    policy.reset()
    total, length, ended = 0.0, 0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, length = total + float(reward), length + 1
        ended = terminated or truncated
        require_end(length, name, kwargs)
    return total, length
