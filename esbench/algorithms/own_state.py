"""Checks of an algorithm that is not part of esbench: what it samples, and its state."""

from __future__ import annotations

import json
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import TENSOR, Matrix, Vector, with_arrays, without_arrays
from esbench.core.errors import USER_CODE_ERRORS, TrainingError, error_text, shown

if TYPE_CHECKING:
    from esbench.algorithms.base import Algorithm
    from esbench.core.population import Population

CHECKED: Final = (2, 10)  # generations: most states, such as a momentum, are empty before the first
NUMBERS: Final = "biuf"  # kinds of arrays that a checkpoint stores
LARGEST: Final = 8  # bytes of a number
COMPARED: Final = 16  # members
RESERVED: Final = ("algorithm", "generation", "center", "average")  # keys of a stored state
MEMBER_COLUMNS: Final = ("generation", "member", "episode", "return", "length")  # not its own


def is_own(algorithm: object) -> bool:
    """Whether the class of an algorithm is not part of esbench."""
    return type(algorithm).__module__.partition(".")[0] != "esbench"


def require_scale(algorithm: object, parameters: int, sigma: Any, center: Any) -> None:
    """Raises TrainingError if a center or a deviation does not fit the number of parameters."""
    name = f"{type(algorithm).__name__}: the"
    if center is not None and _array(center).shape != (parameters,):
        raise TrainingError(f"{name} center of sampled is {_kind(center)}; expected [{parameters}]")
    scale = _array(sigma)
    shapes = ((), (parameters,), (parameters, parameters))
    if scale.dtype.kind not in NUMBERS or scale.shape not in shapes:
        raise TrainingError(
            f"{name} sigma of sampled is {_kind(sigma)}; expected a number, [{parameters}] or "
            f"[{parameters}, {parameters}]"
        )


def require_members(algorithm: object, population: Population, parameters: int) -> None:
    """Raises TrainingError if members do not have the number of parameters."""
    stored = getattr(population, "stored", None)  # of a StoredPopulation
    members = population.member(0)[np.newaxis] if stored is None else stored
    is_matrix = isinstance(members, np.ndarray) and members.ndim == 2
    if not is_matrix or members.shape[1] != parameters or members.dtype.kind not in NUMBERS:
        raise TrainingError(
            f"{type(algorithm).__name__}._ask returned the members {_kind(members)}; expected an "
            f"array [N, {parameters}] of numbers"
        )


def require_valid(algorithm: Algorithm[Any], center: object, parameters: int, members: int) -> None:
    """Raises TrainingError if a public attribute or the center does not fit after ``_tell``."""
    name = type(algorithm).__name__
    size = algorithm.population_size
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise TrainingError(f"{name}.population_size is {_kind(size)}; expected an integer above 0")
    if not isinstance(algorithm.member_data, dict):
        raise TrainingError(
            f"{name}.member_data is {_kind(algorithm.member_data)}; expected a dictionary"
        )
    is_vector = isinstance(center, np.ndarray) and center.shape == (parameters,)
    if not is_vector or np.asarray(center).dtype != np.float64:
        raise TrainingError(
            f"{name}._tell left {_kind(center)} as self._center; expected an array of "
            f"{parameters} float64 numbers"
        )
    if not isinstance(sigma := algorithm.sigma, Real):
        raise TrainingError(f"{name}.sigma is {_kind(sigma)}; expected a number (see scale_of)")
    for key, value in algorithm.member_data.items():
        array = _array(value)
        fits = array.ndim == 0 or (array.ndim < 3 and len(array) == members)
        if not fits or array.dtype.kind not in NUMBERS or key in MEMBER_COLUMNS:
            raise TrainingError(
                f"{name}: member_data[{key!r}] is {_kind(value)}; expected a number or numbers "
                f"for {members} members, under another name than {', '.join(MEMBER_COLUMNS)}"
            )


def _array(value: Any) -> npt.NDArray[Any]:
    """A value as an array; of objects if its lists differ in length."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty(0, object)


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {list(value.shape)} of {value.dtype}"
    return shown(value)


def storable_state(algorithm: object, state: Any) -> dict[str, Any]:
    """What ``_state_dict`` returned, with NumPy's numbers as Python's.

    Raises:
        TrainingError: it is no dictionary, has a key that esbench uses, or something in it cannot
            be stored.
    """
    name = f"{type(algorithm).__name__}._state_dict()"
    if not isinstance(state, dict):
        raise TrainingError(f"{name} is of type {type(state).__name__}; expected a dictionary")
    if taken := [key for key in RESERVED if key in state]:
        raise TrainingError(
            f"{name} has the key {taken[0]!r}, under which esbench stores its own part of the "
            "state; expected another name"
        )
    stored: dict[str, Any] = _storable(state, name)
    return stored


def _storable(value: Any, name: str, *, in_list: bool = False) -> Any:
    """A value as a checkpoint stores it; ``name`` is for messages. A list has no arrays."""
    kind = value.dtype.kind if isinstance(value, np.ndarray | np.generic) else ""
    if kind and kind in NUMBERS and value.dtype.itemsize <= LARGEST:
        if isinstance(value, np.generic):
            return value.item()
        if not in_list:
            return value
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TrainingError(f"{name} has the key {wrong[0]!r}; expected texts as keys")
        if TENSOR in value:
            raise TrainingError(f"{name} has the key {TENSOR!r}; expected another name")
        return {
            key: _storable(each, f"{name}[{key!r}]", in_list=in_list) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _storable(each, f"{name}[{place}]", in_list=True) for place, each in enumerate(value)
        ]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    of = f" of {value.dtype}" if kind else ""
    raise TrainingError(
        f"{name} is of type {type(value).__name__}{of}; expected an array of numbers, a number, a "
        "text, None, a dictionary of these, or a list of these without arrays"
    )


@final
class RestoredTwin:
    """Another object with the stored state of an own algorithm, and the population it asks for."""

    def __init__(self, algorithm: Algorithm[Any], start: Vector, population: Population) -> None:
        """Restore the twin of an algorithm that began at ``start`` [P], as a resume does.

        Raises:
            TrainingError: the twin does not ask for the same ``population``.
        """
        arrays: dict[str, Any] = {}
        plain = json.loads(json.dumps(without_arrays(algorithm.state_dict(), arrays)))
        arguments = algorithm.settings, start, algorithm.seed, algorithm.shapes
        self._algorithm: Algorithm[Any] = type(algorithm)(*arguments)
        try:
            self._algorithm.load_state_dict(with_arrays(plain, arrays))
        except USER_CODE_ERRORS as error:
            what = f"_load_state_dict does not take what _state_dict returns: {error_text(error)}"
            raise _not_restored(algorithm, what) from error
        asked, size = self._algorithm.ask(), len(population)
        same = len(asked) <= size and _same_size_and_plan(self._algorithm, algorithm)
        same = same and all(
            np.array_equal(asked.member(index), population.member(index), equal_nan=True)
            for index in range(0, len(asked), 1 + size // COMPARED)
        )
        if not same:
            number = algorithm.generation + 1
            raise _not_restored(algorithm, f"generation {number} has other members or episodes")
        self._population = asked if len(asked) == size else asked.extended(size)

    def require_equal(
        self, algorithm: Algorithm[Any], returns: Vector, behaviors: Matrix | None
    ) -> None:
        """Raises TrainingError unless the twin learns the same as the algorithm has."""
        twin = self._algorithm
        twin.tell(self._population, returns, behaviors)
        same = (
            np.array_equal(twin.center, algorithm.center, equal_nan=True)
            and np.array_equal(float(twin.sigma), float(algorithm.sigma), equal_nan=True)
            and _same_size_and_plan(twin, algorithm)
        )
        if not same:
            number = algorithm.generation
            raise _not_restored(algorithm, f"generation {number} ends in another state")


def restored_twin(
    algorithm: Algorithm[Any], start: Vector, population: Population
) -> RestoredTwin | None:
    """The twin of an own algorithm in one of the generations that are checked; None otherwise."""
    if algorithm.generation + 1 not in CHECKED or not is_own(algorithm):
        return None
    return RestoredTwin(algorithm, start, population)


def _same_size_and_plan(twin: Algorithm[Any], algorithm: Algorithm[Any]) -> bool:
    return (twin.population_size, twin.plan) == (algorithm.population_size, algorithm.plan)


def _not_restored(algorithm: Algorithm[Any], what: str) -> TrainingError:
    return TrainingError(
        f"{type(algorithm).__name__} would not continue with the same bits after a resume: {what}. "
        "_state_dict must return, and _load_state_dict restore, everything that the next "
        "generation depends on; random numbers must depend on the seed alone"
    )
