"""Convolutional networks for images: those of the papers, and a small one.

Initialized as in OpenAI's evolution-strategies-starter. With virtual batch normalization the units
have no bias but a gain, initially 1, and an offset, initially 0.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, final

import numpy as np
from pydantic import Field

from esbench.core.arrays import Shapes, Vector
from esbench.core.errors import UsageError
from esbench.policies.kernels.convolution import Architecture, ConvBatch, Layer
from esbench.policies.kernels.device import Device, DeviceBatch, require_device
from esbench.policies.kernels.feedforward import Activation
from esbench.policies.kernels.virtual_batch import NormalizedBatch, member_shapes
from esbench.policies.policy import (
    Policy,
    PolicyBatch,
    PolicySettings,
    PreparedPolicy,
    Rows,
    TorchPolicy,
    normalized_weights,
    register_policy,
)

if TYPE_CHECKING:
    import torch

MOST_COLORS: Final = 4  # with transparency
Count = Annotated[int, Field(ge=1, le=4096)]
Layers: TypeAlias = Annotated[tuple[tuple[Count, Count, Count], ...], Field(min_length=1)]


class ConvSettings(PolicySettings, ABC):
    """Settings of convolutional networks."""

    layers: Layers
    """Convolutions, first to last: [channels, kernel size, stride] each."""

    hidden: tuple[Count, ...]
    """Size of each fully connected layer between convolutions and outputs [units]."""

    activation: Activation = "relu"
    """Activation of every unit except the outputs."""

    output_activation: Activation = "identity"
    """Activation of the outputs."""

    pixel_max: Annotated[float, Field(gt=0)] = 255.0
    """Divisor of the pixels; 1 if observations are normalized."""

    device: Device = "cpu"
    """Device of the forward passes: cpu, or cuda for an NVIDIA GPU, whose rounding differs."""

    virtual_batch_norm: bool = False
    """Whether to normalize every unit except the outputs by its values on a reference batch."""

    reference_size: Annotated[int, Field(ge=2, le=4096)] = 128
    """Size of the reference batch, from random play at the start of training [observations]."""


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


class ConvNetwork(PreparedPolicy, TorchPolicy, ABC):
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
                "of them, because virtual batch normalization needs device = 'cpu'"
            )
        self._architecture = image_architecture(self, settings.layers, settings.hidden)
        if settings.virtual_batch_norm:
            self.reference_size = settings.reference_size

    @property
    @final
    def shapes(self) -> Shapes:
        """The shapes of weights and biases, layer by layer; convolutions as matrices.

        With virtual batch normalization, gains and offsets replace all biases except the last.
        """
        if self.settings.virtual_batch_norm:
            return member_shapes(self._architecture)
        return self._architecture.shapes

    @final
    def initial_parameters(self, generator: np.random.Generator) -> Vector:
        """Normalized weights, zero biases and offsets, unit gains, [P]."""
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
            return DeviceBatch(slots, self._architecture, self.settings.device)
        kind = NormalizedBatch if self.settings.virtual_batch_norm else ConvBatch
        return kind(slots, self._architecture)

    @final
    def torch_layers(self, parameters: Vector, reference: Rows | None) -> torch.nn.Module:
        """Convolutions and fully connected layers; virtual batch normalization is folded in."""
        from esbench.policies.kernels.torch_modules import convolutional

        values = parameters.astype(np.float32)
        if reference is not None:
            batch = NormalizedBatch(1, self._architecture)
            batch.refer(reference)
            values = batch.folded(values)
        return convolutional(values, self._architecture)


def image_architecture(
    policy: Policy, layers: Layers, hidden: tuple[int, ...], padding: int = 0
) -> Architecture:
    """The structure of a network; UsageError without images, or for a window that does not fit."""
    if len(policy.shape) != 3:
        raise UsageError(
            f"observations of shape {list(policy.shape)}: a convolutional policy takes images "
            "[channels, height, width], such as those of esbench/Pong-v5; use mlp or linear"
        )
    if policy.shape[2] <= MOST_COLORS < min(policy.shape[:2]):
        raise UsageError(
            f"observations of shape {list(policy.shape)}: expected images [channels, height, "
            'width]; wrappers = [{wrapper = "esbench.environments.wrappers:ChannelsFirst"}] of the '
            "environment moves the last axis to the front"
        )
    settings = policy.settings
    architecture = Architecture(
        image=policy.shape,
        layers=tuple(Layer(*layer, padding) for layer in layers),
        hidden=hidden,
        outputs=policy.num_outputs,
        activation=settings.activation,
        output_activation=settings.output_activation,
        pixel_max=1.0 if settings.normalize_observations else settings.pixel_max,
    )
    for (height, width), layer in zip(architecture.sides, architecture.layers, strict=False):
        if min(height, width) + 2 * padding < layer.window:
            raise UsageError(
                f"layers = {list(map(list, layers))}: the window of {layer.window} does not fit "
                f"the {height} x {width} that is left of an image of {policy.shape[1]} x "
                f"{policy.shape[2]}; expected smaller windows"
            )
    return architecture


@final
@register_policy("small_conv")
class SmallConv(ConvNetwork):
    """8 filters of 8 x 8 and 16 of 4 x 4, 32 units: for fast learning."""

    Settings = SmallConvSettings


@final
@register_policy("openai_conv")
class OpenAIConv(ConvNetwork):
    """16 filters of 8 x 8 and 32 of 4 x 4, 256 units (Salimans et al. 2017, arXiv:1703.03864)."""

    Settings = OpenAIConvSettings


@final
@register_policy("nature_conv")
class NatureConv(ConvNetwork):
    """32 filters of 8 x 8, 64 of 4 x 4, 64 of 3 x 3, 512 units (Mnih et al., Nature 518, 2015)."""

    Settings = NatureConvSettings
