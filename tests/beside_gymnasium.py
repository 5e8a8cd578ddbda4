"""Any backend, step by step beside plain Gymnasium environments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from esbench.backends.base import Backend

SLOTS = 3


class DiffersError(AssertionError):
    """The fast path and Gymnasium differ."""


def require_equal(ours: object, theirs: object, what: str) -> None:
    mine, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if mine.tobytes() != other.tobytes():
        raise DiffersError(f"{what}: {mine} is not {other}")


def actions_of(space: Any, steps: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield actions [SLOTS, n]: calm ones, wild ones and, at times, ones out of bounds."""
    space.seed(0)
    for step in range(steps):
        actions = np.array([space.sample() for _ in range(SLOTS)])
        size = np.float32((0.05, 1.0, 0.3, 2.0)[step // 25 % 4])
        yield actions * size if actions.dtype == np.float32 else actions


def play(cls: type[Backend], environment_id: str, kwargs: dict[str, Any], steps: int) -> int:
    """Play beside Gymnasium, with resets at different times, and return the number of episodes.

    Raises:
        DiffersError: an observation, reward, end or info is not the same.
    """
    backend = cls(environment_id, kwargs, SLOTS)
    plain = [gymnasium.make(environment_id, **kwargs) for _ in range(SLOTS)]
    assert backend.single_observation_space == plain[0].observation_space
    assert backend.single_action_space == plain[0].action_space
    waiting, episodes = dict.fromkeys(range(SLOTS), 0), 0
    for step, actions in enumerate(actions_of(backend.single_action_space, steps)):
        for slot in [slot for slot, since in waiting.items() if step >= since + slot]:
            del waiting[slot]
            backend.start(slot, seed=100 * step + slot)
            first, info = plain[slot].reset(seed=100 * step + slot)
            require_equal(backend.observations[slot], first, f"first observation of {slot}")
            compare_infos(backend.info(slot), info, f"first info of {slot}")
        before = backend.observations.copy()
        observations, rewards, terminations, truncations, _ = backend.step(actions)
        for slot in range(SLOTS):
            where = f"{environment_id} {kwargs}, step {step}, slot {slot}"
            if slot in waiting:
                require_equal(observations[slot], before[slot], where)
                require_equal(rewards[slot], 0.0, where)
                continue
            observation, reward, terminated, truncated, info = plain[slot].step(actions[slot])
            require_equal(observations[slot], observation, f"{where}: observation")
            require_equal(rewards[slot], reward, f"{where}: reward")
            ends = [terminations[slot], truncations[slot], not backend.live[slot]]
            require_equal(
                ends, [bool(terminated), truncated, bool(terminated or truncated)], f"{where}: end"
            )
            compare_infos(backend.info(slot), info, where)
            if terminated or truncated:
                episodes += 1
                waiting[slot] = step + 1
    backend.close()
    return episodes


def compare_infos(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        require_equal(ours[name], value, f"{where}: {name}")
