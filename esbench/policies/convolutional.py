"""Convolutional networks for images: those of the papers, and a small one.

Weights into a unit are normal and scaled to length 1, or 0.01 for the outputs; biases are 0, as in
OpenAI's evolution-strategies-starter.
"""

from __future__ import annotations

from abc import ABC
from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.errors import UsageError
from esbench.noise import Shapes, Vector
from esbench.policies.base import Policy, PolicyBatch, PolicySettings
from esbench.policies.convolution import Architecture, ConvolutionalBatch, ImageActivation, Layer
from esbench.registry import register_policy

OUTPUT_LENGTH = 0.01
Count = Annotated[int, Field(ge=1, le=4096)]


class SmallConvSettings(PolicySettings):
    """Settings of the small convolutional network."""

    layers: Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)] = (
        (8, 8, 4),
        (16, 4, 2),
    )
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    hidden: tuple[Count, ...] = (32,)
    """Size of each fully connected layer between convolutions and outputs [units]."""

    activation: ImageActivation = "relu"
    """What every unit but the outputs applies to its sum."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """What pixels are divided by."""


class OpenAIConvSettings(SmallConvSettings):
    """Settings of the network of Salimans et al."""

    layers: Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)] = (
        (16, 8, 4),
        (32, 4, 2),
    )
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    hidden: tuple[Count, ...] = (256,)
    """Size of each fully connected layer between convolutions and outputs [units]."""


class NatureConvSettings(SmallConvSettings):
    """Settings of the network of Mnih et al."""

    layers: Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)] = (
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    )
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    hidden: tuple[Count, ...] = (512,)
    """Size of each fully connected layer between convolutions and outputs [units]."""


class Convolutional(Policy, ABC):
    """Convolutions without padding, then fully connected layers."""

    takes_images = True
    settings: SmallConvSettings

    def __init__(
        self,
        settings: SmallConvSettings,
        num_inputs: int,
        num_outputs: int,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Describe the network.

        Raises:
            UsageError: an observation is no image, or smaller than a window.
        """
        super().__init__(settings, num_inputs, num_outputs, shape)
        if len(self.shape) != 3:
            raise UsageError(
                f"observations of shape {list(self.shape)}: a convolutional policy takes images "
                "[channels, height, width], such as those of esbench/Pong-v5; use mlp or linear"
            )
        channels, height, width = self.shape
        self._architecture = Architecture(
            image=(channels, height, width),
            layers=tuple(Layer(*layer) for layer in settings.layers),
            hidden=settings.hidden,
            outputs=num_outputs,
            activation=settings.activation,
        )
        for sides, layer in zip(self._architecture.sides, settings.layers, strict=False):
            if min(sides) < layer[1]:
                raise UsageError(
                    f"layers = {[list(layer) for layer in settings.layers]}: an image of {height} "
                    f"x {width} has shrunk to {sides[0]} x {sides[1]} before the window of "
                    f"{layer[1]}; expected windows that fit"
                )

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer; convolutions as matrices."""
        return self._architecture.shapes

    @final
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return normalised columns [P], biases zero."""
        parts, matrices = [], self.shapes[::2]
        for index, (inputs, units) in enumerate(matrices):
            weights = generator.standard_normal((inputs, units))
            weights /= np.sqrt(np.sum(weights * weights, axis=0))
            if index == len(matrices) - 1:
                weights *= OUTPUT_LENGTH
            parts += [weights.reshape(-1), np.zeros(units)]
        return np.concatenate(parts)

    @final
    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        return ConvolutionalBatch(slots, self._architecture, self.settings.pixel_max)


@final
@register_policy("small_conv")
class SmallConv(Convolutional):
    """8 windows of 8 x 8 and 16 of 4 x 4, 32 units: for fast learning."""

    Settings = SmallConvSettings


@final
@register_policy("openai_conv")
class OpenAIConv(Convolutional):
    """16 windows of 8 x 8 and 32 of 4 x 4, 256 units (Salimans et al. 2017, arXiv:1703.03864)."""

    Settings = OpenAIConvSettings


@final
@register_policy("nature_conv")
class NatureConv(Convolutional):
    """32 windows of 8 x 8, 64 of 4 x 4, 64 of 3 x 3, 512 units (Mnih et al., Nature 518, 2015)."""

    Settings = NatureConvSettings
