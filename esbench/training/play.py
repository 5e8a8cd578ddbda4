"""Plays an episode of a policy that acts one observation at a time, as any Gymnasium loop does."""

from __future__ import annotations

from esbench.agents.base import ActingPolicy, Environment


def play(policy: ActingPolicy, env: Environment, seed: int) -> tuple[float, int]:
    """The return and the length of one episode."""
    observation, _ = env.reset(seed=seed)
    policy.reset()
    total, length, ended = 0.0, 0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, length = total + float(reward), length + 1
        ended = terminated or truncated
    return total, length
