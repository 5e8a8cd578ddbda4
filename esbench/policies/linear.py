"""Linear policy, starting at zero (Mania, Guy & Recht 2018, arXiv:1803.07055)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from esbench.core.arrays import Shapes, Vector
from esbench.policies.base import PolicyBatch, PolicySettings, Rows, TorchPolicy, register_policy
from esbench.policies.kernels.activations import Activation
from esbench.policies.kernels.feedforward import FeedForwardBatch, layer_shapes

if TYPE_CHECKING:
    import torch


@final
class LinearSettings(PolicySettings):
    """Settings of the linear policy."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    bias: bool = False
    """Whether to add a constant to every output."""


@final
@register_policy("linear")
class Linear(TorchPolicy):
    """One matrix from observations to outputs."""

    Settings = LinearSettings
    settings: LinearSettings

    @property
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer."""
        return layer_shapes(self._sizes, self.settings.bias)

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.num_inputs, self.num_outputs

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Zeros, [P]."""
        return np.zeros(self.num_params)

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        settings = self.settings
        return FeedForwardBatch(
            slots, self._sizes, "identity", settings.output_activation, settings.bias
        )

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """One ``torch.nn.Linear``."""
        from esbench.policies.kernels.torch_networks import feed_forward

        last = self.settings.output_activation
        return feed_forward(parameters, self.shapes, "identity", last)
