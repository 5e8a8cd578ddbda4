"""Checks that an algorithm keeps the contract of ``Algorithm``, on a small problem."""

from __future__ import annotations

import json
import math
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from esbench.algorithms.base import Algorithm, require_algorithm
from esbench.algorithms.search_settings import AlgorithmSettings
from esbench.core.arrays import TENSOR, Matrix, Shapes, Vector, with_arrays, without_arrays
from esbench.core.errors import (
    USER_CODE_ERRORS,
    TrainingError,
    as_training_errors,
    error_text,
    shown,
)
from esbench.core.generators import GeneratorWatch, redrawn, shared_generators
from esbench.core.population import Population
from esbench.core.settings import parse

SEED: Final = 1
NUM_PARAMS: Final = 6  # in place of more than MOST_PARAMS
MOST_PARAMS: Final = 1_000
TELLS: Final = 12
RESTORED: Final = (0, 1, 9)  # tells before which a copy is restored: many states are empty at first
MOST_MEMBERS: Final = 10_000  # a larger population is not evaluated
NUMBERS: Final = "biuf"  # kinds of arrays that a checkpoint stores
LARGEST: Final = 8  # bytes of a number
RESERVED: Final = ("algorithm", "generation", "center", "average")  # keys of a stored state
MEMBER_COLUMNS: Final = frozenset({"generation", "member", "episode", "return", "length"})


def check_algorithm(cls: type[Algorithm[Any]], **settings: Any) -> None:
    """Check an algorithm of your own; ``esbench run`` does so before it trains one.

    It asks for a few populations, tells their returns, and restores copies from the stored state,
    which must continue with the same bits.

    Args:
        cls: the class.
        settings: settings of the algorithm.

    Raises:
        UsageError: the class is no algorithm, or a setting is wrong.
        TrainingError: the class does not keep the contract; the message says where.

    >>> from esbench.algorithms.openai_es import OpenAIES
    >>> check_algorithm(OpenAIES, sigma=0.1)
    """
    name = getattr(cls, "__qualname__", str(cls))
    require_algorithm(cls, name)
    check_search(cls, parse(cls.Settings, settings, f"check_algorithm({name})"))


def check_search(
    cls: type[Algorithm[Any]],
    settings: AlgorithmSettings,
    shapes: Shapes = ((2, 2), (2,)),
    knows_start: bool = True,
) -> None:
    """Check an algorithm with validated settings, on tensors of ``shapes`` unless they are large.

    ``knows_start`` is whether a resumed search is made with the center that it began with. Errors
    as ``check_algorithm``.
    """
    given = (getattr(settings, name, None) for name in ("center_init", "sigma", "sigma_min"))
    one_each = next((len(value) for value in given if isinstance(value, tuple)), None)
    size = sum(map(math.prod, shapes))
    if size > MOST_PARAMS or one_each not in {None, size}:
        size = one_each or NUM_PARAMS
        shapes = ((size,),)
    restart = np.zeros(size) if knows_start else np.ones(size)
    watch = GeneratorWatch(shared_generators())
    with as_training_errors():
        _try(cls, settings, shapes, restart)
        if drawn := watch.drawn():
            _try(cls, settings, shapes, restart)
            if name := redrawn(drawn, watch.drawn()):
                raise TrainingError(
                    f"{cls.__name__} draws from the generator {name}, which other code uses too; "
                    "expected random numbers that depend on the seed alone"
                )
        if cls.uses_seed:
            _require_seeded(cls, settings, shapes, size)


def _require_seeded(
    cls: type[Algorithm[Any]], settings: AlgorithmSettings, shapes: Shapes, size: int
) -> None:
    """Raises TrainingError if two seeds have the same members in all generations."""
    pair = [cls(settings, np.zeros(size), seed, shapes) for seed in (SEED, SEED + 1)]
    for _ in range(TELLS):
        if pair[0].population_size > MOST_MEMBERS:
            return
        asked = [algorithm._ask() for algorithm in pair]
        first, second = (_members(cls, population, size) for population in asked)
        if not np.array_equal(first, second, equal_nan=True):
            return
        for algorithm, population in zip(pair, asked, strict=True):
            algorithm.tell(population, -np.sum((first - 1.0) ** 2, axis=1), first[:, :2])
    raise TrainingError(
        f"{cls.__name__} asks for the same members with every seed; expected random numbers that "
        "depend on self.seed, or uses_seed = False for a search that draws none"
    )


def _try(
    cls: type[Algorithm[Any]], settings: AlgorithmSettings, shapes: Shapes, restart: Vector
) -> None:
    size = len(restart)
    algorithm = cls(settings, np.zeros(size), SEED, shapes)
    for told in range(TELLS):
        if algorithm.population_size > MOST_MEMBERS:
            return
        population = algorithm._ask()
        members = _members(cls, population, size)
        twin = _restored(algorithm, restart) if told in RESTORED else None
        if twin is not None:
            _require_same_plan(algorithm, twin, members)
        returns, behaviors = -np.sum((members - 1.0) ** 2, axis=1), members[:, :2]
        algorithm.tell(population, returns, behaviors)
        _require_valid(algorithm, size, len(members))
        if twin is not None:
            twin.tell(twin.ask(), returns, behaviors)
            _require_same_state(algorithm, twin)


def _members(cls: type, population: object, num_params: int) -> Matrix:
    """The members [N, P] that an algorithm asks for; TrainingError if they do not fit."""
    name = f"{cls.__name__}._ask"
    if not isinstance(population, Population):
        raise TrainingError(
            f"{name} returned {_kind(population)}; expected a Population, such as StoredPopulation"
        )
    try:
        members = np.asarray(population.members())
    except (AttributeError, TypeError, ValueError) as error:  # as a center of another shape
        raise TrainingError(f"{name} returned members that cannot be made: {error}") from error
    if members.shape != (len(population), num_params) or members.dtype.kind not in NUMBERS:
        raise TrainingError(f"{name} returned {_kind(members)}; expected numbers [N, {num_params}]")
    return members


def _restored(algorithm: Algorithm[Any], start: Vector) -> Algorithm[Any]:
    """Another object with the stored state of an algorithm that began at ``start``, [P]."""
    cls, arrays = type(algorithm), dict[str, Any]()
    own = algorithm._state_dict()
    try:
        plain = without_arrays(algorithm.state_dict(), arrays)
        stored = json.loads(json.dumps(plain))
        storable = own.keys().isdisjoint({*RESERVED, TENSOR}) and repr(stored) == repr(plain)
    except (AttributeError, TypeError):
        storable = False
    if not storable or not all(map(_is_storable, arrays.values())):
        raise TrainingError(
            f"{cls.__name__}._state_dict returned {shown(own)}; expected a dictionary of arrays of "
            "numbers, numbers, texts, None, and lists and dictionaries of these, with texts as "
            f"keys but {', '.join(RESERVED)} and {TENSOR}"
        )
    twin = cls(algorithm.settings, start, algorithm.seed, algorithm.shapes)
    try:
        twin.load_state_dict(with_arrays(stored, arrays))
    except USER_CODE_ERRORS as error:
        what = f"_load_state_dict does not take what _state_dict returns: {error_text(error)}"
        raise _not_restored(algorithm, what) from error
    return twin


def _require_same_plan(algorithm: Algorithm[Any], twin: Algorithm[Any], members: Matrix) -> None:
    again = _members(type(twin), twin._ask(), members.shape[1])
    same = (twin.population_size, twin.plan) == (algorithm.population_size, algorithm.plan)
    if not same or not np.array_equal(again, members, equal_nan=True):
        number = algorithm.generation + 1
        raise _not_restored(algorithm, f"generation {number} has other members or episodes")


def _require_same_state(algorithm: Algorithm[Any], twin: Algorithm[Any]) -> None:
    pairs = ((twin.center, algorithm.center), (float(twin.sigma), float(algorithm.sigma)))
    same = (twin.population_size, twin.plan) == (algorithm.population_size, algorithm.plan)
    if not same or not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs):
        raise _not_restored(algorithm, f"generation {algorithm.generation} ends in another state")


def _require_valid(algorithm: Algorithm[Any], num_params: int, members: int) -> None:
    """Raises TrainingError if an attribute does not fit after ``_tell``."""
    size, center = algorithm.population_size, algorithm._center
    sigma, data = algorithm.sigma, algorithm.member_data
    is_count = isinstance(size, Integral) and not isinstance(size, bool) and int(size) > 0
    is_vector = isinstance(center, np.ndarray) and center.shape == (num_params,)
    is_data = isinstance(data, dict) and MEMBER_COLUMNS.isdisjoint(data)
    vector = f"an array of {num_params} float64 numbers"
    columns = (
        f"a dictionary of numbers, or of numbers for {members} members, under other names than "
        f"{', '.join(sorted(MEMBER_COLUMNS))}"
    )
    for name, value, fits, expected in (
        ("population_size", size, is_count, "an integer above 0"),
        ("_center", center, is_vector and center.dtype == np.float64, vector),
        ("sigma", sigma, isinstance(sigma, Real), "a number (see scale_of)"),
        ("member_data", data, is_data and _is_per_member(data, members), columns),
    ):
        if not fits:
            raise TrainingError(
                f"{type(algorithm).__name__}.{name} is {_kind(value)} after _tell; expected "
                f"{expected}"
            )


def _is_per_member(data: dict[str, Any], members: int) -> bool:
    arrays = [_array(value) for value in data.values()]
    fits = [each.ndim == 0 or (each.ndim < 3 and len(each) == members) for each in arrays]
    return all(fits) and all(each.dtype.kind in NUMBERS for each in arrays)


def _is_storable(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind in NUMBERS and array.dtype.itemsize <= LARGEST


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


def _not_restored(algorithm: Algorithm[Any], what: str) -> TrainingError:
    return TrainingError(
        f"{type(algorithm).__name__} would not continue with the same bits after a resume: {what}. "
        "_state_dict must return, and _load_state_dict restore, everything that the next "
        "generation depends on; random numbers must depend on the seed alone"
    )
