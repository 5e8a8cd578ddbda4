"""Checks of the state of an algorithm that is not part of esbench."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from esbench.arrays import Matrix, Vector, with_arrays, without_arrays
from esbench.errors import TrainingError

if TYPE_CHECKING:
    from esbench.algorithms.base import Algorithm
    from esbench.algorithms.population import Population

CHECKED: Final = (2, 10)  # generations: most states, such as a momentum, are empty before the first
NUMBERS: Final = "biuf"  # kinds of arrays that a checkpoint stores


def is_own(algorithm: object) -> bool:
    """Whether the class of an algorithm is not part of esbench."""
    return type(algorithm).__module__.partition(".")[0] != "esbench"


def storable_state(algorithm: object, state: Any) -> dict[str, Any]:
    """What ``_state_dict`` returned, with NumPy's numbers as Python's.

    Raises:
        TrainingError: it is no dictionary, or something in it cannot be stored.
    """
    name = f"{type(algorithm).__name__}._state_dict()"
    if not isinstance(state, dict):
        raise TrainingError(f"{name} is of type {type(state).__name__}; expected a dictionary")
    stored: dict[str, Any] = _storable(state, name)
    return stored


def _storable(value: Any, name: str) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS:
        return value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _storable(each, f"{name}[{key!r}]") for key, each in value.items()}
    return _plain(value, name)


def restored_twin(algorithm: Algorithm[Any], population: Population) -> Algorithm[Any] | None:
    """Another object with the stored state of an own algorithm; None if it is not checked now.

    Raises:
        TrainingError: the twin does not ask for the same ``population``.
    """
    if algorithm.generation + 1 not in CHECKED or not is_own(algorithm):
        return None
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(algorithm.state_dict(), arrays)))
    arguments = algorithm.settings, algorithm.center, algorithm.seed, algorithm.shapes
    twin = type(algorithm)(*arguments)
    twin.load_state_dict(with_arrays(plain, arrays))
    asked = twin.ask()
    places = range(min(len(asked), len(population)))  # the population may be extended
    if any(not np.array_equal(asked.member(i), population.member(i)) for i in places):
        raise _not_restored(algorithm, f"generation {algorithm.generation + 1} has other members")
    return twin


def require_same_step(
    twin: Algorithm[Any],
    algorithm: Algorithm[Any],
    population: Population,
    returns: Vector,
    behaviors: Matrix | None,
) -> None:
    """Raises TrainingError if the twin learns another center from what the algorithm was told."""
    twin.tell(population, returns, behaviors)
    same = np.array_equal(twin.center, algorithm.center, equal_nan=True)
    if not (same and np.array_equal(twin.sigma, algorithm.sigma, equal_nan=True)):
        raise _not_restored(algorithm, f"generation {algorithm.generation} ends at another center")


def _plain(value: Any, name: str) -> Any:
    """A value that JSON stores: a number, a text, None, or a list of these."""
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS:
        return value.item()
    if isinstance(value, list):
        return [_plain(each, f"{name}[{place}]") for place, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TrainingError(
        f"{name} is of type {type(value).__name__}; expected an array of numbers, a number, a "
        "text, None, a list of these without arrays, or a dictionary of these by text"
    )


def _not_restored(algorithm: Algorithm[Any], what: str) -> TrainingError:
    return TrainingError(
        f"{type(algorithm).__name__} would not continue with the same bits after a resume: with "
        f"what its _state_dict returned, {what}; expected in it everything that the next "
        "generation depends on, and random numbers that depend on the seed alone"
    )
