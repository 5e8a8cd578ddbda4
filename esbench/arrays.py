"""Array types that algorithms, policies and rollouts share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""The shapes of the tensors that lie one after the other in a parameter vector."""
