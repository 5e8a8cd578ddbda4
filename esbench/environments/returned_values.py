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
from esbench.core.units import counted

Array: TypeAlias = npt.NDArray[Any]
FLOATS: Final = {np.dtype(name) for name in ("float16", "float32", "float64")}
INTEGERS: Final = {np.dtype(code) for code in "?bhilqBHILQ"}
FLAGS: Final = (bool, np.bool_, int, np.integer)


@final
class ReturnedValues:
    """Checks what one environment returns.

    Every method raises TrainingError, which names the environment and the part of an observation,
    such as ``['goal'][0]``, for an answer that is wrong.
    """

    def __init__(self, environment: str, space: Space, part: str = "") -> None:
        self._environment, self._space = environment, space
        self._what = f"the part {part} of an observation" if part else "an observation"
        self._low: Any = None  # of discrete numbers
        inside: dict[Any, Space] = {}
        match space:
            case spaces.Dict():
                inside = dict(space.spaces)
            case spaces.Tuple():
                inside = dict(enumerate(space.spaces))
            case spaces.OneOf():
                inside = dict(enumerate(space.spaces))
                self._index = ReturnedValues(
                    environment, spaces.Discrete(len(inside)), f"{part}[0]"
                )
            case spaces.Discrete():
                self._low, self._high = int(space.start), int(space.start + space.n - 1)
            case spaces.MultiDiscrete():
                self._low, self._high = space.start, space.start + (space.nvec - 1)
            case spaces.MultiBinary():
                self._low, self._high = 0, 1
        chosen = [1] * len(inside) if isinstance(space, spaces.OneOf) else list(inside)
        self._inside = {
            key: ReturnedValues(environment, each, f"{part}[{name!r}]")
            for name, (key, each) in zip(chosen, inside.items(), strict=True)
        }
        is_float = space.dtype is not None and space.dtype.kind == "f"
        integers = {space.dtype} if self._low is None else INTEGERS
        self._fitting = FLOATS if is_float else integers

    def observation(self, value: Any) -> Any:
        """The observation, with parts of fitting types; floats may be infinite if they are arrays.

        ``require_finite`` checks these together. Keys that a Dict space lacks are ignored.
        """
        match self._space:
            case spaces.Dict():
                try:
                    named = {key: value[key] for key in self._inside}
                except (IndexError, KeyError, TypeError, ValueError):
                    raise self._unfit(value, f"the keys {list(self._inside)}") from None
                return {key: self._inside[key].observation(part) for key, part in named.items()}
            case spaces.Tuple():
                parts = enumerate(self._parts(value, len(self._inside)))
                return tuple([self._inside[key].observation(part) for key, part in parts])
            case spaces.OneOf():
                index, part = self._parts(value, 2)
                index = int(self._index.observation(index))
                return index, self._inside[index].observation(part)
            case spaces.Discrete() if isinstance(value, int | np.integer):
                fitted: Any = value
            case _:
                fits = value.__class__ is np.ndarray and value.dtype in self._fitting
                fitted = value if fits and value.shape == self._space.shape else self._array(value)
        # count_nonzero is faster than any() of a few.
        if self._low is not None and np.count_nonzero((fitted < self._low) | (fitted > self._high)):
            raise self._outside(fitted)
        return fitted

    def require_finite(self, observations: Array) -> None:
        """Refuse infinite numbers; one that is not a number makes the return of an episode NaN."""
        if observations.dtype.kind == "f" and np.isinf(observations).any():
            raise self._failure(f"{self._what} is infinite; expected finite numbers")

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

    def _array(self, value: Any) -> Array:
        """The value as an array of the space, if that changes no number."""
        dtype, shape = self._space.dtype, self._space.shape
        unfit = value is None or isinstance(value, str | bytes)
        unfit |= isinstance(value, np.ndarray) and value.dtype.kind == "c"
        array = np.empty(0, object)
        if not unfit:
            try:
                with contextlib.suppress(TypeError, ValueError):
                    array = np.asarray(value, dtype=dtype)
            except OverflowError:
                raise self._changed(value) from None
        if array.dtype != dtype or array.shape != shape:
            raise self._unfit(value, f"the shape {shape}")
        self.require_finite(array)
        given = np.asarray(value)
        if given.dtype != array.dtype and array.dtype.kind in "iub" and (given != array).any():
            raise self._changed(value)
        return array

    def _parts(self, value: Any, number: int) -> tuple[Any, ...]:
        found: tuple[Any, ...] = ()
        with contextlib.suppress(TypeError):
            found = tuple(value)
        if len(found) == number and not isinstance(value, str | bytes):
            return found
        raise self._unfit(value, counted(number, "part"))

    def _unfit(self, value: Any, expected: str) -> TrainingError:
        return self._failure(f"{self._what} is {_kind(value)}; its space has {expected}")

    def _changed(self, value: Any) -> TrainingError:
        return self._unfit(value, f"numbers of the type {self._space.dtype}, which would change it")

    def _outside(self, value: Any) -> TrainingError:
        numbers, lows, highs = np.broadcast_arrays(value, self._low, self._high)
        first = np.flatnonzero((numbers < lows) | (numbers > highs))[0]
        number, low, high = (each.flat[first] for each in (numbers, lows, highs))
        return self._failure(f"{self._what} has the number {number}; expected {low} to {high}")

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
