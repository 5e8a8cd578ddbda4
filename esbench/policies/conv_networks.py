"""Convolutional networks for images: those of the papers, and a small one.

Initialised as in OpenAI's evolution-strategies-starter. With virtual batch normalisation the units
have no bias but a gain, initially 1, and an offset, initially 0.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Annotated, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.arrays import Shapes, Vector
from esbench.errors import UsageError
from esbench.policies.base import (
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    normalized_weights,
    register_policy,
)
from esbench.policies.kernels.activations import ImageActivation
from esbench.policies.kernels.convolution import (
    Architecture,
    ConvBatch,
    Layer,
    sides,
)
from esbench.policies.kernels.device import Device, DeviceBatch, require_device
from esbench.policies.kernels.virtual_batch import NormalizedBatch, member_shapes

Count = Annotated[int, Field(ge=1, le=4096)]
Layers: TypeAlias = Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)]


class ConvSettings(PolicySettings, ABC):
    """Settings of convolutional networks."""

    layers: Layers
    """Convolutions, first to last: [channels, side of the window, stride] each."""

    hidden: tuple[Count, ...]
    """Size of each fully connected layer between convolutions and outputs [units]."""

    activation: ImageActivation = "relu"
    """Activation of every unit except the outputs."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """Divisor of the pixels."""

    device: Device = "cpu"
    """Device of the forward passes: cpu, or cuda for an NVIDIA GPU, whose rounding differs."""

    virtual_batch_norm: bool = False
    """Whether to normalise every unit except the outputs by its values on a reference batch."""

    reference_size: Annotated[int, Field(ge=2, le=4096)] = 128
    """Size of that batch, from random play at the start of training [observations]."""


@final
class SmallConvSettings(ConvSettings):
    """Settings of the small convolutional network."""

    layers: Layers = ((8, 8, 4), (16, 4, 2))
    hidden: tuple[Count, ...] = (32,)


@final
class OpenAIConvSettings(ConvSettings):
    """Settings of the network of Salimans et al."""

    layers: Layers = ((16, 8, 4), (32, 4, 2))
    hidden: tuple[Count, ...] = (256,)


@final
class NatureConvSettings(ConvSettings):
    """Settings of the network of Mnih et al."""

    layers: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    hidden: tuple[Count, ...] = (512,)


class ConvNetwork(PreparedPolicy, ABC):
    """Convolutions without padding, then fully connected layers."""

    takes_images = True
    settings: ConvSettings

    @final
    def prepare(self) -> None:
        """Derive the architecture from the settings."""
        settings = self.settings
        require_device(settings.device)
        if settings.device != "cpu" and settings.virtual_batch_norm:
            raise UsageError(
                f"device = {settings.device!r} with virtual_batch_norm = true: expected only one "
                "of them, because virtual batch normalisation needs device = 'cpu'"
            )
        self._architecture = Architecture(
            image=require_images(self.shape),
            layers=tuple(Layer(*layer) for layer in settings.layers),
            hidden=settings.hidden,
            outputs=self.num_outputs,
            activation=settings.activation,
        )
        require_fitting_windows(self._architecture.image, self._architecture.layers)
        if settings.virtual_batch_norm:
            self.reference_size = settings.reference_size

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer; convolutions as matrices.

        With virtual batch normalisation, gains and offsets replace all biases except the last.
        """
        if self.settings.virtual_batch_norm:
            return member_shapes(self._architecture)
        return self._architecture.shapes

    @final
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalised weights, zero biases and offsets, unit gains, [P]."""
        parts = []
        *before, outputs = normalized_weights(generator, self._architecture.shapes[::2])
        for weights in before:
            units = weights.shape[1]
            gains = [np.ones(units)] if self.settings.virtual_batch_norm else []
            parts += [weights.reshape(-1), *gains, np.zeros(units)]
        return np.concatenate([*parts, outputs.reshape(-1), np.zeros(outputs.shape[1])])

    @final
    def batch(self, slots: int) -> PolicyBatch:
        """A batch with ``slots`` slots."""
        if self.settings.device != "cpu":
            import torch

            device = torch.device(self.settings.device)
            return DeviceBatch(slots, self._architecture, self.settings.pixel_max, device)
        kind = NormalizedBatch if self.settings.virtual_batch_norm else ConvBatch
        return kind(slots, self._architecture, self.settings.pixel_max)


def require_images(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape of an observation: channels, height and width.

    Raises:
        UsageError: it is not an image.
    """
    if len(shape) != 3:
        raise UsageError(
            f"observations of shape {list(shape)}: a convolutional policy takes images "
            "[channels, height, width], such as those of esbench/Pong-v5; use mlp or linear"
        )
    return shape


def require_fitting_windows(image: tuple[int, int, int], layers: Sequence[Layer]) -> None:
    """Check that the window of every convolution fits into its input.

    Raises:
        UsageError: a window is larger than its input.
    """
    _, height, width = image
    for side, layer in zip(sides(image, layers), layers, strict=False):
        if min(side) + 2 * layer.padding < layer.window:
            raise UsageError(
                f"layers = {[list(layer[:3]) for layer in layers]}: an image of {height} x {width} "
                f"has shrunk to {side[0]} x {side[1]} before the window of {layer.window}; "
                "expected windows that fit"
            )


@final
@register_policy("small_conv")
class SmallConv(ConvNetwork):
    """8 windows of 8 x 8 and 16 of 4 x 4, 32 units: for fast learning."""

    Settings = SmallConvSettings


@final
@register_policy("openai_conv")
class OpenAIConv(ConvNetwork):
    """16 windows of 8 x 8 and 32 of 4 x 4, 256 units (Salimans et al. 2017, arXiv:1703.03864)."""

    Settings = OpenAIConvSettings


@final
@register_policy("nature_conv")
class NatureConv(ConvNetwork):
    """32 windows of 8 x 8, 64 of 4 x 4, 64 of 3 x 3, 512 units (Mnih et al., Nature 518, 2015)."""

    Settings = NatureConvSettings
