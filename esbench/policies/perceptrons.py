"""Policies of fully connected layers: linear and the multi-layer perceptron."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.policies.kernels.feedforward import Activation, FeedForwardBatch, layer_shapes
from esbench.policies.policy import (
    PolicyBatch,
    PolicySettings,
    Rows,
    TorchPolicy,
    normalized_weights,
    register_policy,
)

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
        from esbench.policies.kernels.torch_modules import feed_forward

        last = self.settings.output_activation
        return feed_forward(parameters, self.shapes, "identity", last)


@final
class MLPSettings(PolicySettings):
    """Settings of the multi-layer perceptron."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = (64, 64)
    """Size of each hidden layer, from first to last [units]."""

    activation: Activation = "tanh"
    """Activation of every hidden unit."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    bias: bool = True
    """Whether to add a constant to every unit."""


@final
@register_policy("mlp")
class MLP(TorchPolicy):
    """Fully connected layers, 64-64 tanh by default."""

    Settings = MLPSettings
    takes_images = True
    most_pixels = 2**15  # 4 frames of 84 x 84; with 64 units that is 7 MB of weights per slot
    settings: MLPSettings

    @property
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer."""
        return layer_shapes(self._sizes, self.settings.bias)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.num_inputs, *self.settings.hidden, self.num_outputs

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalized weights and zero biases, [P]."""
        parts = []
        for weights in normalized_weights(generator, list(pairwise(self._sizes))):
            parts.append(weights.reshape(-1))
            parts.append(np.zeros(weights.shape[1] if self.settings.bias else 0))
        return np.concatenate(parts)

    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        settings = self.settings
        return FeedForwardBatch(
            slots, self._sizes, settings.activation, settings.output_activation, settings.bias
        )

    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """``torch.nn.Linear`` layers and activations."""
        from esbench.policies.kernels.torch_modules import feed_forward

        settings = self.settings
        last = settings.output_activation
        return feed_forward(parameters, self.shapes, settings.activation, last)
