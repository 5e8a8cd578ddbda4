"""Rewards and ends of all slots at once, as ``TimeLimit`` and a vector environment give them."""

from __future__ import annotations

from typing import Any, Final, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import TimeLimit

Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NEVER: Final = int(np.iinfo(np.int64).max)


@final
class EpisodeEnds:
    """The state of every slot's episode after a step.

    Attributes:
        live: [S], whether a slot is in the middle of an episode.
        elapsed: [S], steps of the running or last episode.
        rewards: [S], 0 where a slot was not stepped.
        terminations: [S], of the last episode, until the next begins.
        truncations: [S], likewise.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], slots: int) -> None:
        """Truncate episodes as ``env`` does."""
        self.live = np.zeros(slots, dtype=np.bool_)
        self.elapsed = np.zeros(slots, dtype=np.int64)
        self.rewards = np.zeros(slots)
        self.terminations = np.zeros(slots, dtype=np.bool_)
        self.truncations = np.zeros(slots, dtype=np.bool_)
        self._time_limit = _time_limit(env)

    def begin(self, slot: int, elapsed: int = 0) -> None:
        """Begin an episode, or continue one that has had ``elapsed`` steps elsewhere."""
        self.elapsed[slot] = elapsed
        self.terminations[slot] = self.truncations[slot] = False
        self.live[slot] = True

    def settle(self, rewards: Vector, terminated: Flags, truncated: Flags | None = None) -> None:
        """Record the results of a step, each [k], for the live ones of the first k slots.

        Args:
            rewards: of the step.
            terminated: whether the episode has terminated.
            truncated: whether the simulator itself truncates it.
        """
        count = len(rewards)
        live, elapsed = self.live[:count], self.elapsed[:count]
        self.rewards.fill(0.0)
        np.copyto(self.rewards[:count], rewards, where=live)
        elapsed += live
        over = elapsed >= self._time_limit
        if truncated is not None:
            over |= truncated
        ended = (terminated | over) & live
        if ended.any():
            self.terminations[:count] |= terminated & ended
            self.truncations[:count] |= over & ended
            live[ended] = False


def _time_limit(env: gymnasium.Env[Any, Any]) -> int:
    """The number of steps after which an episode is truncated."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return NEVER
