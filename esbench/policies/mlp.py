"""Multi-layer perceptron, initialised as in OpenAI's evolution-strategies-starter.

Weights into a unit are normal and scaled to length 1, or 0.01 for the outputs; biases are 0.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.policies.base import Policy, PolicyBatch, PolicySettings, register_policy
from esbench.policies.kernels.feedforward import Activation, FeedForwardBatch, layer_shapes

OUTPUT_LENGTH = 0.01


class MLPSettings(PolicySettings):
    """Settings of the multi-layer perceptron."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = (64, 64)
    """Size of each hidden layer, from first to last [units]."""

    activation: Activation = "tanh"
    """What every hidden unit applies to its sum."""

    bias: bool = True
    """Whether to add a constant to every unit."""


@final
@register_policy("mlp")
class MLP(Policy):
    """Fully connected layers, 64-64 tanh by default."""

    Settings = MLPSettings
    takes_images = True
    most_pixels = 2**15  # 4 frames of 84 x 84; with 64 units that is 7 MB of weights a slot
    settings: MLPSettings

    @property
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer."""
        return layer_shapes(self._sizes, self.settings.bias)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.num_inputs, *self.settings.hidden, self.num_outputs

    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return normalised columns [P], biases zero."""
        parts = []
        layers = list(pairwise(self._sizes))
        for index, (inputs, outputs) in enumerate(layers):
            weights = generator.standard_normal((inputs, outputs))
            weights /= np.sqrt(np.sum(weights * weights, axis=0))
            if index == len(layers) - 1:
                weights *= OUTPUT_LENGTH
            parts.append(weights.reshape(-1))
            parts.append(np.zeros(outputs if self.settings.bias else 0))
        return np.concatenate(parts)

    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        settings = self.settings
        return FeedForwardBatch(slots, self._sizes, settings.activation, settings.bias)
