"""Checks before training that episodes end, and that only their seed and actions determine them.

One instance plays a few episodes. A fresh one plays an episode, and the first one repeats it with
the same seed and actions while the fresh one plays another. If the two differ, results would depend
on how episodes are distributed over workers. What is compared includes the states of all random
generators that an episode has drawn from, which differ however rare the effect of a draw is.

Episodes of a fresh process are compared likewise: a module may draw a map when it is imported.

If their seed makes no difference either, the environment is deterministic: all episodes of a policy
are the same one.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from itertools import count, islice, takewhile, zip_longest
from typing import Any, Final, SupportsFloat, TypeAlias, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.core.clock import RunningTime
from esbench.core.errors import (
    USER_CODE_ERRORS,
    EsbenchError,
    UsageError,
    UserCodeError,
    error_text,
    location,
)
from esbench.core.flat_spaces import nested, packed, require_flat
from esbench.core.generators import GeneratorWatch, Named, shared_generators
from esbench.core.units import counted
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.make_environment import Wrappers, import_classes, make_environment
from esbench.environments.returned_values import ReturnedValues
from esbench.environments.specifications import has_time_limit

STEPS: Final = 500  # of the episodes before, and of the compared one
SECONDS: Final = 2.0  # likewise, for slow environments
FIRST: Final = 10  # steps whose rewards are looked at
SEEDS: Final = (1, 2, 3)  # of the episodes before
SEED: Final = 4  # of the compared episode
BESIDE: Final = 5  # of the episode that another instance plays meanwhile
UNENDED: Final = 10_000  # steps without an end, in an environment without a time limit
LONGEST: Final = 100_000  # likewise, in training and scoring
PATIENCE: Final = 10.0  # seconds for them, and for all pairs
PAIRS: Final = 10  # of episodes with two seeds; short ones may be equal by chance
PAIRED_STEPS: Final = 1000  # of all pairs
NEW_INSTANCE: Final = "esbench.environments.wrappers:NewInstance"
REMEDIES: Final = {
    "NormalizeObservation": "remove it and set policy.normalize_observations = true",
    "NormalizeReward": "remove it: rank-based shaping needs no reward scaling",
}

Environment: TypeAlias = gymnasium.Env[Any, Any]
Make: TypeAlias = Callable[[], Environment]
_Item = TypeVar("_Item")
Step: TypeAlias = dict[str, Any]
"""What is compared, by its name in messages; a number stands for a long value."""


def check_episodes(name: str, kwargs: dict[str, Any], wrappers: Wrappers = ()) -> None:
    """Refuse an environment whose episodes have no rewards, do not end or depend on earlier ones.

    Another exception of the environment ends the check: training reports it, with its traceback.

    Raises:
        UsageError: names the wrapper or the class that keeps state, the missing setting, or what
            ``step`` returned.
    """
    make = partial(make_environment, name, kwargs, wrappers)
    fault = ""
    try:
        fault = _without_rewards(name, make)
        if not fault and not has_time_limit(name, kwargs) and _is_endless(make):
            fault = no_time_limit(name, UNENDED)
        fault = fault or _irregular(name, make)
    except USER_CODE_ERRORS as error:
        if "expected 5, got 4" in str(error):  # unpacked here or in a wrapper, as that of the limit
            fault = (
                f"environment {name!r}: step() returned 4 values; expected (observation, reward, "
                "terminated, truncated, info), as in Gymnasium and in Gym from 0.26 on"
            )
    if fault:
        raise UsageError(fault)


def check_values(name: str, kwargs: dict[str, Any], wrappers: Wrappers = ()) -> None:
    """Refuse an environment whose first steps fail or return values outside of its spaces."""
    with contextlib.closing(GymnasiumBackend(name, kwargs, 1, wrappers)) as backend:
        actions = backend.single_action_space
        require_flat(backend.single_observation_space, name, "observation")
        require_flat(actions, name, "action")
        returned = ReturnedValues(name, backend.single_observation_space)
        try:
            backend.start(0, SEED)
            returned.require_inside(backend.observations[0])
            for step in range(1, FIRST + 1):
                if backend.live[0]:
                    _, rewards, *_ = backend.step(packed([actions.sample()], actions))
                    returned.require_inside(backend.observations[0])
                    returned.require_finite_reward(rewards[0], step)
        except EsbenchError:
            raise
        except USER_CODE_ERRORS as error:
            raise UserCodeError(
                f"environment {name!r} failed: {error_text(error)}{location(error)}"
            ) from error


def fingerprint(name: str, kwargs: dict[str, Any], wrappers: Wrappers = ()) -> list[Step]:
    """What must be the same in every process: what an import draws, arguments and some episodes.

    Ends where the environment fails.
    """
    found = list[Step]()
    with contextlib.suppress(*USER_CODE_ERRORS):
        watch = GeneratorWatch()
        registered = import_classes(name, wrappers)
        drawn = watch.drawn()
        found.append({f"{_state_of(each)} after an import": drawn[each] for each in drawn})
        found.append({f"the argument {key!r}": _content(registered[key]) for key in registered})
        with contextlib.closing(make_environment(name, kwargs, wrappers)) as env:
            shared = shared_generators()
            steps = (step for seed in count(SEED) for step in _watched(env, seed, shared))
            found += _limited(steps, STEPS, SECONDS)
    return found


def require_equal_processes(name: str, one: list[Step], other: list[Step]) -> None:
    """Refuse an environment with two fingerprints; UsageError says where they differ."""
    if what := first_difference(one, other):
        raise UsageError(
            f"environment {name!r} differs between two processes: with one seed and the same "
            f"actions, {what} is another one, so results would depend on the number of workers; "
            "expected no random numbers while modules are imported, nothing that depends on "
            "hash(), id(), the process or the time, and no edit of a file since it was imported"
        )


def first_difference(one: list[Step], other: list[Step]) -> str:
    """What differs first between two fingerprints; empty if nothing does."""
    common = one[0].keys() & other[0].keys()  # a process may have imported the modules before
    imports = [{what: each[0][what] for what in common} for each in (one, other)]
    pairs = zip([imports[0], *one[1:]], [imports[1], *other[1:]], strict=False)
    return next(filter(None, (_apart(mine, theirs) for mine, theirs in pairs)), "")


def bounds_without_zero(name: str, kwargs: dict[str, Any], wrappers: Wrappers = ()) -> str | None:
    """A warning if 0 is outside the bounds of an action, where the first policies are.

    None if there is nothing to warn of, or the environment fails.
    """
    with (
        contextlib.suppress(*USER_CODE_ERRORS),
        contextlib.closing(make_environment(name, kwargs, wrappers)) as env,
    ):
        for space in nested(env.action_space):
            if not isinstance(space, spaces.Box):
                continue
            for low, high in zip(space.low.flat, space.high.flat, strict=True):
                if not low <= 0 <= high:
                    return (
                        f"{name}: 0 is not within the bounds of an action, {low:g} to {high:g}, so "
                        "the first policies of a search all act at a bound; the wrapper "
                        "'gymnasium.wrappers:RescaleAction', or one of your own, rescales actions"
                    )
    return None


def is_deterministic(name: str, kwargs: dict[str, Any], wrappers: Wrappers = ()) -> bool | None:
    """Whether two seeds with the same random actions give the same episodes.

    None if the environment fails, or if time runs out before a difference is found.
    Episodes of one step, such as those of a test function, do not count: they have no trajectory.
    """
    make = partial(make_environment, name, kwargs, wrappers)
    longest = 0
    with (
        contextlib.suppress(*USER_CODE_ERRORS),
        contextlib.closing(make()) as first,
        contextlib.closing(make()) as second,
    ):
        steps = (
            steps
            for seed in range(PAIRS)
            for steps in enumerate(
                zip_longest(_episode(first, seed), _episode(second, PAIRS + seed, seed))
            )
        )
        running = RunningTime(stops=1)
        for number, (mine, other) in islice(steps, PAIRED_STEPS):
            if mine != other:
                return False
            if running() > PATIENCE:
                return None
            longest = max(longest, number)  # the first one is the reset
        return longest > 1 if longest else None
    return None


def require_end(steps: int, name: str, kwargs: dict[str, Any]) -> None:
    """Raises UserCodeError if an episode goes on after ``LONGEST`` steps without a time limit."""
    if steps > LONGEST and not has_time_limit(name, kwargs):
        raise UserCodeError(no_time_limit(name, LONGEST))


def no_time_limit(name: str, steps: int) -> str:
    """The message about an episode that has not ended after this many steps."""
    return (
        f"environment {name!r} has no time limit, and an episode has not ended after {steps:,} "
        "steps; expected a number for environment.max_episode_steps, which then limits training "
        f"and scoring: --set 'environment.\"{name}\".max_episode_steps=1000'"
    )


def _without_rewards(name: str, make: Make) -> str:
    """The fault of an environment whose first rewards are not numbers, if it has it."""
    with contextlib.closing(make()) as env:
        steps = islice(_limited(_episode(env, SEED), FIRST + 1, SECONDS), 1, None)
        rewards = [np.frombuffer(step["the reward"]) for step in steps]
    if not rewards or np.isfinite(rewards).any():
        return ""
    return (
        f"environment {name!r}: the reward of step 1 is {rewards[0][0]}, and of the first "
        f"{counted(len(rewards), 'step')} none has a finite one; expected finite numbers"
    )


def _is_endless(make: Make) -> bool:
    """Whether an episode with one action, held, goes on."""
    with contextlib.closing(make()) as env:
        steps = sum(1 for _ in _limited(_episode(env, SEED, held=True), UNENDED + 1, PATIENCE))
    return steps > UNENDED


def _irregular(name: str, make: Make) -> str:
    """The fault of an environment that does not repeat an episode, if it has it."""
    if not _difference(make, 0):
        return ""
    with contextlib.closing(make()) as env:
        layers = [type(layer).__name__ for layer in _layers(env)]
    for depth in reversed(range(len(layers))):  # from the inside
        if difference := _difference(make, depth):
            break
    else:
        return ""
    layer, is_wrapper = layers[depth], depth + 1 < len(layers)
    who = f"environment {name!r}: the {'wrapper' if is_wrapper else 'class'} {layer}"
    if apart := _difference(make, depth, seeds=(), beside=False):
        return (
            f"{who} does not depend on its seed only: {apart} between two new instances; expected "
            "all random numbers from self.np_random, which reset(seed=...) seeds"
        )
    if not (used := _difference(make, depth, beside=False)):
        return (
            f"{who} shares state with other instances: {difference} if another one plays at the "
            "same time, so results would depend on the number of workers; expected all state in "
            "attributes of self, and all random numbers from self.np_random"
        )
    resets = "expected a reset() that resets everything"
    remedy = (
        resets if is_wrapper else f"{resets}, or the wrapper {NEW_INSTANCE!r}, first in the list"
    )
    return (
        f"{who} keeps state from earlier episodes: {used} between a used and a new instance, "
        f"so results would depend on the number of workers; {REMEDIES.get(layer, remedy)}"
    )


def _difference(
    make: Make, depth: int, seeds: tuple[int, ...] = SEEDS, *, beside: bool = True
) -> str:
    """How an episode differs in an instance that has played others and in a new one, if it does.

    Compared is the layer ``depth`` of the environment: 0 with all wrappers, the last with none.
    With ``beside``, the new instance plays another episode step by step with the used one.
    """
    with contextlib.closing(make()) as first, contextlib.closing(make()) as second:
        used, new = (_layers(env)[depth] for env in (first, second))
        shared = shared_generators()
        before = (step for seed in seeds for step in _episode(used, seed))
        for _ in _limited(before, STEPS, SECONDS):
            pass
        expected = list(_limited(_watched(new, SEED, shared), STEPS, SECONDS))
        other = _episode(new, BESIDE) if beside else iter(())
        next(other, None)
        again = _watched(used, SEED, shared)
        for number, (then, now) in enumerate(zip(expected, again, strict=False)):
            next(other, None)
            if what := _apart(then, now):
                return f"with one seed, {what} of step {number} differs"
    return ""


def _apart(one: Step, other: Step) -> str:
    """What differs between two steps; empty if nothing does."""
    return next((what for what in {**one, **other} if one.get(what) != other.get(what)), "")


def _content(value: Any) -> Hashable:
    """A value of any space without addresses; a number stands for the content of an array."""
    if isinstance(value, Mapping):
        return tuple((repr(key), _content(value[key])) for key in sorted(value, key=repr))
    if isinstance(value, tuple | list):
        return tuple(map(_content, value))
    array = np.asarray(value)
    if array.dtype.hasobject:  # its bytes are addresses
        return type(value).__name__
    return array.dtype.str, array.shape, zlib.crc32(array.tobytes())


def _layers(env: Environment) -> list[Environment]:
    """The environment with all its wrappers, then with one less, and so on."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _limited(steps: Iterator[_Item], most: int, seconds: float) -> Iterator[_Item]:
    running = RunningTime(stops=1)  # a slow environment has more
    return takewhile(lambda _: running() < seconds, islice(steps, most))


def _watched(env: Environment, seed: int, shared: Named) -> Iterator[Step]:
    """As ``_episode``, with the states of the generators that it has drawn from."""
    watch = GeneratorWatch(shared, lambda: reversed(_layers(env)))
    for step in _episode(env, seed):
        yield {_state_of(name): state for name, state in watch.drawn().items()} | step


def _state_of(generator: str) -> str:
    return f"the state of the generator {generator}"


def _episode(
    env: Environment, seed: int, action_seed: int | None = None, held: bool = False
) -> Iterator[Step]:
    """Play an episode with random actions, or with one random action that is held.

    The actions have the seed of the episode, or one of their own.
    """
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed if action_seed is None else action_seed)
    observation, _ = env.reset(seed=seed)
    reward: SupportsFloat = 0.0
    terminated, truncated, action = False, False, actions.sample()
    while True:
        if reward is None:  # NumPy makes it NaN
            raise TypeError("the reward is None; expected a number")
        yield {
            "the observation": _content(observation),
            "the reward": np.float64(reward).tobytes(),
            "the termination": bool(terminated),
            "the truncation": bool(truncated),
        }
        if terminated or truncated:
            return
        observation, reward, terminated, truncated, _ = env.step(action)
        action = action if held else actions.sample()
