"""A vector: the outputs are the parameters, independent of the observations.

For environments of one step whose action is a point, such as the test functions. The outputs are
rounded to float32, so the environment receives every coordinate with a relative error of up to
6e-8. Hence function values much below that of the float32 point nearest to the optimum cannot be
reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.policies.policy import PolicyBatch, PolicySettings, Rows, TorchPolicy, register_policy

if TYPE_CHECKING:
    import torch


@final
class VectorSettings(PolicySettings):
    """Settings of the vector."""

    init_scale: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviation of the normal initial parameters [parameter units]."""


@final
@register_policy("vector")
class VectorPolicy(TorchPolicy):
    """The parameters themselves; observations are ignored."""

    Settings = VectorSettings
    settings: VectorSettings

    @property
    def shapes(self) -> Shapes:
        """One vector, with one parameter per output."""
        return ((self.num_outputs,),)

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normal numbers [P] with standard deviation ``init_scale``."""
        return self.settings.init_scale * generator.standard_normal(self.num_outputs)

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return VectorBatch(slots, self.num_outputs)

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """The parameters, repeated for every input."""
        from esbench.policies.kernels.torch_modules import Constant

        return Constant(parameters)


@final
class VectorBatch(PolicyBatch):
    """One row of parameters per slot."""

    def __init__(self, slots: int, outputs: int) -> None:
        self._rows = np.zeros((slots, outputs), np.float32)

    def load(self, slot: int, parameters: Vector) -> None:
        """Load the parameters [P] of a member into a slot, rounded to float32."""
        self._rows[slot] = parameters

    def forward(self, observations: Rows, live: Sequence[int] | None = None) -> Rows:
        """A copy of the parameters [k, P] of the slots 0..k-1."""
        return self._rows[: len(observations)].copy()
