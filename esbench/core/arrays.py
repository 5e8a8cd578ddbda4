"""Array types, and tables whose arrays are stored apart."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

LARGEST_RETURN: Final = 1e300
"""Returns beyond it count as not finite, so that sums of the others are finite."""
LARGEST_MEAN: Final = 2 * LARGEST_RETURN  # of returns, which may be rounded up
TENSOR: Final = "$tensor"  # the key of the name of an array that is stored apart
Floats: TypeAlias = npt.NDArray[np.float64]
Vector: TypeAlias = Floats
Matrix: TypeAlias = Floats
State: TypeAlias = dict[str, Any]
"""What a checkpoint stores: arrays, numbers, texts and tables of these."""
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""The shapes of the tensors that lie one after the other in a parameter vector."""


def unit_of(*values: Floats) -> float:
    """The power of two of the largest magnitude: divided by it, values have finite squares."""
    largest = max(float(np.abs(each).max(initial=0.0)) for each in values)
    return math.ldexp(0.5, math.frexp(largest)[1])


def norm(vector: Vector) -> float:
    """The Euclidean norm of a vector [P]."""
    # np.linalg.norm calls a BLAS dot product, whose bits can depend on the number of threads.
    return float(np.sqrt(np.sum(vector * vector)))


def float_digest(*values: npt.ArrayLike) -> str:
    """SHA-256 of arrays one after the other, as little-endian float64."""
    parts = (np.asarray(value, dtype="<f8").tobytes() for value in values)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def without_arrays(value: Any, arrays: dict[str, Any], name: str = "") -> Any:
    """A state in which each array is moved to ``arrays`` under its dotted name.

    NumPy's numbers become Python's, and tuples become lists.
    """
    if isinstance(value, dict):
        return {
            key: without_arrays(each, arrays, _dotted(name, key)) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_arrays(each, arrays, _dotted(name, at)) for at, each in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if name in arrays:  # a key with a dot reads as two keys
            name += f"#{len(arrays)}"
        arrays[name] = np.array(value, order="C")  # ascontiguousarray would add a dimension to 0-d
        return {TENSOR: name}
    return value


def with_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    """The inverse of ``without_arrays``; KeyError if an array is missing."""
    if isinstance(value, list):
        return [with_arrays(item, arrays) for item in value]
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            return arrays[value[TENSOR]]
        return {key: with_arrays(item, arrays) for key, item in value.items()}
    return value


def _dotted(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
