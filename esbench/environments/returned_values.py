"""Checks that the values which an environment returns are in its spaces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.core.errors import TrainingError
from esbench.core.flat_spaces import Space
from esbench.core.units import counted

Array: TypeAlias = npt.NDArray[Any]
DISCRETE: Final = (int, np.integer)
FLOATS: Final = {np.dtype(name) for name in ("float16", "float32", "float64")}
FLAGS: Final = (bool, np.bool_, int, np.integer)


@final
class ReturnedValues:
    """Checks what one environment returns.

    ``what`` names its observations in messages.
    Every method raises TrainingError, which names the environment, for an answer that is wrong.
    """

    def __init__(
        self, environment: str, space: gymnasium.Space[Any], what: str = "an observation"
    ) -> None:
        self._environment = environment
        self._what = what
        self._space = space
        self._is_discrete = isinstance(space, spaces.Discrete)

    def of_reset(self, answer: Any) -> tuple[Any, dict[str, Any]]:
        """The observation and the info that ``reset`` has returned."""
        if isinstance(answer, tuple) and len(answer) == 2:
            return answer
        raise self._failure(f"reset() returned {_kind(answer)}; expected (observation, info)")

    def not_of_step(self, answer: Any) -> TrainingError:
        """The error for an answer of ``step`` that has no five parts."""
        expected = "expected (observation, reward, terminated, truncated, info)"
        return self._failure(f"step() returned {_kind(answer)}; {expected}")

    def observation(self, observation: Any) -> Any:
        """An observation whose shape and numbers fit the space."""
        if self._is_discrete and isinstance(observation, DISCRETE):
            return observation
        expected = self._space.shape
        unfit = observation is None or isinstance(observation, str | bytes)
        unfit |= isinstance(observation, np.ndarray) and observation.dtype.kind == "c"
        array = np.empty(0, object)
        if not unfit:
            try:
                with contextlib.suppress(TypeError, ValueError):
                    array = np.asarray(observation, dtype=self._space.dtype)
            except OverflowError:
                raise self._changed(observation) from None
        if array.dtype != self._space.dtype or array.shape != expected:
            raise self.unfit(observation, f"the shape {expected}")
        self.require_finite(array)
        given = np.asarray(observation)
        if given.dtype != array.dtype and array.dtype.kind in "iub" and (given != array).any():
            raise self._changed(observation)
        return array

    def parts(self, observation: Any, number: int) -> tuple[Any, ...]:
        """The parts of an observation of a Tuple space, or of one like it."""
        found: tuple[Any, ...] = ()
        with contextlib.suppress(TypeError):
            found = tuple(observation)
        if len(found) == number and not isinstance(observation, str | bytes):
            return found
        raise self.unfit(observation, counted(number, "part"))

    def unfit(self, observation: Any, expected: str) -> TrainingError:
        """The error for an observation that does not have what its space has."""
        return self._failure(f"{self._what} is {_kind(observation)}; its space has {expected}")

    def outside(self, observation: Any, low: Any, high: Any) -> TrainingError:
        """The error for discrete numbers that are not from ``low`` to ``high``."""
        numbers, lows, highs = np.broadcast_arrays(observation, low, high)
        first = np.flatnonzero((numbers < lows) | (numbers > highs))[0]
        number, low, high = (each.flat[first] for each in (numbers, lows, highs))
        return self._failure(f"{self._what} has the number {number}; expected {low} to {high}")

    def require_finite(self, observations: Array) -> None:
        """Refuse infinite numbers; one that is not a number makes the return of an episode NaN."""
        if observations.dtype.kind == "f" and np.isinf(observations).any():
            raise self._failure(f"{self._what} is infinite; expected finite numbers")

    def rewards(self, rewards: list[Any]) -> Array:
        """Rewards, checked together, because that is fast."""
        try:
            array = np.array(rewards)
        except ValueError:  # of several shapes
            array = np.empty(0)
        if array.ndim == 1 and array.dtype.kind in "buif" and len(array) == len(rewards):
            return array
        return np.array([self.reward(reward) for reward in rewards])

    def reward(self, reward: Any) -> float:
        """A reward, which must be a real number; NaN counts as one."""
        if isinstance(reward, float | int):
            return float(reward)
        array = np.asarray(reward)
        if array.ndim or array.dtype.kind not in "buif":
            raise self._failure(f"a reward is {_kind(reward)}; expected a number")
        return float(array)

    def flag(self, name: str, value: Any) -> bool:
        """A flag of the end of an episode, which must be true or false."""
        if isinstance(value, FLAGS) or (isinstance(value, np.ndarray) and value.size == 1):
            return bool(value)
        raise self._failure(f"the flag {name!r} is {_kind(value)}; expected true or false")

    def _changed(self, observation: Any) -> TrainingError:
        changing = f"numbers of the type {self._space.dtype}, which would change it"
        return self.unfit(observation, changing)

    def _failure(self, what: str) -> TrainingError:
        return TrainingError(f"environment {self._environment!r}: {what}")


def _kind(value: Any) -> str:
    """A wrong value in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} of {value.dtype}"
    if isinstance(value, tuple | list):
        return f"{len(value)} values ({type(value).__name__})"
    if isinstance(value, Mapping):
        return f"a mapping with the keys {list(value)}"
    return f"{value!r} ({type(value).__name__})"


ObservationCheck: TypeAlias = Callable[[Any], Any]


def observation_check(space: Space, environment: str, part: str = "") -> ObservationCheck:
    """The check of the observations of a space, or of a part of them, such as ``['goal'][0]``."""
    what = f"the part {part} of an observation" if part else "an observation"
    returned = ReturnedValues(environment, space, what)

    def inside(parts: Iterable[tuple[Any, Space]]) -> list[ObservationCheck]:
        return [observation_check(each, environment, f"{part}[{key!r}]") for key, each in parts]

    match space:
        case spaces.Dict():
            return _dict_check(returned, list(space.spaces), inside(space.spaces.items()))
        case spaces.Tuple():
            return _tuple_check(returned, inside(enumerate(space.spaces)))
        case spaces.OneOf():
            (index,) = inside([(0, spaces.Discrete(len(space.spaces)))])
            return _one_of_check(returned, index, inside((1, each) for each in space.spaces))
        case spaces.Box():
            return _box_check(returned, space)
        case spaces.Discrete():
            return _discrete_check(returned, int(space.start), int(space.start + space.n - 1))
        case spaces.MultiDiscrete():
            return _array_check(returned, space, space.start, space.start + (space.nvec - 1))
    low = np.zeros(space.shape or (), np.int8)  # MultiBinary
    return _array_check(returned, space, low, low + 1)


def _dict_check(
    returned: ReturnedValues, keys: list[Any], checks: list[ObservationCheck]
) -> ObservationCheck:
    """The check of a Dict space, which ignores keys that the space lacks."""

    def check(value: Any) -> Any:
        try:
            parts = [value[key] for key in keys]
        except (IndexError, KeyError, TypeError, ValueError):
            raise returned.unfit(value, f"the keys {keys}") from None
        return {key: each(part) for key, each, part in zip(keys, checks, parts, strict=True)}

    return check


def _tuple_check(returned: ReturnedValues, checks: list[ObservationCheck]) -> ObservationCheck:
    def check(value: Any) -> Any:
        parts = returned.parts(value, len(checks))
        return tuple([each(part) for each, part in zip(checks, parts, strict=True)])

    return check


def _one_of_check(
    returned: ReturnedValues, index: ObservationCheck, checks: list[ObservationCheck]
) -> ObservationCheck:
    def check(value: Any) -> Any:
        number, part = returned.parts(value, 2)
        number = int(index(number))
        return number, checks[number](part)

    return check


def _box_check(returned: ReturnedValues, space: spaces.Box) -> ObservationCheck:
    shape, fitting = space.shape, FLOATS if space.dtype.kind == "f" else {space.dtype}

    def check(value: Any) -> Any:
        if value.__class__ is np.ndarray and value.shape == shape and value.dtype in fitting:
            return value
        return returned.observation(value)

    return check


def _discrete_check(returned: ReturnedValues, low: int, high: int) -> ObservationCheck:
    def check(value: Any) -> Any:
        number = value if value.__class__ is int else returned.observation(value)
        if low <= number <= high:
            return number
        raise returned.outside(number, low, high)

    return check


def _array_check(
    returned: ReturnedValues, space: Space, low: Array, high: Array
) -> ObservationCheck:
    shape = space.shape

    def check(value: Any) -> Any:
        if not (
            value.__class__ is np.ndarray and value.shape == shape and value.dtype.kind in "iub"
        ):
            value = returned.observation(value)
        if np.count_nonzero((value < low) | (value > high)):  # faster than any() of a few
            raise returned.outside(value, low, high)
        return value

    return check
