"""A vector: the outputs are the parameters, whatever is observed.

For environments of one step whose action is a point, such as the test functions. The
outputs are rounded to float32, so the environment sees every coordinate off by up to 6e-8 of its
size, and values much below that at the float32 point nearest to the optimum cannot be reached. In
ten dimensions those are, measured: 9.4e-15 for the sphere, 3.6e-9 for the ellipsoid, 2.7e-9 for the
rotated one, 3.4e-12 for the Rosenbrock and 1.9e-12 for the Rastrigin function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.policies.base import Policy, PolicyBatch, PolicySettings, Rows, register_policy


class VectorSettings(PolicySettings):
    """Settings of the vector."""

    init_scale: Annotated[float, Field(ge=0)] = 1.0
    """Deviation of the normal numbers that the search starts from [parameter units]."""


@final
@register_policy("vector")
class VectorPolicy(Policy):
    """The parameters themselves; observations are ignored."""

    Settings = VectorSettings
    settings: VectorSettings

    @property
    def shapes(self) -> Shapes:
        """One vector, a parameter for each output."""
        return ((self.num_outputs,),)

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return normal numbers [P] of deviation ``init_scale``."""
        return self.settings.init_scale * generator.standard_normal(self.num_outputs)

    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        return VectorBatch(slots, self.num_outputs)


@final
class VectorBatch(PolicyBatch):
    """A row a slot."""

    def __init__(self, slots: int, outputs: int) -> None:
        self._rows = np.zeros((slots, outputs), np.float32)

    def load(self, slot: int, parameters: Vector) -> None:
        """Put a member's parameters [P] into a slot, rounded to float32."""
        self._rows[slot] = parameters

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """Return the parameters [k, P] of the slots 0..k-1; a copy."""
        return self._rows[: len(observations)].copy()
