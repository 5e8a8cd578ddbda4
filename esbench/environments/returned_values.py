"""Checks that the values which an environment returns are in its spaces."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from esbench.core.errors import TrainingError
from esbench.core.flat_spaces import Space

Array: TypeAlias = npt.NDArray[Any]
REAL: Final = "buif"  # the kinds of types that hold real numbers
FLAGS: Final = (bool, np.bool_, int, np.integer)


@final
class ReturnedValues:
    """Checks what one environment returns.

    Every method raises TrainingError, which names the environment and the part of an observation,
    such as ``['goal'][0]``, for an answer that is wrong.
    """

    def __init__(self, environment: str, space: Space) -> None:
        self._environment, self._space = environment, space

    def observation(self, value: Any) -> Any:
        """The observation, with arrays of its space; arrays of the right type may be infinite.

        ``require_finite`` checks these together. Keys that a Dict space lacks are ignored.
        """
        return self._fit(self._space, value, "")

    def require_finite(self, observations: Array, part: str = "") -> None:
        """Refuse infinite numbers; one that is not a number makes the return of an episode NaN."""
        if observations.dtype.kind == "f" and np.isinf(observations).any():
            raise self._wrong(part, "is infinite; expected finite numbers")

    def require_inside(self, observation: Array) -> None:
        """Refuse numbers outside of the bounds of a Box or Discrete space, and NaN."""
        if not isinstance(box := self._space, spaces.Box):
            self.observation(observation)
            return
        outside = ~((observation >= box.low) & (observation <= box.high))
        if outside.any():
            number, low, high = (each[outside][0] for each in (observation, box.low, box.high))
            raise self._outside("", number, low, high)

    def of_reset(self, answer: Any) -> tuple[Any, dict[str, Any]]:
        """The observation and the info that ``reset`` has returned."""
        if isinstance(answer, tuple) and len(answer) == 2:
            return answer
        raise self._failure(f"reset() returned {_kind(answer)}; expected (observation, info)")

    def not_of_step(self, answer: Any) -> TrainingError:
        """The error for an answer of ``step`` that has no five parts."""
        expected = "expected (observation, reward, terminated, truncated, info)"
        return self._failure(f"step() returned {_kind(answer)}; {expected}")

    def rewards(self, rewards: list[Any]) -> Array:
        """Rewards, checked together, because that is fast."""
        with contextlib.suppress(ValueError):  # of several shapes
            array = np.array(rewards)
            if array.ndim == 1 and array.dtype.kind in REAL:
                return array
        return np.array([self.reward(reward) for reward in rewards])

    def reward(self, reward: Any) -> float:
        """A reward, which must be a real number; NaN counts as one."""
        if isinstance(reward, float | int):
            return float(reward)
        array = np.asarray(reward)
        if array.ndim or array.dtype.kind not in REAL:
            raise self._failure(f"a reward is {_kind(reward)}; expected a number")
        return float(array)

    def flag(self, name: str, value: Any) -> bool:
        """A flag of the end of an episode, which must be true or false."""
        if isinstance(value, FLAGS) or (isinstance(value, np.ndarray) and value.size == 1):
            return bool(value)
        raise self._failure(f"the flag {name!r} is {_kind(value)}; expected true or false")

    def require_finite_reward(self, reward: float, step: int) -> None:
        """Refuse a reward that is infinite or not a number."""
        if not np.isfinite(reward):
            raise self._failure(f"the reward of step {step} is {reward}; expected finite numbers")

    def _fit(self, space: Space, value: Any, part: str) -> Any:
        low: Any
        high: Any
        match space:
            case spaces.Dict():
                try:
                    found = {key: value[key] for key in space.spaces}
                except (IndexError, KeyError, TypeError, ValueError):
                    raise self._unlike(part, value, f"the keys {list(space.spaces)}") from None
                return {
                    key: self._fit(space[key], each, f"{part}[{key!r}]")
                    for key, each in found.items()
                }
            case spaces.Tuple():
                inside = zip(space.spaces, self._parts(value, len(space), part), strict=True)
                return tuple(
                    [self._fit(*each, f"{part}[{place}]") for place, each in enumerate(inside)]
                )
            case spaces.OneOf():
                index, chosen = self._parts(value, 2, part)
                options = spaces.Discrete(len(space.spaces))
                index = int(self._fit(options, index, f"{part}[0]"))
                return index, self._fit(space.spaces[index], chosen, f"{part}[1]")
            case spaces.Discrete():
                low, high = space.start, space.start + space.n - 1
            case spaces.MultiDiscrete():
                low, high = space.start, space.start + (space.nvec - 1)
            case spaces.MultiBinary():
                low, high = 0, 1
            case _:
                return self._array(space, value, part)
        fitted = self._array(space, value, part)
        outside = (fitted < low) | (fitted > high)
        if np.count_nonzero(outside):  # faster than any() of a few
            raise self._outside(part, fitted[outside][0], low, high)
        return fitted

    def _array(self, space: Space, value: Any, part: str) -> Array:
        """The value as an array of the space, if that changes no number."""
        dtype, shape = space.dtype, space.shape
        if value.__class__ is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value
        given = np.empty(0, object)
        with contextlib.suppress(TypeError, ValueError):
            given = np.asarray(value)
        if given.dtype.kind not in REAL or given.shape != shape:
            raise self._unlike(part, value, f"numbers of the shape {shape}")
        with np.errstate(invalid="ignore"):
            array: Array = given.astype(dtype)
        self.require_finite(array, part)
        if array.dtype.kind != "f" and (given != array).any():
            expected = f"numbers of the type {dtype}, which would change it"
            raise self._unlike(part, value, expected)
        return array

    def _parts(self, value: Any, number: int, part: str) -> tuple[Any, ...]:
        found: tuple[Any, ...] = ()
        with contextlib.suppress(TypeError):
            found = tuple(value)
        if len(found) == number and not isinstance(value, str | bytes):
            return found
        raise self._unlike(part, value, f"{number} parts")

    def _unlike(self, part: str, value: Any, expected: str) -> TrainingError:
        return self._wrong(part, f"is {_kind(value)}; its space has {expected}")

    def _outside(self, part: str, number: Any, low: Any, high: Any) -> TrainingError:
        return self._wrong(part, f"has the number {number!s}; expected {low!s} to {high!s}")

    def _wrong(self, part: str, what: str) -> TrainingError:
        whole = f"the part {part} of an observation" if part else "an observation"
        return self._failure(f"{whole} {what}")

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
