"""Convolutional networks for images: those of the papers, and a small one.

Weights into a unit are normal and scaled to length 1, or 0.01 for the outputs; biases are 0, as in
OpenAI's evolution-strategies-starter. With virtual batch normalisation the units have no bias but a
gain, which starts at 1, and an offset, which starts at 0.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Annotated, final

import numpy as np
from pydantic import Field

from esbench.arrays import Matrix, Shapes, Vector
from esbench.errors import UsageError
from esbench.policies.base import Policy, PolicyBatch, PolicySettings, register_policy
from esbench.policies.kernels.convolution import (
    Architecture,
    ConvolutionalBatch,
    ImageActivation,
    Layer,
    sides,
)
from esbench.policies.kernels.device import Device, DeviceBatch, require
from esbench.policies.kernels.virtual_batch import VirtualBatch, member_shapes

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

    device: Device = "cpu"
    """Where the forward passes are computed: cpu, or cuda for an NVIDIA GPU, which rounds
    otherwise."""

    virtual_batch_norm: bool = False
    """Whether to normalise every unit but the outputs by its values for a reference batch."""

    reference_size: Annotated[int, Field(ge=2, le=4096)] = 128
    """Size of that batch, from random play at the start of training [observations]."""


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
            UsageError: an observation is no image, or smaller than a window; the device is not
                there, or does not serve virtual batch normalisation.
        """
        super().__init__(settings, num_inputs, num_outputs, shape)
        require(settings.device)
        if settings.device != "cpu" and settings.virtual_batch_norm:
            raise UsageError(
                f"device = {settings.device!r} with virtual_batch_norm = true: expected one of "
                "them; members are normalised on the CPU only"
            )
        self._architecture = Architecture(
            image=require_images(self.shape),
            layers=tuple(Layer(*layer) for layer in settings.layers),
            hidden=settings.hidden,
            outputs=num_outputs,
            activation=settings.activation,
        )
        require_fitting_windows(self._architecture.image, self._architecture.layers)
        if settings.virtual_batch_norm:
            self.reference_size = settings.reference_size

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer; convolutions as matrices.

        With virtual batch normalisation, gains and offsets are in the place of all biases but the
        outputs'.
        """
        if self.settings.virtual_batch_norm:
            return member_shapes(self._architecture)
        return self._architecture.shapes

    @final
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Return normalised columns [P], biases and offsets zero, gains one."""
        parts, matrices = [], self._architecture.shapes[::2]
        for index, (inputs, units) in enumerate(matrices):
            last = index == len(matrices) - 1
            weights = normalized_columns(generator, inputs, units)
            if last:
                weights *= OUTPUT_LENGTH
            gains = [np.ones(units)] if self.settings.virtual_batch_norm and not last else []
            parts += [weights.reshape(-1), *gains, np.zeros(units)]
        return np.concatenate(parts)

    @final
    def batch(self, slots: int) -> PolicyBatch:
        """Return room for ``slots`` members."""
        if self.settings.device != "cpu":
            import torch

            device = torch.device(self.settings.device)
            return DeviceBatch(slots, self._architecture, self.settings.pixel_max, device)
        kind = VirtualBatch if self.settings.virtual_batch_norm else ConvolutionalBatch
        return kind(slots, self._architecture, self.settings.pixel_max)


def require_images(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape of an observation: channels, height and width.

    Raises:
        UsageError: it is no image.
    """
    if len(shape) != 3:
        raise UsageError(
            f"observations of shape {list(shape)}: a convolutional policy takes images "
            "[channels, height, width], such as those of esbench/Pong-v5; use mlp or linear"
        )
    return shape


def require_fitting_windows(image: tuple[int, int, int], layers: Sequence[Layer]) -> None:
    """Raise if a convolution's window is larger than what the ones before it make of an image.

    Raises:
        UsageError: it is.
    """
    _, height, width = image
    for side, layer in zip(sides(image, layers), layers, strict=False):
        if min(side) + 2 * layer.padding < layer.window:
            raise UsageError(
                f"layers = {[list(layer[:3]) for layer in layers]}: an image of {height} x {width} "
                f"has shrunk to {side[0]} x {side[1]} before the window of {layer.window}; "
                "expected windows that fit"
            )


def normalized_columns(generator: np.random.Generator, inputs: int, units: int) -> Matrix:
    """Return normal weights [inputs, units], those into each unit scaled to length 1."""
    weights = generator.standard_normal((inputs, units))
    weights /= np.sqrt(np.sum(weights * weights, axis=0))
    return weights


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
