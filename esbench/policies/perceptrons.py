"""Policies of fully connected layers: linear and the multi-layer perceptron."""

from __future__ import annotations

from abc import ABC
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.policies.kernels.feedforward import Activation, FeedForwardBatch, layer_shapes
from esbench.policies.policy import (
    Deep,
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
class MLPSettings(PolicySettings):
    """Settings of the multi-layer perceptron."""

    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Deep] = (64, 64)
    """Size of each hidden layer, from first to last [units]."""

    activation: Activation = "tanh"
    """Activation of every hidden unit."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    bias: bool = True
    """Whether to add a constant to every unit."""


class FullyConnected(TorchPolicy, ABC):
    """Fully connected layers; the linear policy has one."""

    settings: LinearSettings | MLPSettings

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer."""
        return layer_shapes(self.sizes, self.settings.bias)

    @property
    @final
    def sizes(self) -> tuple[int, ...]:
        """The numbers of inputs, of the units of each hidden layer, and of outputs."""
        hidden = self.settings.hidden if isinstance(self.settings, MLPSettings) else ()
        return self.num_inputs, *hidden, self.num_outputs

    @final
    @property
    def _activations(self) -> tuple[Activation, Activation]:
        """Those of the hidden units and of the outputs."""
        settings = self.settings
        hidden = settings.activation if isinstance(settings, MLPSettings) else "identity"
        return hidden, settings.output_activation

    @final
    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        return FeedForwardBatch(slots, self.sizes, *self._activations, self.settings.bias)

    @final
    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """``torch.nn.Linear`` layers and activations."""
        from esbench.policies.kernels.torch_modules import feed_forward

        return feed_forward(parameters, self.shapes, *self._activations)


@final
@register_policy("linear")
class Linear(FullyConnected):
    """One matrix from observations to outputs."""

    Settings = LinearSettings

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Zeros, [P]."""
        return np.zeros(self.num_params)


@final
@register_policy("mlp")
class MLP(FullyConnected):
    """Fully connected layers, 64-64 tanh by default."""

    Settings = MLPSettings
    takes_images = True
    most_pixels = 2**15  # 4 frames of 84 x 84; with 64 units that is 7 MB of weights per slot

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalized weights and zero biases, [P]."""
        parts = []
        for weights in normalized_weights(generator, list(pairwise(self.sizes))):
            parts.append(weights.reshape(-1))
            parts.append(np.zeros(weights.shape[1] if self.settings.bias else 0))
        return np.concatenate(parts)
