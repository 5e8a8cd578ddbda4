"""Any backend, step by step beside plain Gymnasium environments."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from esbench.environments.backends.base import Backend, MovableBackend

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
    """Play beside Gymnasium, exposed and not, and return the number of episodes.

    Slots are reset at different times; where they can, running episodes move to and fro between
    two backends.

    Raises:
        DiffersError: an observation, reward, end or info is not the same.
    """
    backend, exposed, another = (cls(environment_id, kwargs, SLOTS) for _ in range(3))
    exposed.expose()
    plain = [gymnasium.make(environment_id, **kwargs) for _ in range(SLOTS)]
    assert backend.single_observation_space == plain[0].observation_space
    assert backend.single_action_space == plain[0].action_space
    waiting, episodes = dict.fromkeys(range(SLOTS), 0), 0
    for step, actions in enumerate(actions_of(backend.single_action_space, steps)):
        for slot in [slot for slot, since in waiting.items() if step >= since + slot]:
            del waiting[slot]
            seed = 100 * step + slot
            first, info = plain[slot].reset(seed=seed)
            for ours in (backend, exposed):
                ours.start(slot, seed=seed)
                require_equal(ours.observations[slot], first, f"first observation of {slot}")
            compare_infos(exposed.info(slot), info, f"first info of {slot}")
        if isinstance(backend, MovableBackend) and backend.movable and step % 3 == 2:
            _move(backend, another)
            backend, another = another, backend
        before = backend.observations.copy()
        stepped = [plain[slot].step(actions[slot]) for slot in range(SLOTS) if slot not in waiting]
        for ours in (backend, exposed):
            where = f"{environment_id} {kwargs}, step {step}"
            _compare_step(ours, actions, dict(zip(_others(waiting), stepped, strict=True)), where)
            for slot in waiting:
                require_equal(ours.observations[slot], before[slot], where)
        for slot, (_, _, terminated, truncated, info) in zip(
            _others(waiting), stepped, strict=True
        ):
            compare_infos(exposed.info(slot), info, f"{environment_id}, step {step}, slot {slot}")
            if terminated or truncated:
                episodes += 1
                waiting[slot] = step + 1
    backend.close()
    return episodes


def _move(source: Backend, target: Backend) -> None:
    """Let another backend go on, with nothing but the saved episodes."""
    target.observations[:] = source.observations  # of slots that wait
    for slot in np.flatnonzero(source.live).tolist():
        target.start(slot, seed=1)  # leaves its traces
        target.restore(slot, copy.deepcopy(source.save(slot)))
        source.retire(slot)


def _others(waiting: dict[int, int]) -> list[int]:
    return [slot for slot in range(SLOTS) if slot not in waiting]


def _compare_step(
    backend: Backend, actions: np.ndarray[Any, Any], theirs: dict[int, Any], where: str
) -> None:
    """Step a backend and compare the slots that Gymnasium has stepped; others get reward 0."""
    observations, rewards, terminations, truncations, _ = backend.step(actions)
    for slot in range(SLOTS):
        if slot not in theirs:
            require_equal(rewards[slot], 0.0, where)
            continue
        observation, reward, terminated, truncated, _ = theirs[slot]
        require_equal(observations[slot], observation, f"{where}, slot {slot}: observation")
        require_equal(rewards[slot], reward, f"{where}, slot {slot}: reward")
        ends = [terminations[slot], truncations[slot], not backend.live[slot]]
        require_equal(
            ends,
            [bool(terminated), truncated, bool(terminated or truncated)],
            f"{where}, slot {slot}: end",
        )


def compare_infos(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        require_equal(ours[name], value, f"{where}: {name}")
