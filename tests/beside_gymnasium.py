"""Any backend, step by step beside plain Gymnasium environments."""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np

from esbench.environments.backends.backend import Backend, MovableBackend
from esbench.environments.make_environment import make_environment

SLOTS = 3
Actions = np.ndarray[Any, Any]


class DiffersError(AssertionError):
    """The fast path and Gymnasium differ."""


def require_equal(ours: object, theirs: object, what: str) -> None:
    mine, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if mine.tobytes() != other.tobytes():
        raise DiffersError(f"{what}: {mine} is not {other}")


def actions_of(space: Any, steps: int, slots: int) -> Iterator[Actions]:
    """Yield actions [slots, n]: calm ones, wild ones and, at times, ones out of bounds."""
    space.seed(0)
    for step in range(steps):
        actions = np.array([space.sample() for _ in range(slots)])
        size = np.float32((0.05, 1.0, 0.3, 2.0)[step // 25 % 4])
        yield actions * size if actions.dtype == np.float32 else actions


def play(
    cls: type[Backend],
    environment_id: str,
    kwargs: dict[str, Any],
    steps: int,
    slots: int = SLOTS,
    *,
    exposed: bool = True,
    actions: Iterable[Actions] | None = None,
    theirs: tuple[str, dict[str, Any]] | None = None,
) -> int:
    """Play beside Gymnasium, exposed and not, and return the number of episodes.

    ``theirs`` are the name and kwargs of the plain environments, if they are not the backend's.
    Slots are reset at different times; where they can, running episodes move to and fro between
    two backends. DiffersError if an observation, reward, end, info or state is not the same.
    """
    backends: list[Any] = [cls(environment_id, kwargs, slots) for _ in range(1 + exposed)]
    backends[-1].expose()
    another = cls(environment_id, kwargs, slots) if issubclass(cls, MovableBackend) else None
    plain = [make_environment(*(theirs or (environment_id, kwargs))) for _ in range(slots)]
    assert backends[0].single_observation_space == plain[0].observation_space
    assert backends[0].single_action_space == plain[0].action_space
    waiting, episodes = dict.fromkeys(range(slots), 0), 0
    lent: dict[int, Any] = {}  # of the slots, since their episodes began
    last: dict[int, Any] = {}  # what Gymnasium returned for each slot; later rewards are 0
    chosen = actions_of(plain[0].action_space, steps, slots) if actions is None else actions
    for step, row in enumerate(chosen):
        where = f"{environment_id} {kwargs}, step {step}"
        for slot in [slot for slot, since in waiting.items() if step >= since + slot]:
            del waiting[slot]
            seed = 100 * step + slot
            first, info = plain[slot].reset(seed=seed)
            for ours in backends:
                ours.start(slot, seed=seed)
                require_equal(ours.observations[slot], first, f"first observation of {slot}")
            lent[slot] = backends[-1].environment(slot)
            _compare_insides(backends[-1].info(slot), lent[slot], info, plain[slot], where)
        if another is not None and backends[0].movable and step % 3 == 2:
            _move(backends[0], another)
            backends[0], another = another, backends[0]
        stepped = {slot: plain[slot].step(row[slot]) for slot in lent if slot not in waiting}
        for slot, (observation, _, *ends, info) in last.items():
            last[slot] = observation, 0.0, *ends, info
        last.update(stepped)
        for ours in backends:
            _compare_step(ours, row, last, where)
        for slot, (_, _, terminated, truncated, info) in stepped.items():
            _compare_insides(backends[-1].info(slot), lent[slot], info, plain[slot], where)
            if terminated or truncated:
                episodes += 1
                waiting[slot] = step + 1
    for ours in (*backends, *plain):
        ours.close()
    return episodes


def _move(source: Any, target: Any) -> None:
    """Let another backend go on, with nothing but the saved episodes."""
    for field in ("observations", "_terminations", "_truncations"):  # of slots that wait
        getattr(target, field)[:] = getattr(source, field)
    for slot in np.flatnonzero(source.live).tolist():
        target.start(slot, seed=1)  # leaves its traces
        target.restore(slot, copy.deepcopy(source.save(slot)))
        source.retire(slot)


def _compare_step(backend: Backend, actions: Actions, theirs: dict[int, Any], where: str) -> None:
    observations, rewards, terminations, truncations, nothing = backend.step(actions)
    assert observations.dtype == backend.single_observation_space.dtype
    assert nothing == {}
    for slot, (observation, reward, terminated, truncated, _) in theirs.items():
        require_equal(observations[slot], observation, f"{where}, slot {slot}: observation")
        require_equal(rewards[slot], reward, f"{where}, slot {slot}: reward")
        ends = [terminations[slot], truncations[slot], not backend.live[slot]]
        expected = [bool(terminated), truncated, bool(terminated or truncated)]
        require_equal(ends, expected, f"{where}, slot {slot}: end")


def _compare_insides(
    info: dict[str, Any],
    lent: Any,
    expected: dict[str, Any],
    plain: gymnasium.Env[Any, Any],
    where: str,
) -> None:
    """Compare the info and the simulator of a slot with those of a plain environment."""
    assert info.keys() == expected.keys()
    for name, value in expected.items():
        require_equal(info[name], value, f"{where}: {name}")
    for (name, ours), (_, theirs) in zip(_state(lent), _state(plain), strict=True):
        require_equal(ours, theirs, f"{where}: {name}")


def _state(env: gymnasium.Env[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The state of a simulator: of the ALE, of MuJoCo, or of a classic control task."""
    inner: Any = env.unwrapped
    if hasattr(inner, "ale"):
        yield "memory", inner.ale.getRAM()
    elif hasattr(inner, "data"):
        yield "view", inner._get_obs()
        for field in ("qpos", "qvel", "cfrc_ext", "cfrc_int", "cacc", "ctrl"):
            yield field, getattr(inner.data, field)
    elif hasattr(inner, "state"):
        yield "state", inner.state
