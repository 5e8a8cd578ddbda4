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
class Ends:
    """What a step leaves in every slot.

    Attributes:
        live: [S], whether a slot is in the middle of an episode.
        elapsed: [S], steps of the running or last episode.
        rewards: [S], 0 where a slot was not stepped.
        terminations, truncations: [S], of the last episode, until the next begins.
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
        """Begin an episode, or go on with one that has had some steps elsewhere."""
        self.elapsed[slot] = elapsed
        self.terminations[slot] = self.truncations[slot] = False
        self.live[slot] = True

    def settle(self, rewards: Vector, terminated: Flags, truncated: Flags | None = None) -> None:
        """Take over a step's results, each [k], for the live ones of the first k slots.

        Args:
            rewards: of the step.
            terminated: whether the episode has come to its end.
            truncated: whether the simulator itself breaks it off.
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
    """Return after how many steps an episode is truncated."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return NEVER
