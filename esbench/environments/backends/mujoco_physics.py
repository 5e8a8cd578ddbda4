"""The part of ``MjData`` that the next step depends on, in one block of memory per slot.

MuJoCo computes everything else anew. It stores these arrays one after the other, so that one copy
loads a slot into an ``MjData`` and one copy reads it back, and all slots can share one ``MjData``,
which stays in the cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError

# ``act`` and ``ctrl`` may be empty. State of plugins and delayed actuators lies between them.
FIELDS: Final = ("qpos", "qvel", "act", "qacc_warmstart", "ctrl")
FAR: Final = 1 << 20  # bytes; gaps between the fields are smaller


@final
class Physics:
    """Memory for the physics of several slots; ``state`` has each field of all slots, [S, n]."""

    def __init__(self, data: Any, slots: int) -> None:
        """Allocate ``slots`` copies of the physics in ``data``.

        Raises:
            UsageError: this version of MuJoCo stores the fields in another way.
        """
        span, start = _span(data), _address(data.qpos)
        self._rows = np.zeros((slots, span.size))
        self.state: dict[str, Vector] = {}
        for field in FIELDS:
            array = getattr(data, field)
            first = (_address(array) - start) // span.itemsize if array.size else 0
            self.state[field] = self._rows[:, first : first + array.size]

    def row(self, slot: int) -> memoryview:
        """The memory of a slot."""
        return bytes_of(self._rows[slot])

    def window(self, data: Any) -> memoryview:
        """The memory of ``data`` that a slot's row is copied to and from."""
        return bytes_of(_span(data))


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """The memory of a contiguous array.

    Assignments between such memories are faster than assignments between small arrays.
    """
    return array.data.cast("B")


def _span(data: Any) -> Vector:
    """The memory from the first field to the end of the last as one array."""
    arrays = [array for field in FIELDS if (array := getattr(data, field)).size]
    places = [(_address(array), _address(array) + array.nbytes) for array in arrays]
    start, end = places[0][0], places[-1][1]
    gaps = [after[0] - before[1] for before, after in pairwise(places)]
    if not all(0 <= gap < FAR for gap in gaps):
        import mujoco

        raise UsageError(
            f"backend 'mujoco' does not know the memory layout of MuJoCo {mujoco.__version__}; "
            "use the backend 'gymnasium'"
        )
    return np.lib.stride_tricks.as_strided(arrays[0], ((end - start) // 8,), (8,))


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)
